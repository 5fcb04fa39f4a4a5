/**
 * @file Tiles in the registers of a warp, in CUDA: fetched from shared memory, multiplied, and stored.
 *
 *     load_4_matrices(a[0][0], a[0][1], a[0][2], a[0][3], &a_ring[a_ring_row + 512 * (k_tile % 3)]);     fetch by ldmatrix
 *     mma_m16n8k16_f32_f16(c[0], a[0], b[0]);                                                             issue
 *     *(Piece<float, 2>*)&out[out_at] = {{c[0][0], c[0][1]}};                                             drain
 *
 * The storage formulas of the instruction's declaration determine which lane holds which element.
 *
 * Stores the elements of a result tile from the lanes that hold them.
 *
 *     *(Piece<float, 2>*)&out[out_at] = {{c[0][0], c[0][1]}};                 neighbouring elements of one lane
 *     exchange_in_quad(words);                                                four lanes exchange words, so that each writes 16 bytes of a row
 */

import { addressOf, type Extents, evaluateIndex, shapeOf, sumOfBits } from "../../abstraction/affine.ts";
import { groupsOf, present, unique, upTo } from "../../abstraction/collections.ts";
import type { Tensor } from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bitsOf, bytesOf, type DType } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  axis,
  type Expr,
  exprsByName,
  number,
  over,
  plus,
  printExpr,
  remainder,
  substitute,
  substituteAccess,
  substituteEach,
  times,
} from "../../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, lanesOf, type Operand, operandOf, WARP } from "../../abstraction/intrinsic.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import type { RegisterAt, RegisterFile, Statement, TileAccess } from "../../abstraction/loop-nest.ts";
import { tileOffset } from "../../abstraction/memory-tile.ts";
import { block, type Code, code, list, Name, NOTHING, spell } from "../../abstraction/source-text.ts";
import { declareRegister } from "../../targets/registers.ts";
import { allOf } from "../c-expressions.ts";
import { guarded } from "../lane-printer.ts";
import { TileRegisters } from "../scheduled-nest.ts";
import { distance, divisorOf, shortIndex, shortTerms, sumOf } from "../short-index.ts";
import type { Named, Of } from "../walk.ts";
import { atPlace, matrixOf, placed } from "./cuda-boxes.ts";
import { type CopyContext, laneWords, vectorAt } from "./cuda-copies.ts";
import { type CudaExpressions, ownAxis } from "./cuda-expressions.ts";
import { sideBySide } from "./cuda-pieces.ts";
import { heldElements, LANE, type Matrices, matricesOf, rowOfLane, WORD } from "./fragment.ts";

/** Lanes that exchange words before storing. */
const QUAD = 4;

/** Elements that a lane may store at once, if it holds neighbours. */
const WIDTHS = [8, 4, 2] as const;

/** An element held by a lane, and its destination. */
interface Held {
  readonly e: number;
  readonly target: Access;
  readonly value: Expr;
  readonly at: Expr;
  /** Conditions of the statement, and of the tensor's ends. */
  readonly conditions: readonly Expr[];
  readonly where: readonly Expr[];
}

/** A register whose elements are stored. */
interface DrainedRegister {
  readonly text: Code;
  readonly intrinsic: Intrinsic;
  readonly operand: Operand;
}

interface Drained extends DrainedRegister {
  /** The name of an element in the equation. */
  readonly element: string;
}

/** Stores each element of this lane. Contiguous neighbours are stored together. */
function printDrain(
  { axes, equation, element, by, part }: Of<"drain">,
  register: DrainedRegister,
  context: CopyContext,
  extents: Extents,
): Code[] {
  const from: Drained = { ...register, element };
  const count = heldElements(from.intrinsic, from.operand).length;
  const columns = from.operand.dims.at(-1)?.extent ?? 1;
  const first = part ? evaluateIndex(part.from, {}) : 0;
  const stored = { from: first, to: first + (part?.extent ?? columns) };
  if (by === "stmatrix") return drainMatrices({ axes, equation }, from, context, extents, stored);
  const exchanged = by === "quads" ? count - (count % (4 * QUAD)) : 0;
  // Blocks of columns lie one behind another in the registers of a lane.
  const held = { from: Math.max(exchanged, (count * stored.from) / columns), to: (count * stored.to) / columns };
  return [
    ...drainQuads({ axes, equation }, from, context, extents, exchanged),
    ...drainHeld({ axes, equation }, from, context, extents, held),
  ];
}

/** Elements or columns that are stored. */
interface Range {
  readonly from: number;
  /** The first that is not stored. */
  readonly to: number;
}

type Drain = Pick<Of<"drain">, "axes" | "equation">;

/** Stores elements as this lane holds them. */
function drainHeld(
  { axes, equation }: Drain,
  from: Drained,
  context: CopyContext,
  extents: Extents,
  range: Range,
): Code[] {
  const { c } = context;
  const all = heldElements(from.intrinsic, from.operand).map((place, e) => ({ place, e }));
  const held = all.slice(range.from, range.to).map(({ place, e }): Held => {
    const known = exprsByName(axes, place);
    const target = substituteAccess(equation.target, known);
    const where = substituteEach(conjunctsOf(equation.where), known);
    const { at, guards } = c.placeOf(target, extents);
    return { e, target, value: substitute(equation.value, known), at, conditions: [...where, ...guards], where };
  });
  const lines: Code[] = [];
  for (let e = 0; e < held.length; ) {
    const width = WIDTHS.find((w) => e % w === 0 && storedTogether(held.slice(e, e + w), w, c, extents)) ?? 1;
    lines.push(...store(held.slice(e, e + width), from, context, extents));
    e += width;
  }
  return lines;
}

/** Whether elements are contiguous, aligned to their number, and either all inside or all outside. */
function storedTogether(held: readonly Held[], width: number, c: CudaExpressions, extents: Extents): boolean {
  const [first, ...others] = held;
  const last = others.at(-1);
  if (!first || !last || held.length !== width) return false;
  const dtype = c.dtypes[first.target.tensor] ?? "f32";
  if (width * bytesOf(dtype) > 16 || divisorOf(first.at, extents) % width !== 0) return false;
  if (!held.every((h, e) => distance(first.at, h.at, extents) === e)) return false;
  // Conditions that differ must each compare an index that is aligned to the width with a bound that is also aligned.
  return first.conditions.every((condition, i) => {
    const lastly = last.conditions[i];
    if (!lastly || first.conditions.length !== last.conditions.length) return false;
    if (printExpr(condition) === printExpr(lastly)) return true;
    if (condition.kind !== "compare" || lastly.kind !== "compare") return false;
    const { op, left, right } = condition;
    const limit = right.kind === "number" && right.value % width === 0 && (op === "<" || op === ">=");
    return limit && divisorOf(left, extents) % width === 0 && distance(left, lastly.left, extents) === width - 1;
  });
}

function store(held: readonly Held[], from: Drained, context: CopyContext, extents: Extents): Code[] {
  const { c } = context;
  const [first] = held;
  if (!first) return [];
  const dtype = c.dtypes[first.target.tensor] ?? "f32";
  const to = c.placeWhere(first.target, first.where, extents);
  const values = held.map((h) => withElement(c, from, h.e, () => c.value(h.value, dtype, extents)));
  const [only] = values;
  const stored =
    held.length === 1 && only
      ? code`${c.memory(first.target, extents)}[${to.at}] = ${only};`
      : code`${vectorAt(context, first.target, dtype, held.length, to.at, extents, true)} = {{${list(values)}}};`;
  return guarded(to.guards, [stored]);
}

/**
 * Words of two results are exchanged among four lanes, so that each lane holds 16 bytes of a row and writes them at
 * once.
 * @param count the number of the lane's elements that are exchanged
 */
function drainQuads(
  { axes, equation }: Drain,
  from: Drained,
  context: CopyContext,
  extents: Extents,
  count: number,
): Code[] {
  if (count === 0) return [];
  const { c } = context;
  const { intrinsic, operand } = from;
  const held = heldElements(intrinsic, operand);
  const dtype = c.dtypes[equation.target.tensor] ?? "f16";
  const result = (e: number): Code => {
    const value = substitute(equation.value, exprsByName(axes, held[e] ?? []));
    return withElement(c, from, e, () => c.value(value, dtype, extents));
  };
  const besides = besideSums(equation, from, c);
  const groups: { readonly first: number; readonly to: { readonly at: Code; readonly guards: readonly Code[] } }[] = [];
  // Element 4*block + 2*half + i of a lane is column 8*block + 2*(lane%4) + i, in one of two rows.
  for (let block = 0; 4 * block < count; block += QUAD)
    for (const half of [0, 1]) {
      const [row = number(0), column = number(0)] = held[4 * block + 2 * half] ?? [];
      const quadLane = remainder(axis(LANE), QUAD);
      const places = exprsByName(axes, [
        row,
        shortIndex(plus(column, times(6, quadLane)), { [LANE]: lanesOf(intrinsic) }),
      ]);
      const index = substituteEach(equation.target.index, places);
      const where = substituteEach(conjunctsOf(equation.where), places);
      groups.push({ first: 4 * block + 2 * half, to: c.placeWhere({ ...equation.target, index }, where, extents) });
    }
  context.aligned(equation.target.tensor, QUAD * WORD);
  for (const { tensor } of besides) context.aligned(tensor, QUAD * WORD);
  const stores = groups.map(({ first, to }, group): Code[] => {
    const own = besides.map(({ words, ...input }) => ({ ...input, words: code`${words}[${group % AT_ONCE}]` }));
    const words = upTo(QUAD).map((j) => {
      const e = first + 4 * j;
      const word = [0, 1].map((i) => withBeside(c, own, j, i, () => result(e + i)));
      const [low, high] = word.map((half = NOTHING) => (dtype === "s16" ? code`(uint16_t)(${half})` : half));
      return code`(unsigned)${low ?? NOTHING} | (unsigned)${high ?? NOTHING} << 16`;
    });
    const stored = code`*(@Piece<unsigned, 4>*)&${c.tensor(equation.target.tensor)}[${to.at}] = {{words[0], words[1], words[2], words[3]}};`;
    return block(code`{`, [
      ...own.map(({ words }) => code`@exchange_in_quad(${words});`),
      code`unsigned words[4] = {${list(words)}};`,
      code`@exchange_in_quad(words);`,
      ...guarded(to.guards, [stored]),
    ]);
  });
  if (besides.length === 0) return stores.flat();
  const batches = upTo(Math.ceil(groups.length / AT_ONCE)).map((i) => i * AT_ONCE);
  return batches.flatMap((begin) => {
    const loads = besides.flatMap(({ tensor, words }) => [
      code`unsigned ${words}[${Math.min(AT_ONCE, groups.length - begin)}][4] = {};`,
      ...groups
        .slice(begin, begin + AT_ONCE)
        .flatMap(({ to }, i) =>
          guarded(to.guards, [
            code`@take_words(${words}[${i}], *(const @Piece<unsigned, 4>*)&${c.tensor(tensor)}[${to.at}]);`,
          ]),
        ),
    ]);
    return block(code`{`, [...loads, ...stores.slice(begin, begin + AT_ONCE).flat()]);
  });
}

/** Matrices of 8 x 8 results that a warp stores to shared memory at once, two for each block of eight columns. */
const MATRICES = 4;
/** Columns for each word of a lane: two rows of eight columns are two words. */
const WORD_COLUMNS = 4;

/** Sixteen rows of each warp, eight columns a matrix: each lane gives a pair of every matrix, and names a row of one. */
function drainMatrices(
  { axes, equation }: Drain,
  from: Drained,
  context: CopyContext,
  extents: Extents,
  columns: Range,
): Code[] {
  const { c } = context;
  const held = heldElements(from.intrinsic, from.operand);
  const { target, value } = equation;
  const dtype = c.dtypes[target.tensor] ?? "f16";
  const bits = (e: number): Code => {
    const result = withElement(c, from, e, () =>
      c.value(substitute(value, exprsByName(axes, held[e] ?? [])), dtype, extents),
    );
    return code`(unsigned)${dtype === "s16" ? code`(uint16_t)(${result})` : result}`;
  };
  const inColumns = upTo(held.length / 2).slice(columns.from / WORD_COLUMNS, columns.to / WORD_COLUMNS);
  const words = inColumns.map((w) => code`${bits(2 * w)} | ${bits(2 * w + 1)} << 16`);
  const inWarp = remainder(axis(LANE), WARP);
  const row = plus(times(ROWS_OF_WARP, over(axis(LANE), WARP)), remainder(inWarp, ROWS_OF_WARP));
  return upTo(Math.ceil(words.length / MATRICES)).map((group) => {
    const given = words.slice(MATRICES * group, MATRICES * (group + 1));
    const column = plus(times(8, over(inWarp, ROWS_OF_WARP)), columns.from + WORD_COLUMNS * MATRICES * group);
    const within = exprsByName(
      axes,
      [row, column].map((e) => shortIndex(e, extents)),
    );
    const to = substituteAccess(target, within);
    const place = code`&${c.tensor(target.tensor)}[${c.place(to, extents, "row").at}]`;
    return code`@store_${given.length}_matrices(${list([place, ...given])});`;
  });
}

/** Rows of a warp's part of a warpgroup's sums (PTX ISA, wgmma). */
const ROWS_OF_WARP = 16;

/** Groups of 16 bytes of another input that a lane has in flight. With twice as many, tiles of 128 sums a lane spilled (sm_90a). */
const AT_ONCE = 4;

/** An input that the epilogue reads at the place of the result. */
interface BesideSum {
  readonly tensor: string;
  readonly dtype: DType;
  /** The array that holds its words. */
  readonly words: Code;
}

/**
 * The inputs of 2 bytes that the epilogue reads where it stores, such as the residual of a block. A lane loads them as it stores results, 16 bytes at
 * once and before the first store, and lanes exchange words. Loaded one by one beside each result, they waited for memory once a row: on an
 * H100 last convolutions of ResNet-50's blocks took 34.1 and 12.6 us, and take 30.8 and 10.8 so with the same schedules (2026-11-24).
 */
function besideSums({ target, value }: Drain["equation"], { element }: Drained, c: CudaExpressions): BesideSum[] {
  const output = c.tensorNamed(target.tensor);
  if (!output) return [];
  const lies = (tensor: Tensor, index: readonly Expr[]): string =>
    [...shapeOf(tensor), printExpr(addressOf(tensor, index))].join();
  const read = accessesIn(value).filter(({ tensor }) => tensor !== element);
  return read.flatMap(({ tensor: name, index }, i) => {
    const tensor = c.tensorNamed(name);
    const isAlone = read.every((other, j) => j === i || other.tensor !== name);
    const fits = tensor && isAlone && bytesOf(tensor.dtype) === 2 && lies(tensor, index) === lies(output, target.index);
    return fits ? [{ tensor: name, dtype: tensor.dtype, words: code`beside_${i}` }] : [];
  });
}

/** Prints with one half of word `j` of each input that is held in words. */
function withBeside(c: CudaExpressions, held: readonly BesideSum[], j: number, half: number, print: () => Code): Code {
  c.heldBeside = ({ tensor }) => {
    const found = held.find((input) => input.tensor === tensor);
    if (!found) return undefined;
    const { dtype, words } = found;
    return code`(${C_TYPES[dtype]})${half === 0 ? code`${words}[${j}]` : code`(${words}[${j}] >> 16)`}`;
  };
  try {
    return print();
  } finally {
    c.heldBeside = () => undefined;
  }
}

function withElement<T>(c: CudaExpressions, from: Drained, e: number, print: () => T): T {
  c.atHand = ({ tensor }) => (tensor === from.element ? elementOf(from, e) : undefined);
  try {
    return print();
  } finally {
    c.atHand = () => undefined;
  }
}

/** An element of a lane's registers. Floats of 8 and 16 bits are held as their bits. */
function elementOf({ text, operand }: Drained, e: number): Code {
  const inWord = WORD / bytesOf(operand.dtype);
  if (inWord === 1) return code`${text}[${e}]`;
  const shift = bitsOf(operand.dtype) * (e % inWord);
  const word = code`${text}[${Math.floor(e / inWord)}]`;
  return code`(${C_TYPES[operand.dtype]})${shift === 0 ? word : code`(${word} >> ${shift})`}`;
}

/** Counts the elements of a row that `ldmatrix` loads. */
const COLUMN = ownAxis("column");

export abstract class CudaTiles extends TileRegisters {
  protected abstract readonly context: CopyContext;
  /** Registers that are no arrays: the variable of each element. */
  private readonly values = new Map<string, readonly Name[]>();

  declarations({ registers }: Named): Code[] {
    const ofValues = filesOf(this.nest.body, (s) => (s.kind === "accumulate" ? s.scales : []));
    return this.nest.registers
      .filter((file) => registers.has(file.name) && !ofValues.has(file.name))
      .map((file) => {
        const { intrinsic, operand, count } = file;
        return declareRegister(intrinsic, operandOf(intrinsic, operand), code`${nameOf(file)}[${count}]`);
      });
  }

  // ---- leaves of the walk -----------------------------------------------------------------------------------------------------

  issue(statement: Of<"register-issue">, extents: Extents): Code[] {
    const { intrinsic, tiles = {} } = statement;
    const matrices = Object.entries(tiles).map(
      ([o, tile]) =>
        [o, matrixOf(this.context.c, this.nest, intrinsic, operandOf(intrinsic, o), tile, extents)] as const,
    );
    return this.issued(statement, Object.fromEntries(matrices));
  }

  /**
   * Marks the sums of an asynchronous instruction as read-write after its wait, so that no read of them moves before
   * it.
   */
  arrived({ asynchronous, name, operands: [sums] }: Intrinsic): Code[] {
    const issued = filesOf(this.nest.body, (s) =>
      s.kind === "register-issue" && sums ? [s.registers[sums.name]] : [],
    );
    return this.nest.registers
      .filter((file) => file.intrinsic.name === name && file.operand === sums?.name && issued.has(file.name))
      .flatMap((file) =>
        upTo(file.count).map((i) =>
          asynchronous ? fillTemplate(asynchronous.arrived, { reg: code`${nameOf(file)}[${i}]` }) : code``,
        ),
      );
  }

  /** Loads or stores a tile of flat memory with the operand's own instruction. */
  move({ kind, register, memory }: Of<"load" | "store">, extents: Extents): Code[] {
    const { c } = this.context;
    const at = c.hoist(shortIndex(memory.base, extents), `${memory.buffer}_at`);
    const pointer = code`&${c.tensor(memory.buffer)}[${c.index(at, extents)}]`;
    return [this.moved(kind, register, pointer, memory.stride)];
  }

  fetch({ register, tile }: Of<"fetch">, extents: Extents): Code[] {
    const { intrinsic, operand } = this.heldAt(register);
    const { by } = tile;
    const registers = upTo(tile.several?.count ?? 1).map((i) => ({
      register: { ...register, index: shortIndex(plus(register.index, i), {}) },
      // The next tile along a dimension.
      from: operand.dims.map((d, at) => (at === tile.several?.along ? i * d.extent : 0)),
    }));
    switch (by) {
      case "elements":
        if (tile.made && operand.dtype === "f32") return this.readValues(tile.made, tile.axes, register, extents);
        return tile.made || tile.several
          ? this.fetchRuns(intrinsic, operand, registers, tile, extents)
          : registers.flatMap((r) => this.fetchElements(intrinsic, operand, r, tile, extents));
      case "ldmatrix":
      case "ldmatrix.trans":
        return this.fetchMatrices(matricesOf(intrinsic, operand, by === "ldmatrix.trans"), registers, tile, extents);
      case "instruction":
        return registers.map(({ register: r, from }) => {
          const { pointer, stride } = this.rowsOf(operand, operand.load, { ...tile, from }, extents);
          return this.moved("load", r, pointer, stride);
        });
      default:
        return by satisfies never;
    }
  }

  drain(statement: Of<"drain">, extents: Extents): Code[] {
    const { register, axes, equation, element, by } = statement;
    const { intrinsic, operand } = this.heldAt(register);
    if (equation.op !== "=") internal("a drain assigns");
    if (by !== "instruction")
      return printDrain(statement, { intrinsic, operand, text: this.register(register) }, this.context, extents);
    if (equation.value.kind !== "access" || equation.value.tensor !== element || equation.where)
      internal(`${intrinsic.name} stores its sums as they are, not ${printExpr(equation.value)}`);
    const tile = { axes, access: equation.target, from: operand.dims.map(() => 0) };
    const { pointer, stride } = this.rowsOf(operand, operand.store, tile, extents);
    return [this.moved("store", register, pointer, stride)];
  }

  /**
   * What the sums are multiplied by was read before the products were issued. Nothing may be calculated of it before they have ended: a
   * multiplication that waits for memory ahead of an issue keeps the Tensor Cores waiting.
   */
  accumulate({ register, scales, into }: Of<"accumulate">): Code[] {
    const { intrinsic, operand } = this.heldAt(register);
    if (operand.dtype !== "f32")
      internal(`${operand.name} of ${intrinsic.name} is ${operand.dtype}: only f32 is scaled`);
    const [sums, added] = [this.register(into), this.register(register)];
    const read = scales.map((of) => this.values.get(keyOf(of)) ?? internal(`${of.file} holds no values`));
    const lines = heldElements(intrinsic, operand).map((_, e) => {
      const by = read.map((values) => code`${values[e] ?? NOTHING}`).reduce((left, right) => code`${left} * ${right}`);
      return code`${sums}[${e}] += ${added}[${e}] * (${by});`;
    });
    return [...unique(read.flat()).map((name) => code`@use_behind(${name}, ${added}[0]);`), ...lines];
  }

  // ---- fetches ----------------------------------------------------------------------------------------------------------------

  private fetchElements(
    intrinsic: Intrinsic,
    operand: Operand,
    { register, from }: Fetched,
    tile: TileAccess,
    extents: Extents,
  ): Code[] {
    const { c } = this.context;
    const text = this.register(register);
    const size = bytesOf(operand.dtype);
    const inWord = WORD / size;
    if (!Number.isInteger(inWord)) internal(`lanes hold ${operand.dtype} in no registers of 32 bits`);
    const held = heldElements(intrinsic, operand);
    return upTo(held.length / inWord).map((w) => {
      const own = held.slice(w * inWord, (w + 1) * inWord);
      const accesses = own.map((place) => atPlace(tile, place, from));
      const places = accesses.map((a) => c.offsetOf(a, extents));
      const first = places[0] ?? number(0);
      const firstAccess = accesses[0] ?? tile.access;
      const memory = c.tensor(tile.access.tensor);
      const single = (a: Access): Code => code`${memory}[${c.place(a, extents).at}]`;
      const tests = own.map((place) =>
        c.tests(conjunctsOf(tile.where && placed(tile.where, tile.axes, place, from)), extents),
      );
      const tested = (e: number, value: Code): Code => {
        const all = tests[e] ?? [];
        return all.length > 0 ? code`(${allOf(all)} ? ${value} : 0)` : value;
      };
      if (operand.dtype === "f32" || operand.dtype === "s32")
        return code`${text}[${w}] = ${tested(0, single(firstAccess))};`;
      const together =
        tests.every((all) => all.length === 0) &&
        divisorOf(first, extents) % inWord === 0 &&
        places.every((at, e) => distance(first, at, extents) === e);
      const word = code`*(const unsigned*)&${single(firstAccess)}`;
      if (together || inWord === 1) return code`${text}[${w}] = ${tested(0, word)};`;
      // Little-endian.
      const parts = accesses.map((a, e) => {
        const bits = tested(e, code`(unsigned)(${size === 1 ? "uint8_t" : "uint16_t"})${single(a)}`);
        return e === 0 ? bits : code`${bits} << ${8 * size * e}`;
      });
      return code`${text}[${w}] = ${parts.reduce((all, part) => code`${all} | ${part}`)};`;
    });
  }

  /** Calculates the elements that a lane holds, each value once: a variable for those that several elements share. */
  private readValues(made: Expr, axes: readonly string[], register: RegisterAt, extents: Extents): Code[] {
    const { c } = this.context;
    const { intrinsic, operand } = this.heldAt(register);
    const named = new Map<string, { readonly name: Name; readonly value: Code }>();
    const names = heldElements(intrinsic, operand).map((place): Name => {
      const value = c.value(substitute(made, exprsByName(axes, place)), "f32", extents);
      const text = spell(value, "cuda");
      const key = `${keyOf(register)} ${named.size}`;
      const known = named.get(text) ?? {
        name: new Name("local", `scale_${this.values.size + named.size}`, key),
        value,
      };
      named.set(text, known);
      return known.name;
    });
    this.values.set(keyOf(register), names);
    return [...named.values()].map(({ name, value }) => code`float ${name} = ${value};`);
  }

  /** Fetches the elements that a lane holds of each row of a tile, or of tiles one behind another, as runs. */
  private fetchRuns(
    intrinsic: Intrinsic,
    operand: Operand,
    registers: readonly Fetched[],
    tile: TileAccess,
    extents: Extents,
  ): Code[] {
    const held = heldElements(intrinsic, operand);
    const inWord = WORD / bytesOf(operand.dtype);
    const words = registers.flatMap(({ register, from }) =>
      upTo(held.length / inWord).map((w) => ({
        text: code`${this.register(register)}[${w}]`,
        places: held.slice(w * inWord, (w + 1) * inWord).map((place) => place.map((e, d) => plus(e, from[d] ?? 0))),
      })),
    );
    const [[one = [], next = []] = []] = words.map(({ places }) => places);
    const along = one.findIndex((e, d) => distance(e, next[d] ?? e, extents) !== 0);
    const rows = groupsOf(words, ({ places: [place = []] }) =>
      printExpr(place.filter((_, d) => d !== along).reduce(plus)),
    );
    return [...rows.values()].flatMap((row) => {
      const places = row.flatMap((word) => word.places);
      const [first = []] = places;
      const steps = places.map((place) => distance(first[along] ?? number(0), place[along] ?? number(0), extents) ?? 0);
      const valueAt = (element: Expr): Expr => {
        const moved = sumOfBits(steps, element) ?? internal(`${operand.name}: lanes hold no regular runs`);
        const known = new Map(
          tile.axes.map((a, d) => [a, d === along ? plus(first[d] ?? 0, moved) : (first[d] ?? number(0))]),
        );
        return substitute(tile.made ?? tile.access, known);
      };
      return laneWords(
        row.map(({ text }) => text),
        operand.dtype,
        valueAt,
        this.context,
        extents,
      );
    });
  }

  private fetchMatrices(matrices: Matrices, registers: readonly Fetched[], tile: TileAccess, extents: Extents): Code[] {
    const all = registers.flatMap(({ register, from }) =>
      matrices.origins.map((origin, w) => ({
        word: code`${this.register(register)}[${w}]`,
        origin: origin.map((at, d) => at + (from[d] ?? 0)),
      })),
    );
    const form = tile.by === "ldmatrix" ? "" : "_transposed";
    const lines: Code[] = [];
    for (let first = 0; first < all.length; ) {
      const [count, row] = largestLoad(
        matrices,
        all.slice(first, first + 4).map((w) => w.origin),
      );
      const group = all.slice(first, first + count);
      const address = this.rowAddress(matrices, row, tile, extents);
      const words = list(group.map((w) => w.word));
      lines.push(code`@load_${count}_matri${count === 1 ? "x" : "ces"}${form}(${words}, ${address});`);
      first += count;
    }
    return lines;
  }

  /** The address of this lane's row. @throws Error unless its bytes are contiguous and aligned to 16 */
  private rowAddress(matrices: Matrices, row: readonly Expr[], tile: TileAccess, extents: Extents): Code {
    const { c } = this.context;
    const from = row.map(() => 0);
    const moved = row.map((e, d) => (d === matrices.along ? plus(e, axis(COLUMN)) : e));
    const within = { ...extents, [COLUMN]: matrices.columns };
    if (!sideBySide(c, atPlace(tile, moved, from), COLUMN, matrices.columns, within))
      internal(`${tile.access.tensor}: ${tile.by} wants rows of 16 bytes, at multiples of 16`);
    return code`&${c.tensor(tile.access.tensor)}[${c.place(atPlace(tile, row, from), extents, "row").at}]`;
  }

  // ---- the instruction's own moves ---------------------------------------------------------------------------------------------

  /**
   * The address of a tile, and its row pitch. @throws Error if the layout is not the one that the instruction requires
   */
  private rowsOf(
    operand: Operand,
    template: string | undefined,
    { axes, access, from }: Pick<TileAccess, "axes" | "access"> & { readonly from: readonly number[] },
    extents: Extents,
  ): { readonly pointer: Code; readonly stride: number } {
    const { c } = this.context;
    const within = { ...extents, ...Object.fromEntries(axes.map((a, d) => [a, operand.dims[d]?.extent ?? 1])) };
    const moved = axes.map((a, d) => plus(axis(a), from[d] ?? 0));
    const inTile = (e: Expr): boolean => axesIn(e).some((a) => axes.includes(a));
    const terms = shortTerms(
      c.placeOf(
        atPlace(
          { axes, access },
          moved,
          axes.map(() => 0),
        ),
        within,
      ).at,
      within,
    );
    const own = sumOf(terms.filter((t) => inTile(t.of)));
    const strided = template?.includes("{stride}") === true;
    // The tile is stored by rows, or by columns.
    const [outer = "", inner = ""] = operand.layout === "column" ? [...axes].reverse() : axes;
    const stride = strided ? (terms.find((t) => t.of.kind === "axis" && t.of.name === outer)?.factor ?? 0) : 0;
    const names = new Map(operand.dims.map((d, i) => [d.name, axis(axes[i] ?? "")]));
    const wanted = strided
      ? plus(times(stride, axis(outer)), axis(inner))
      : substitute(tileOffset(operand), names, "index");
    if (distance(wanted, own, within) !== 0)
      internal(`a tile of ${operand.name} lies at ${printExpr(own, "formula")} of ${access.tensor}`);
    const first = atPlace(
      { axes, access },
      from.map(number),
      from.map(() => 0),
    );
    return { pointer: code`&${c.tensor(access.tensor)}[${c.place(first, extents).at}]`, stride };
  }

  // ---- registers --------------------------------------------------------------------------------------------------------------

  /** `c[3]`. An index that is not constant would move the registers to local memory. */
  protected override register(at: RegisterAt): Code {
    const file = this.fileOf(at);
    const index = shortIndex(at.index, {});
    if (index.kind !== "number" || index.value < 0 || index.value >= file.count)
      internal(`register ${printExpr(at.index)} of ${file.count} is not known while printing`);
    return code`${nameOf(file)}[${index.value}]`;
  }
}

/** The files of registers that statements at any depth take. */
function filesOf(
  statements: readonly Statement[],
  taken: (s: Statement) => readonly (RegisterAt | undefined)[],
): ReadonlySet<string> {
  const files = statements.flatMap((s): readonly string[] => {
    const inner = s.kind === "loop" ? s.body : s.kind === "when" ? [...s.body, ...s.otherwise] : [];
    return [...present(taken(s)).map(({ file }) => file), ...filesOf(inner, taken)];
  });
  return new Set(files);
}

/** Distinguishes registers. Their numbers are known while printing. */
const keyOf = ({ file, index }: RegisterAt): string => `${file} ${printExpr(shortIndex(index, {}))}`;

const nameOf = (file: RegisterFile): Name => new Name("register", file.name);

/** A register to load, and the origin of its tile. */
interface Fetched {
  readonly register: RegisterAt;
  readonly from: readonly number[];
}

/** Four, two or one matrices, as many as form a rectangle, and the row that each lane supplies. */
function largestLoad(
  matrices: Matrices,
  origins: readonly (readonly number[])[],
): [count: number, row: readonly Expr[]] {
  for (const count of [4, 2, 1]) {
    const row = origins.length >= count ? rowOfLane(matrices, origins.slice(0, count)) : undefined;
    if (row) return [count, row];
  }
  internal("a tile without matrices");
}
