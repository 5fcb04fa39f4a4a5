/**
 * @file Prints loops that only copy elements of one type as memory copies, masked moves and transpositions in registers.
 *
 *     for k_step, for n_inner: b_tiles[32*k_step + 2*n_inner] = (n_inner < 11 ? e[128*n_inner + 2*k_step] : 0)
 *       ->  loops k_step, n_inner; to b_tiles, from e, conditions n_inner < 11
 */

import { affineForm, type Extents, evaluateIndex, periodOf } from "../../abstraction/affine.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import {
  axesIn,
  axis,
  binary,
  type CompareOp,
  type Expr,
  identityOf,
  MIRRORED,
  minus,
  number,
  plus,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { axisName, type Code, code, join } from "../../abstraction/source-text.ts";
import { allOf, type CExpressions, type Place } from "../c-expressions.ts";
import { extentsIn, type Loop } from "../walk.ts";
import { maskWhere } from "./avx512-masks.ts";

/** Bytes of a register; its words, which are as many as the rows or columns that are transposed. */
const ROW_BYTES = 64;
const WORDS = 16;
const WORD_BYTES = 4;

/** With fewer elements in a row, neither a vector nor transposing pays. */
const FEWEST = 8;

interface CopyLoops {
  /** Perfectly nested, outermost first. */
  readonly loops: readonly Loop[];
  readonly extents: Extents;
  readonly dtype: DType;
  /** Whether a condition excludes elements, besides the ends of the source. */
  readonly isMasked: boolean;
  readonly to: Place;
  readonly from: Place;
  /** Conditions for an element to be copied; a zero is stored elsewhere. */
  readonly tests: readonly Expr[];
  /** The address of the first destination and of the first source. @param moving axes that are at their first step */
  readonly pointers: (moving?: readonly string[]) => readonly [to: Code, from: Code];
}

/** Undefined for loops that do anything but copy elements, of which none is excluded from being written. */
export function copyLoops(loop: Loop, c: CExpressions, around: Extents): CopyLoops | undefined {
  const loops = [loop];
  for (;;) {
    const [only, ...others] = loops.at(-1)?.body ?? [];
    if (only === undefined || others.length > 0) return undefined;
    if (only.kind === "loop" && only.mode === "serial" && !only.range) {
      loops.push(only);
      continue;
    }
    if (only.kind !== "scalar") return undefined;
    const { target, op, value, where } = only.equation;
    const isMasked = value.kind === "select" && value.whenFalse.kind === "number" && value.whenFalse.value === 0;
    const source = isMasked ? value.whenTrue : value;
    const dtype = c.dtypes[target.tensor];
    if (op !== "=" || where !== undefined || source.kind !== "access") return undefined;
    if (dtype === undefined || c.dtypes[source.tensor] !== dtype) return undefined;
    const extents = { ...around, ...extentsIn(loops) };
    const to = c.placeOf(target, extents);
    const from = c.placeOf(source, extents);
    if (to.guards.length > 0) return undefined;
    const tests = [...(isMasked ? conjunctsOf(value.condition) : []), ...from.guards];
    const pointers = (moving: readonly string[] = loops.map((l) => l.axis)): readonly [Code, Code] => {
      const first = new Map(moving.map((name) => [name, number(0)]));
      const pointer = (tensor: string, at: Expr): Code =>
        code`${c.tensor(tensor)} + ${c.index(substitute(at, first, "index"), extents)}`;
      return [pointer(target.tensor, to.at), pointer(source.tensor, from.at)];
    };
    return { loops, extents, dtype, isMasked, to, from, tests, pointers };
  }
}

// ---- contiguous elements ----------------------------------------

/**
 * Prints loops that only copy a run of elements contiguous on both sides as one memory copy.
 *
 *     for (long s_copy = 0; s_copy < 7; s_copy++) {
 *       for (long c_copy = 0; c_copy < 3; c_copy++) {
 *         in_windowed[32 * q_copy + 3 * s_copy + c_copy] = in[6 * q_copy + 3 * s_copy + c_copy];
 *       }
 *     }                                          ->  memcpy(in_windowed + 32 * q_copy, in + 6 * q_copy, 42);
 *
 * Short runs become a few overlapping vector moves, long ones a call of the library; as loops, g++ would move them
 * element by element.
 *
 * @returns the copy that replaces a loop nest; undefined if its elements are not contiguous
 */
export function packedRun(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, extents, dtype, isMasked, to, from, tests, pointers } = copied;
  if (isMasked || loops.some((l) => l.mode !== "serial")) return undefined;

  // 1. The fused loops advance by one element on both sides.
  const moving = new Set(loops.map((l) => l.axis));
  const toSteps = stepsOf(to.at, moving);
  const fromSteps = stepsOf(from.at, moving);
  if (!toSteps || !fromSteps) return undefined;
  let run = 1;
  for (const { axis, extent } of [...loops].reverse()) {
    if (extent > 1 && (toSteps.get(axis) !== run || fromSteps.get(axis) !== run)) return undefined;
    run *= extent;
  }

  // 2. The bounds tests, if any, do not depend on these loops.
  if (tests.some((g) => axesIn(g).some((name) => moving.has(name)))) return undefined;
  const bytes = run * bytesOf(dtype);
  const [destination, origin] = pointers();
  const copy = code`memcpy(${destination}, ${origin}, ${bytes});`;
  if (tests.length === 0) return [copy];
  if (identityOf(c.computation.equation.op, dtype) !== 0) return undefined;
  const inside = allOf(tests.map((g) => c.condition(g, extents)));
  return [code`if (${inside}) ${copy}`, code`else memset(${destination}, 0, ${bytes});`];
}

/** The change of an index with each of some loops; undefined when it is not linear in them. What the other loops make of it is no matter. */
function stepsOf(e: Expr, moving: ReadonlySet<string>): ReadonlyMap<string, number> | undefined {
  const own = axesIn(e).filter((name) => moving.has(name));
  if (own.length === 0) return new Map();
  if (e.kind === "axis") return new Map([[e.name, 1]]);
  if (e.kind !== "binary") return undefined;
  const { op, left, right } = e;
  if (op !== "+" && op !== "-" && op !== "*") return undefined;
  const first = stepsOf(left, moving);
  const second = stepsOf(right, moving);
  const factor = left.kind === "number" ? left.value : right.kind === "number" ? right.value : undefined;
  if (!first || !second || (op === "*" && factor === undefined)) return undefined;
  const step = (name: string): number => {
    const l = first.get(name) ?? 0;
    const r = second.get(name) ?? 0;
    return op === "+" ? l + r : op === "-" ? l - r : (l + r) * (factor ?? 0);
  };
  return new Map(own.map((name) => [name, step(name)]));
}

// ---- rows with excluded elements ----------------------------------------

/**
 * Copies rows with excluded elements by one masked load. Elements excluded by a condition or the end of a tensor
 * become zero.
 *
 *     for (long k_inner = 0; k_inner < 64; k_inner++) {
 *       a_edges[64 * m_inner + k_inner] = (64 * k_edge + k_inner <= i ? x[352 * i + 64 * k_edge + k_inner] : 0);
 *     }
 *       ->  _mm512_storeu_si512(a_edges + 64 * m_inner, _mm512_maskz_loadu_epi8(row_below(i - 64 * k_edge + 1), x + 352 * i + 64 * k_edge));
 *
 * A row takes at most one register. g++ would copy it element by element, since excluded elements may be outside of
 * memory.
 *
 * @returns the line that replaces a loop; undefined if its elements are not contiguous, or if it excludes none
 */
export function maskedRow(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, extents, dtype, isMasked, to, from, tests, pointers } = copied;
  const [{ axis, extent } = { axis: "", extent: 0 }] = loops;
  const bytes = bytesOf(dtype);
  if (!isMasked || loops.length > 1 || extent < FEWEST || extent * bytes > ROW_BYTES || bytes > 4) return undefined;
  const isRow = ({ at }: { at: Expr }): boolean => affineForm(movedBy(at, [axis]))?.terms.get(axis) === 1;
  if (!isRow(to) || !isRow(from)) return undefined;
  // A row that is excluded as a whole needs no mask.
  if (!tests.some((test) => axesIn(test).includes(axis))) return undefined;
  const mask = masksOf(tests, axis, c, extents);
  if (mask === undefined) return undefined;
  const [destination, origin] = pointers();
  const row = code`_mm512_maskz_loadu_epi${8 * bytes}(${mask}, ${origin})`;
  const stored =
    extent * bytes === ROW_BYTES
      ? code`_mm512_storeu_si512(${destination}, ${row});`
      : code`_mm512_mask_storeu_epi${8 * bytes}(${destination}, @row_below(${extent}), ${row});`;
  return [stored];
}

/** The mask of the row's elements for which all comparisons hold; undefined where {@link maskOf} is. */
export function masksOf(tests: readonly Expr[], lane: string, c: CExpressions, extents: Extents): Code | undefined {
  const masks: Code[] = [];
  for (const test of tests) {
    const mask = maskOf(test, lane, c, extents);
    if (mask === undefined) return undefined;
    masks.push(mask);
  }
  return masks.length === 0 ? code`~0ull` : join(masks, code` & `);
}

/** The mask for tests that depend on no other of the loops; undefined where one does, or where {@link maskOf} is. */
function maskAlong({ loops, tests, extents }: CopyLoops, lane: string, c: CExpressions): Code | undefined {
  const isAlong = (test: Expr): boolean =>
    axesIn(test).every((name) => name === lane || loops.every((l) => l.axis !== name));
  return tests.every(isAlong) ? masksOf(tests, lane, c, extents) : undefined;
}

/** The terms of a sum that depend on some axes. The other terms may divide. */
function movedBy(e: Expr, axes: readonly string[]): Expr {
  if (!axesIn(e).some((name) => axes.includes(name))) return number(0);
  if (e.kind !== "binary" || (e.op !== "+" && e.op !== "-")) return e;
  return binary(e.op, movedBy(e.left, axes), movedBy(e.right, axes));
}

/**
 * The mask of the row's elements for which a comparison holds; undefined if they are not the beginning or the end of
 * the row.
 */
function maskOf(test: Expr, lane: string, c: CExpressions, extents: Extents): Code | undefined {
  if (test.kind !== "compare") return undefined;
  if (!axesIn(test).includes(lane)) return code`(${c.condition(test, extents)} ? ~0ull : 0)`;
  const difference = affineForm(minus(test.left, test.right));
  const factor = difference?.terms.get(lane);
  if (difference === undefined || (factor !== 1 && factor !== -1)) return undefined;
  // lane op bound
  const op: CompareOp = factor === 1 ? test.op : MIRRORED[test.op];
  const bound = [...difference.terms].reduce<Expr>(
    (sum, [name, coefficient]) => (name === lane ? sum : plus(sum, times(axis(name), -factor * coefficient))),
    number(-factor * difference.constant),
  );
  return op === "==" || op === "!=" ? undefined : maskWhere(op, bound, (e) => code`@row_below(${c.index(e, extents)})`);
}

// ---- rows of words that become columns ----------------------------------------

/** How far an index is from its first place after so many steps of each loop; undefined if a quotient or remainder mixes in other axes. */
function placesIn(at: Expr, loops: readonly Loop[]): ((...steps: number[]) => number) | undefined {
  const names = loops.map((l) => l.axis);
  const moved = movedBy(at, names);
  if (axesIn(moved).some((name) => !names.includes(name))) return undefined;
  const place = (...steps: number[]): number =>
    evaluateIndex(moved, Object.fromEntries(names.map((name, i) => [name, steps[i] ?? 0])));
  const start = place();
  return (...steps) => place(...steps) - start;
}

/** Whether element n of row k lies in word n of every perWord-th row, whose rows are so many elements apart. */
function liesInWords(place: (k: number, n: number) => number, rows: number, pitch: number, perWord: number): boolean {
  for (let k = 0; k < rows; k++)
    for (let n = 0; n < WORDS; n++)
      if (place(k, n) !== pitch * Math.floor(k / perWord) + perWord * n + (k % perWord)) return false;
  return true;
}

/**
 * Packs sixteen columns of words from rows by transposing them in registers, when a condition or the end of a
 * tensor excludes whole rows.
 *
 *     for (long k_step = 0; k_step < 64; k_step++) {
 *       for (long k_inner = 0; k_inner < 2; k_inner++) {
 *         for (long n_inner = 0; n_inner < 16; n_inner++) {
 *           b_tiles[32 * k_step + 2 * n_inner + k_inner] = (n_inner < 11 ? e[128 * n_inner + 2 * k_step + k_inner] : 0);
 *         }
 *       }
 *     }                                          ->  turn_columns(b_tiles, 64, e, 256, row_below(11), 64);
 *
 * For 4-byte elements there is no loop over the elements of a word.
 *
 * @returns the line that replaces such loops; undefined for any other loops
 */
export function turnedColumns(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, dtype, to, from, pointers } = copied;
  const [outer, middle] = loops;
  const inner = loops.at(-1);
  const bytes = bytesOf(dtype);
  if (outer?.mode !== "serial" || outer.extent < FEWEST || inner?.extent !== WORDS || bytes > WORD_BYTES)
    return undefined;
  const perWord = WORD_BYTES / bytes;
  const within = perWord === 1 ? undefined : middle;
  if (loops.length !== (within ? 3 : 2) || (within && within.extent !== perWord)) return undefined;

  // 1. Element q of word k of row n comes from n*pitch + k*perWord + q, and goes to k*row + n*perWord + q.
  const form = affineForm(from.at);
  const pitch = form?.terms.get(inner.axis);
  if (pitch === undefined || form?.terms.get(outer.axis) !== perWord) return undefined;
  if (within && form.terms.get(within.axis) !== 1) return undefined;
  const place = placesIn(to.at, loops);
  const row = place?.(1) ?? 0;
  if (!place || row < WORDS * perWord) return undefined;
  const at = (k: number, n: number): number => place(Math.floor(k / perWord), ...(within ? [k % perWord, n] : [n]));
  if (!liesInWords(at, outer.extent * perWord, row, perWord)) return undefined;

  // 2. Only whole rows may be excluded.
  const mask = maskAlong(copied, inner.axis, c);
  if (mask === undefined) return undefined;
  const [destination, origin] = pointers();
  return [code`@turn_columns(${destination}, ${row * bytes}, ${origin}, ${pitch * bytes}, ${mask}, ${outer.extent});`];
}

/**
 * Two rows already beat a gather for each word: conv1 of ResNet in u8s8, which stores blocks of 6 columns, takes 0.80 ms instead of 1.28, with blocks
 * of 4 columns 0.88 instead of 1.60, and of 2 columns 1.34 instead of 2.62 (Zen 4, g++ 12, 2026-11-24).
 */
const FEWEST_ROWS = 2;

/**
 * The line that replaces two loops that copy rows of words into columns:
 *
 *     for (long k_copy = 0; k_copy < 256; k_copy++) {
 *       for (long j_copy = 0; j_copy < 32; j_copy++) {
 *         y_padded[32 * k_copy + j_copy] = y[256 * j_copy + k_copy];
 *       }
 *     }                                          ->  turn_rows(y_padded, 128, y, 1024, 32, 256);
 *
 * Undefined if the loops do anything else, or exclude elements.
 */
export function turnedRows({
  loops,
  dtype,
  isMasked,
  to,
  from,
  tests,
  pointers,
}: CopyLoops): readonly Code[] | undefined {
  const [loop, inner, ...more] = loops;
  if (!loop || !inner || more.length > 0 || loop.inTurn || isMasked || tests.length > 0) return undefined;
  if (loop.extent < FEWEST || inner.extent < FEWEST_ROWS || bytesOf(dtype) !== WORD_BYTES) return undefined;
  const rows = pitchesOf(to.at, loop, inner);
  const columns = pitchesOf(from.at, loop, inner);
  if (rows?.inner !== 1 || columns?.outer !== 1) return undefined;
  // Each thread transposes its share of the words.
  const isDealt = loop.mode === "parallel";
  const [destination, origin] = pointers([...(isDealt ? [] : [loop.axis]), inner.axis]);
  const pitch = (elements: number): number => elements * WORD_BYTES;
  const begin = code`${loop.extent}L * part / parts`;
  const end = code`${loop.extent}L * (part + 1) / parts`;
  const name = axisName(loop.axis);
  const words = isDealt ? code`${end} - ${name}` : code`${loop.extent}`;
  const turned = code`@turn_rows(${destination}, ${pitch(rows.outer)}, ${origin}, ${pitch(columns.inner)}, ${inner.extent}, ${words});`;
  return isDealt ? [code`{ const long ${name} = ${begin}; ${turned} }`] : [turned];
}

/**
 * Elements between two steps of each loop; undefined if they vary, or if a quotient or remainder mixes in other axes.
 */
function pitchesOf(at: Expr, outer: Loop, inner: Loop): { readonly outer: number; readonly inner: number } | undefined {
  const place = placesIn(at, [outer, inner]);
  if (!place) {
    const terms = affineForm(movedBy(at, [outer.axis, inner.axis]))?.terms;
    return terms && { outer: terms.get(outer.axis) ?? 0, inner: terms.get(inner.axis) ?? 0 };
  }
  const steps = { outer: place(1), inner: place(0, 1) };
  // What holds of a period and its next step holds of all steps: 4096 x 4096 elements are not looked at one by one.
  const looked = 1 + (periodOf(movedBy(at, [outer.axis, inner.axis])) ?? Number.POSITIVE_INFINITY);
  for (let o = 0; o < Math.min(outer.extent, looked); o++)
    for (let i = 0; i < Math.min(inner.extent, looked); i++)
      if (place(o, i) !== o * steps.outer + i * steps.inner) return undefined;
  return steps;
}

/**
 * Packs a tile whose instruction needs words of consecutive elements next to each other, by transposing 16 rows
 * of 16 words in registers.
 *
 *     for (long k_inner = 0; k_inner < 64; k_inner++) {
 *       for (long n_inner = 0; n_inner < 16; n_inner++) {
 *         b_tiles[64 * (k_inner / 4) + 4 * n_inner + k_inner % 4] = y[96 * n_inner + k_inner];
 *       }
 *     }                                          ->  turn_words<1>(b_tiles, y, 96, ~0ull);
 *
 * From plain loops, g++ moves the elements one by one: 0.23 ns each, against 0.02 (Xeon with AMX, g++ 12, 2026-11-22).
 *
 * @returns the line that replaces the two loops over a tile; undefined if they do anything else
 */
export function turnedTile(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, dtype, to, from, pointers } = copied;
  const [loop, inner, ...more] = loops;
  if (!loop || inner?.extent !== WORDS || more.length > 0 || loop.mode === "parallel") return undefined;
  const bytes = bytesOf(dtype);
  if (bytes >= WORD_BYTES || loop.extent * bytes !== WORDS * WORD_BYTES) return undefined;

  // 1. Addresses: element k of row n goes to word k/w of the transposed rows.
  const form = affineForm(from.at);
  const pitch = form?.terms.get(inner.axis);
  if (form?.terms.get(loop.axis) !== 1 || pitch === undefined) return undefined;
  const place = placesIn(to.at, loops);
  if (!place || !liesInWords(place, loop.extent, loop.extent, WORD_BYTES / bytes)) return undefined;

  // 2. The same elements must be excluded in every row.
  const mask = maskAlong(copied, loop.axis, c);
  if (mask === undefined) return undefined;
  const [destination, origin] = pointers();
  return [code`@turn_words<${bytes}>(${destination}, ${origin}, ${pitch * bytes}, ${mask});`];
}

/**
 * Packs rows of a tile whose instruction needs words of elements from neighbouring rows, which lie in memory as rows of sixteen elements.
 *
 *     for (long k_inner = 0; k_inner < 32; k_inner++) {
 *       for (long n_inner = 0; n_inner < 16; n_inner++) {
 *         b_tiles[32 * (k_inner / 2) + 2 * n_inner + k_inner % 2] = b[512 * k_inner + n_inner];
 *       }
 *     }                                          ->  mix_rows<2>(b_tiles, 64, b, 1024, ~0ull, 16);
 *
 * From plain loops g++ moves the elements one by one, in 0.9 to 2.1 cycles each (Xeon with AMX, g++ 13, 2026-11-30). A product of 64 x 1024 x 256
 * whose right factor is packed in each call takes 175 us in bf16 where it was 223, and 89 where it was 137 in u8 by s8 (Zen 4, g++ 12).
 *
 * @returns the line that replaces the two loops; undefined if they do anything else
 */
export function mixedRows(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, dtype, to, from, pointers } = copied;
  const [loop, inner, ...more] = loops;
  if (!loop || inner?.extent !== WORDS || more.length > 0 || loop.mode === "parallel") return undefined;
  const bytes = bytesOf(dtype);
  const perWord = WORD_BYTES / bytes;
  if (bytes >= WORD_BYTES || loop.extent % perWord !== 0) return undefined;

  // 1. Element n of row k goes to word n of every perWord-th row.
  const pitches = pitchesOf(from.at, loop, inner);
  if (pitches?.inner !== 1) return undefined;
  const place = placesIn(to.at, loops);
  if (!place) return undefined;
  const row = loop.extent === perWord ? WORDS * perWord : place(perWord);
  if (row < WORDS * perWord || !liesInWords(place, loop.extent, row, perWord)) return undefined;

  // 2. The same elements must be excluded in every row.
  const mask = maskAlong(copied, inner.axis, c);
  if (mask === undefined) return undefined;
  const [destination, origin] = pointers();
  const rows = loop.extent / perWord;
  return [
    code`@mix_rows<${bytes}>(${destination}, ${row * bytes}, ${origin}, ${pitches.outer * bytes}, ${mask}, ${rows});`,
  ];
}
