/**
 * @file Copies of a nest in CUDA: pieces that the threads of a block or a warp share, moved by vector accesses,
 * asynchronously, or element by element.
 *
 *     copy m_in 128, k_in 64 by 8, async, by block     ->     copy_async<16>(&a_ring[a_ring_to], &x[x_from + 64 * k_tile]);
 *                                                             copy_async<16>(&a_ring[a_ring_to + 1024], &x[x_from + 64 * k_tile + 16384]);
 *
 * Thread t moves pieces t, t + threads, ... A few pieces are unrolled; more become a loop, for as long as all threads
 * have a piece.
 */

import { affineForm, boundsOf, type Extents } from "../../abstraction/affine.ts";
import { present, upTo } from "../../abstraction/collections.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  axis,
  type Expr,
  identityOf,
  minus,
  number,
  over,
  plus,
  printAccess,
  printExpr,
  remainder,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import { type Copy, type Group, MOST_WRITTEN_OUT } from "../../abstraction/loop-nest.ts";
import {
  block,
  type Code,
  code,
  indented,
  keyOf,
  type Name,
  NOTHING,
  tensorName,
} from "../../abstraction/source-text.ts";
import { typeOf as typeOfValue } from "../../abstraction/typing.ts";
import { allOf, type CExpressions } from "../c-expressions.ts";
import { guarded } from "../lane-printer.ts";
import { distance, divisorOf } from "../short-index.ts";
import { type CudaExpressions, ownAxis } from "./cuda-expressions.ts";
import { Halves, type LoadedAt } from "./cuda-halves.ts";
import { holdsTogether, insideTogether, requireTogether, sideBySide, stepped, steppedAccess } from "./cuda-pieces.ts";

/** The most bytes that one access of a thread moves. */
const MOST_BYTES = 16;

/** Bytes of a word, and the unsigned types of words. */
const WORD = 4;
const WORDS = { 2: "u16", 4: "u32" } as const;

/** The most pieces of a loop that compilers unroll, so that their loads overlap. */
const UNROLLED = 4;

/** The number of a piece, and of an element in the piece. */
const PIECE = ownAxis("piece");
const ELEMENT = ownAxis("element");

/** Called for every vector access to a tensor, which must be aligned to this many bytes. */
export type Aligned = (tensor: string, bytes: number) => void;

/** The parts of a kernel that its copies depend on. */
export interface CopyContext {
  readonly c: CudaExpressions;
  /** The axis that counts the threads of a group, and their number. */
  readonly threadsOf: (group: Group) => { readonly axis: string; readonly count: number };
  readonly aligned: Aligned;
}

/** A copy whose axes are expressed by the numbers of a piece and an element. */
interface Pieces {
  readonly copy: Copy;
  readonly target: Access;
  readonly value: Expr;
  /** Conditions for an element to be written. */
  readonly where: readonly Expr[];
  readonly count: number;
}

export function printCopy(copy: Copy, context: CopyContext, around: Extents): Code[] {
  const { c, threadsOf } = context;
  const outside = conjunctsOf(copy.when).reduce(narrowed, around);
  const pieces = piecesOf(copy);
  const threads = threadsOf(copy.group);
  const self = axis(threads.axis);
  checkTogether(c, pieces, outside);
  const one = (piece: Expr, extents: Extents): Code[] => printPiece(at(pieces, piece), context, extents);
  const within = { ...outside, [ELEMENT]: copy.width };

  const { count } = pieces;
  const whole = Math.floor(count / threads.count);
  const rest = count % threads.count;
  const lines: Code[] = [];
  const turn = (i: Expr): Expr => plus(self, times(threads.count, i));
  if (whole + (rest > 0 ? 1 : 0) > MOST_WRITTEN_OUT) {
    const name = c.axis(PIECE);
    lines.push(
      code`#pragma unroll ${UNROLLED}`,
      ...block(
        code`for (${c.indexType} ${name} = 0; ${name} < ${whole}; ${name}++) {`,
        one(turn(axis(PIECE)), { ...within, [PIECE]: whole }),
      ),
    );
  } else for (let i = 0; i < whole; i++) lines.push(...one(turn(number(i)), within));
  if (rest > 0) {
    const last = one(turn(number(whole)), { ...within, [threads.axis]: rest });
    lines.push(...guarded([code`${c.axis(threads.axis)} < ${rest}`], last, last.length > 1));
  }
  return guarded(copy.when ? [c.condition(copy.when, around)] : [], lines, copy.when !== undefined);
}

/** `k_tile + 2 < 64` bounds k_tile by 62. */
function narrowed(extents: Extents, condition: Expr): Extents {
  if (condition.kind !== "compare" || condition.op !== "<") return extents;
  const form = affineForm(minus(condition.left, condition.right));
  const [[name, factor] = ["", 0]] = form?.terms ?? [];
  const extent = extents[name];
  if (form?.terms.size !== 1 || factor !== 1 || extent === undefined) return extents;
  return { ...extents, [name]: Math.max(1, Math.min(extent, -form.constant)) };
}

/** Pieces are numbered row-major over the axes. Each has `width` elements along the last axis. */
function piecesOf(copy: Copy): Pieces {
  const { axes, width, equation } = copy;
  if (equation.op !== "=") internal("a copy assigns");
  const counts = axes.map((a, i) => (i === axes.length - 1 ? a.extent / width : a.extent));
  const digits = new Map<string, Expr>();
  let below = 1;
  for (const [i, { name }] of [...axes.entries()].reverse()) {
    const quotient = over(axis(PIECE), below);
    const digit = i === 0 ? quotient : remainder(quotient, counts[i] ?? 1);
    digits.set(name, i < axes.length - 1 ? digit : plus(times(width, digit), axis(ELEMENT)));
    below *= counts[i] ?? 1;
  }
  if (!Number.isInteger(below)) internal(`pieces of ${width} do not divide ${axes.at(-1)?.extent}`);
  const { target, value, where } = equation;
  return substituted({ copy, target, value, where: conjunctsOf(where), count: below }, digits);
}

const at = (pieces: Pieces, piece: Expr): Pieces => substituted(pieces, new Map([[PIECE, piece]]));

function substituted(pieces: Pieces, known: ReadonlyMap<string, Expr>): Pieces {
  const index = (e: Expr): Expr => substitute(e, known, "index");
  const target = { ...pieces.target, index: pieces.target.index.map(index) };
  return { ...pieces, target, value: substitute(pieces.value, known), where: pieces.where.map(index) };
}

/** A value under conditions, and the alternative. */
interface Chosen {
  readonly conditions: readonly Expr[];
  readonly value: Expr;
  /** Undefined without conditions. */
  readonly otherwise: Expr | undefined;
}

function chosenOf(value: Expr): Chosen {
  if (value.kind !== "select") return { conditions: [], value, otherwise: undefined };
  const { condition, whenTrue, whenFalse } = value;
  const inner = chosenOf(whenTrue);
  const same = inner.otherwise === undefined || printExpr(inner.otherwise) === printExpr(whenFalse);
  if (!same) return { conditions: conjunctsOf(condition), value: whenTrue, otherwise: whenFalse };
  return { conditions: [...conjunctsOf(condition), ...inner.conditions], value: inner.value, otherwise: whenFalse };
}

/** Elements side by side that a piece reads. */
interface Run {
  readonly first: Access;
  readonly count: number;
  /** For each element of the piece, the one that it reads. */
  readonly at: readonly number[];
  readonly accesses: readonly Access[];
}

/** The accesses that depend on the element's number. */
function movingIn(value: Expr): Access[] {
  const moving = accessesIn(value).filter((a) => a.index.some((e) => axesIn(e).includes(ELEMENT)));
  return [...new Map(moving.map((a) => [printAccess(a), a])).values()];
}

/**
 * Those of these accesses that can be made as one vector access. Several elements of a piece may read the same:
 * `w[n,k/2]` for eight k is four elements.
 */
function runsIn({ c }: CopyContext, value: Expr, width: number, extents: Extents): Run[] {
  return movingIn(value).flatMap((access): Run[] => {
    const accesses = upTo(width).map((e) => steppedAccess(access, ELEMENT, e));
    const [first] = accesses;
    if (!first || !insideTogether(c, access, ELEMENT, width, extents)) return [];
    const from = c.offsetOf(first, extents);
    const at = present(accesses.map((a) => distance(from, c.offsetOf(a, extents), extents)));
    const count = Math.max(...at) + 1;
    const isOne =
      at.length === width &&
      Math.min(...at) === 0 &&
      Number.isInteger(Math.log2(count)) &&
      count <= width &&
      divisorOf(from, extents) % count === 0;
    return isOne ? [{ first, count, at, accesses }] : [];
  });
}

/** Proves, for all pieces together, that vector accesses are legal. */
function checkTogether(c: CudaExpressions, pieces: Pieces, outside: Extents): void {
  const { copy, target, value, where } = pieces;
  const { width, transfer } = copy;
  if (width === 1 && transfer === "plain") return;
  const extents = { ...outside, [PIECE]: pieces.count, [ELEMENT]: width };
  requireTogether(c, target, ELEMENT, width, extents);
  const { conditions, value: read } = chosenOf(value);
  if (read.kind === "access" && !copy.gathered) requireTogether(c, read, ELEMENT, width, extents);
  const asked = [...where, ...(transfer === "async" || read.kind === "access" ? conditions : [])];
  const apart = asked.find((e) => !holdsTogether(e, ELEMENT, width, extents));
  if (apart) internal(`${printExpr(apart)} parts ${width} elements that are to move at once`);
}

/** @param extents of the enclosing loops, and of the elements of a piece */
function printPiece(pieces: Pieces, context: CopyContext, extents: Extents): Code[] {
  const { c } = context;
  const { copy, value } = pieces;
  const { conditions, value: read, otherwise } = chosenOf(stepped(value, ELEMENT, 0));
  const to = c.placeWhere(
    steppedAccess(pieces.target, ELEMENT, 0),
    pieces.where.map((e) => stepped(e, ELEMENT, 0)),
    extents,
  );
  const dtype = typeOf(c, pieces.target);
  if (read.kind === "access" && !copy.gathered && (copy.width > 1 || copy.transfer === "async")) {
    const from = c.place(read, extents, "from");
    const tested = c.untested(conditions, extents, c.guardsOf(read, extents)).map((e) => c.condition(e, extents));
    const inside = [...tested, ...from.guards];
    const same = typeOf(c, read) === dtype;
    if (copy.transfer === "async") {
      const zero = (e: Expr | undefined): boolean => e === undefined || (e.kind === "number" && e.value === 0);
      const identity = from.guards.length === 0 ? 0 : identityOf(c.computation.equation.op, dtype);
      if (!same || !zero(otherwise) || identity !== 0 || to.guards.length > 0)
        internal(`an asynchronous copy moves elements, or fills with zeros: ${printAccess(read)}`);
      return asyncPiece(pieces, read, to.at, from.at, inside, context);
    }
    const fills = distinct(
      present([
        from.guards.length > 0 && c.outside(read.tensor, dtype),
        conditions.length > 0 && inside.length > 0 && otherwise && c.value(otherwise, dtype, extents),
      ]),
    );
    if (same && fills.length <= 1) {
      const piece = pieceType(dtype, copy.width);
      const loaded = vectorAt(context, read, dtype, copy.width, from.at, extents);
      const [fill] = fills;
      const chosen = fill === undefined ? loaded : code`${allOf(inside)} ? ${loaded} : @filled<${piece}>(${fill})`;
      return guarded(to.guards, [
        code`${vectorAt(context, pieces.target, dtype, copy.width, to.at, extents, true)} = ${chosen};`,
      ]);
    }
  }
  if (movesOneOfSeveral(pieces, context, extents)) {
    const first = stepped(value, ELEMENT, 0);
    if (copy.transfer === "async") return guarded(to.guards, asyncChoice(pieces, first, to.at, [], context, extents));
    const piece = vectorAt(context, pieces.target, dtype, copy.width, to.at, extents, true);
    return guarded(to.guards, [code`${piece} = ${choiceOf(pieces, first, context, extents)};`]);
  }
  if (copy.transfer === "async") internal(`an asynchronous copy cannot compute ${printExpr(value)}`);
  return computedPiece(pieces, context, to, extents);
}

function asyncPiece(
  { copy, target, ...pieces }: Pieces,
  read: Access,
  to: Code,
  from: Code,
  inside: readonly Code[],
  context: CopyContext,
): Code[] {
  const bytes = copy.width * bytesOf(typeOf(context.c, target));
  if (bytes !== 4 && bytes !== 8 && bytes !== 16)
    internal(`${bytes} bytes at once of ${pieces.count} pieces: cp.async moves 4, 8 or 16`);
  context.aligned(read.tensor, bytes);
  const shared = context.c.tensor(target.tensor);
  const source = context.c.tensor(read.tensor);
  if (inside.length === 0) return [code`@copy_async<${bytes}>(&${shared}[${to}], &${source}[${from}]);`];
  return [code`@copy_async_where<${bytes}>(${allOf(inside)}, &${shared}[${to}], ${source}, ${from});`];
}

/**
 * Whether each piece as a whole is read from one of several tensors, or is a constant. The choice must be the same for
 * all of its elements.
 */
function movesOneOfSeveral({ copy, target, value }: Pieces, { c }: CopyContext, extents: Extents): boolean {
  const { width } = copy;
  const dtype = typeOf(c, target);
  const isWhole = (e: Expr): boolean => {
    if (e.kind === "select") {
      const { condition, whenTrue, whenFalse } = e;
      const known = accessesIn(condition).length === 0 && holdsTogether(condition, ELEMENT, width, extents);
      return known && isWhole(whenTrue) && isWhole(whenFalse);
    }
    if (e.kind === "number") return true;
    if (e.kind !== "access" || typeOf(c, e) !== dtype) return false;
    return sideBySide(c, e, ELEMENT, width, extents) && insideTogether(c, e, ELEMENT, width, extents);
  };
  return value.kind === "select" && !copy.gathered && width > 1 && isWhole(value);
}

/** The side of a select that a piece takes, if known; otherwise the condition to test. */
function sideOf(
  value: Extract<Expr, { kind: "select" }>,
  { c }: CopyContext,
  extents: Extents,
): Expr | readonly Code[] {
  const conditions = c.untested(conjunctsOf(value.condition), extents);
  if (conditions.length === 0) return value.whenTrue;
  const never = conditions.some((e) => {
    if (e.kind !== "compare" || e.op !== "==") return false;
    const [min, max] = boundsOf(minus(e.left, e.right), extents);
    return min > 0 || max < 0;
  });
  return never ? value.whenFalse : conditions.map((e) => c.condition(e, extents));
}

/** The chosen piece as a value. */
function choiceOf(pieces: Pieces, value: Expr, context: CopyContext, extents: Extents): Code {
  const { c } = context;
  const { width } = pieces.copy;
  const dtype = typeOf(c, pieces.target);
  const of = (e: Expr): Code => choiceOf(pieces, e, context, extents);
  if (value.kind === "select") {
    const side = sideOf(value, context, extents);
    return "kind" in side ? of(side) : code`${allOf(side)} ? (${of(value.whenTrue)}) : (${of(value.whenFalse)})`;
  }
  const filled = (e: Code): Code => code`@filled<${pieceType(dtype, width)}>(${e})`;
  if (value.kind !== "access") return filled(c.value(value, dtype, extents));
  const { at: from, guards } = c.place(value, extents, "from");
  const loaded = vectorAt(context, value, dtype, width, from, extents);
  return guards.length === 0 ? loaded : code`${allOf(guards)} ? ${loaded} : ${filled(c.outside(value.tensor, dtype))}`;
}

/** The chosen piece as an asynchronous copy. @param inside conditions for it not to be zeros */
function asyncChoice(
  pieces: Pieces,
  value: Expr,
  to: Code,
  inside: readonly Expr[],
  context: CopyContext,
  extents: Extents,
): Code[] {
  const { c } = context;
  if (value.kind === "access") {
    const { at: from, guards } = c.placeWhere(value, inside, extents, "from");
    return asyncPiece(pieces, value, to, from, guards, context);
  }
  if (value.kind !== "select") internal("an asynchronous copy of nothing");
  const send = (e: Expr, where: readonly Expr[]): Code[] => asyncChoice(pieces, e, to, where, context, extents);
  // Zeros are the fill value of the other side's copy.
  if (value.whenFalse.kind === "number") {
    if (value.whenFalse.value !== 0) internal("an asynchronous copy filled with other numbers than 0");
    return send(value.whenTrue, [...inside, ...conjunctsOf(value.condition)]);
  }
  const side = sideOf(value, context, extents);
  if ("kind" in side) return send(side, inside);
  return [
    code`if (${allOf(side)}) {`,
    ...indented(send(value.whenTrue, inside)),
    ...block(code`} else {`, send(value.whenFalse, inside)),
  ];
}

/** Computes each element separately. Contiguous inputs are loaded together, and the piece is stored together. */
function computedPiece(
  pieces: Pieces,
  context: CopyContext,
  to: { readonly at: Code; readonly guards: readonly Code[] },
  extents: Extents,
): Code[] {
  const { c } = context;
  const { copy, target, value } = pieces;
  const { width } = copy;
  const dtype = typeOf(c, target);
  if (width === 1) {
    const plain = c.value(stepped(value, ELEMENT, 0), dtype, extents);
    return guarded(to.guards, [code`${c.memory(target, extents)}[${to.at}] = ${plain};`]);
  }
  return withLoaded(value, width, context, extents, dtype === "f16" && areHalves(value, c), (lines, loaded) => {
    const settled = settledIn(width, context, extents);
    const stored = halfPiece(pieces, context, new Halves(c, loaded, extents), to.at, settled, extents);
    const inOrder = (): Code[] =>
      writtenPiece(
        vectorAt(context, target, dtype, width, to.at, extents, true),
        settled(value).map((e) => c.value(e, dtype, extents)),
        to.guards,
      );
    return guarded([], [...lines, ...(stored ? guarded(to.guards, stored) : inOrder())], true);
  });
}

/** A value for each element of a piece, with what is known of them settled. */
type Settled = (e: Expr) => readonly Expr[];

const settledIn =
  (width: number, { c }: CopyContext, extents: Extents): Settled =>
  (e) =>
    upTo(width).map((i) => c.settled(stepped(e, ELEMENT, i), extents));

/**
 * Prints what reads elements of loads that are made together.
 * @param areWords whether what is printed takes words of these loads
 * @param print is given these loads, and where each element is
 */
function withLoaded(
  value: Expr,
  width: number,
  context: CopyContext,
  extents: Extents,
  areWords: boolean,
  print: (lines: readonly Code[], loaded: ReadonlyMap<string, LoadedAt>) => Code[],
): Code[] {
  const { c } = context;
  const loaded = new Map<string, LoadedAt>();
  const lines = runsIn(context, value, width, extents).map(({ first, count, at, accesses }, i): Code => {
    const from = c.place(first, extents, "from");
    const own = typeOf(c, first);
    const name = tensorName(first.tensor).with(`_piece_${i}`);
    const bytes = count * bytesOf(own);
    const word = ([4, 2] as const).find((size) => bytes % size === 0 && size > bytesOf(own));
    const isZero = from.guards.length === 0 || identityOf(c.computation.equation.op, own) === 0;
    const inWords = areWords && word !== undefined && isZero;
    for (const [e, access] of accesses.entries())
      loaded.set(printAccess(access), { name, at: count > 1 ? at[e] : undefined, inWords });
    const [unit, units] = inWords && count > 1 ? [WORDS[word], bytes / word] : [own, count];
    const type = count > 1 ? pieceType(unit, units) : code`${C_TYPES[own]}`;
    const outside = inWords ? code`0` : c.outside(first.tensor, own);
    const fill = count > 1 ? code`@filled<${type}>(${outside})` : outside;
    const read =
      count > 1
        ? vectorAt(context, first, unit, units, from.at, extents)
        : code`${c.memory(first, extents)}[${from.at}]`;
    const chosen = from.guards.length === 0 ? read : code`${allOf(from.guards)} ? ${read} : ${fill}`;
    return code`const ${type} ${name} = ${chosen};`;
  });
  c.atHand = (access) => {
    const found = loaded.get(printAccess(access));
    if (!found || found.at === undefined) return found && code`${found.name}`;
    const own = typeOf(c, access);
    const inWord = found.inWords ? WORD / bytesOf(own) : 1;
    const word = code`${found.name}.values[${Math.floor(found.at / inWord)}]`;
    const shift = 8 * bytesOf(own) * (found.at % inWord);
    const shifted = shift > 0 ? code`(${word} >> ${shift})` : word;
    return found.inWords ? code`(${C_TYPES[own]})${shifted}` : word;
  };
  try {
    return print(lines, loaded);
  } finally {
    c.atHand = () => undefined;
  }
}

/** A piece calculated in f16, in words of two; undefined for another, and if elements are chosen one by one. */
function halfPiece(
  { copy: { width }, target, value }: Pieces,
  { c, aligned }: CopyContext,
  halves: Halves,
  to: Code,
  settled: Settled,
  extents: Extents,
): Code[] | undefined {
  if (typeOf(c, target) !== "f16") return undefined;
  const words = halfWords(value, width, c, halves, settled, extents);
  if (!words) return undefined;
  aligned(target.tensor, width * bytesOf("f16"));
  return writtenPiece(code`*(@Piece<uint32_t, ${width / 2}>*)&${c.tensor(target.tensor)}[${to}]`, words, []);
}

/** Whether values are calculated in f16, two in a word. */
function areHalves(value: Expr, c: CudaExpressions): boolean {
  const { value: read } = chosenOf(value);
  return read.kind === "binary" && typeOfValue(read, c.dtypes) === "f16";
}

/** Values calculated in f16, in words of two; undefined for others, and if elements are chosen one by one. */
function halfWords(
  value: Expr,
  width: number,
  c: CudaExpressions,
  halves: Halves,
  settled: Settled,
  extents: Extents,
): Code[] | undefined {
  const { conditions, value: read, otherwise } = chosenOf(value);
  if (!areHalves(value, c) || !conditions.every((e) => holdsTogether(e, ELEMENT, width, extents))) return undefined;
  const wordsOf = (e: Expr): Code[] => {
    const all = settled(e);
    return upTo(width / 2).map((i) => halves.pair([all[2 * i] ?? e, all[2 * i + 1] ?? e]));
  };
  const inside = c.untested(
    conditions.map((e) => stepped(e, ELEMENT, 0)),
    extents,
  );
  const words = wordsOf(read);
  const fills = inside.length > 0 && otherwise ? wordsOf(otherwise) : [];
  const tested = allOf(inside.map((e) => c.condition(e, extents)));
  return words.map((word, i) => (fills[i] ? code`${tested} ? ${word} : ${fills[i]}` : word));
}

/**
 * Words of two elements of 16 bits each that a lane loads, or makes, for its registers: with as few loads as their places in memory allow.
 * @param valueAt the value of an element of these words, by its number
 */
export function laneWords(
  words: readonly Code[],
  dtype: DType,
  valueAt: (element: Expr) => Expr,
  context: CopyContext,
  extents: Extents,
): Code[] {
  const { c } = context;
  const isTogether = (width: number): boolean => {
    const value = valueAt(axis(ELEMENT));
    const within = { ...extents, [ELEMENT]: width };
    return runsIn(context, value, width, within).length === movingIn(value).length;
  };
  let width = PAIR * words.length;
  while (width > PAIR && !isTogether(width)) width /= 2;
  const within = { ...extents, [ELEMENT]: width };
  return upTo((PAIR * words.length) / width).flatMap((piece) => {
    const value = valueAt(plus(axis(ELEMENT), width * piece));
    return withLoaded(value, width, context, within, true, (lines, loaded) => {
      const settled = settledIn(width, context, within);
      const halves = new Halves(c, loaded, within);
      const inWords = halfWords(value, width, c, halves, settled, within);
      const elements = settled(value);
      const made = upTo(width / PAIR).map((w): Code => {
        const [low = value, high = value] = elements.slice(PAIR * w, PAIR * (w + 1));
        const [first, second] = [low, high].map((e) => c.value(e, dtype, within));
        const word = inWords?.[w] ?? halves.elements([low, high]);
        return word ?? code`(unsigned)${first ?? NOTHING} | (unsigned)${second ?? NOTHING} << 16`;
      });
      const own = words.slice((piece * width) / PAIR);
      return guarded([], [...lines, ...made.map((word, w) => code`${own[w] ?? NOTHING} = ${word};`)], true);
    });
  });
}

/** Elements of 16 bits in a register of a lane. */
const PAIR = 2;

/** Contiguous elements of memory as one vector value. */
export function vectorAt(
  { c, aligned }: Pick<CopyContext, "aligned"> & { readonly c: CExpressions },
  access: Access,
  dtype: DType,
  width: number,
  at: Code,
  extents: Extents,
  written = false,
): Code {
  aligned(access.tensor, Math.min(MOST_BYTES, width * bytesOf(dtype)));
  return code`*(${written ? "" : "const "}${pieceType(dtype, width)}*)&${c.memory(access, extents)}[${at}]`;
}

/** Stores registers as one vector: `*(Piece<float, 2>*)&y[at] = {{sum0, sum1,}};`. @param to from {@link vectorAt} */
export function writtenPiece(to: Code, values: readonly Code[], guards: readonly Code[]): Code[] {
  return guarded(guards, [code`${to} = {{`, ...indented(values.map((v) => code`${v},`)), code`}};`], true);
}

/**
 * Loads contiguous elements into registers: `const Piece<float, 2> x_piece = inside ? *(const Piece<float, 2>*)&x[at] :
 * ...`.
 * @param from from {@link vectorAt}, with the value of elements outside
 * @param registers one for each element; undefined if the element is not needed
 */
export function readPiece(
  tensor: string,
  type: Code,
  { from, guards, outside }: { readonly from: Code; readonly guards: readonly Code[]; readonly outside: Code },
  registers: readonly (Name | undefined)[],
): Code[] {
  const piece = tensorName(tensor).with("_piece");
  const chosen = guards.length === 0 ? from : code`${allOf(guards)} ? ${from} : @filled<${type}>(${outside})`;
  const moved = registers.flatMap((to, i) => (to === undefined ? [] : [code`${to} = ${piece}.values[${i}];`]));
  return guarded([], [code`const ${type} ${piece} = ${chosen};`, ...moved], true);
}

export function pieceType(dtype: DType, width: number): Code {
  return code`@Piece<${C_TYPES[dtype]}, ${width}>`;
}

function typeOf(c: CudaExpressions, { tensor }: Access): DType {
  return c.dtypes[tensor] ?? internal(`no type of "${tensor}"`);
}

function distinct(texts: readonly Code[]): Code[] {
  return [...new Map(texts.map((t) => [keyOf(t), t])).values()];
}
