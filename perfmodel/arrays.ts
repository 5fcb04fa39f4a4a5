/**
 * @file Predicts the time of a lane design given by its transform, from the instructions that passes side by side issue and the bytes that move.
 *
 *     FBS of a 3x3 filter, 4 x 2 passes side by side      multiply-adds 36.0   shifts 0.0   loads 37.5   stores 8.0   chain 9.0 cycles
 *
 *     one block     the slowest kind of instruction, or the longest chain of sums; of loads a part shows beside it
 *     all bytes     over the bandwidth of the level that holds them
 */

import { affineForm } from "../abstraction/affine.ts";
import type { DesignSchedule } from "../abstraction/candidate.ts";
import { elementCount, outputOf, tensorOf } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";
import { type Access, axesIn } from "../abstraction/expression.ts";
import type { OperandFlow } from "../mapper/space-time/design.ts";
import { stepsJoined } from "../mapper/space-time/dots.ts";
import type { LaneArray } from "../mapper/space-time/lane-array.ts";
import { operandAccesses } from "../mapper/space-time/problem.ts";
import { type Inverse, inverseOf } from "../mapper/space-time/reverse.ts";
import { dot, extentOfRow } from "../mapper/space-time/vector.ts";
import { laneCosts } from "../targets/lanes.ts";
import { leastLaneBytes, REFERENCE_CPU, type VectorRegisters, ZMM } from "../targets/x86.ts";
import type { Costs } from "./correct.ts";
import { ADDITION_LATENCY, multiplyAddCycles, WORD_SHIFT } from "./lane-operations.ts";
import { LOADS_SHOWING, NOT_OVERLAPPED, STREAMED_TO_READ } from "./lanes.ts";
import type { ModelTarget } from "./target.ts";

const { multiplyAdd: FMA, shift: SHIFT } = laneCosts(REFERENCE_CPU);
/** A masked move of values that enter at a border, on either of two ports. */
const BLEND_CYCLES = 0.5;
/**
 * Under a transform where only one place in several holds a point, the mask of entering values is built lane by lane: a comparison, a shift and
 * an or. 17 to 22 cycles of 16 lanes for a filter of 5 (one core of a Xeon, 2026-11-22).
 */
const MASKED_LANE_CYCLES = 1.25;
/** Elements per cycle of a gather or scatter, and of taking elements out of a register one by one through memory. */
const GATHERED_PER_CYCLE = 1.2;
const TAKEN_OUT_CYCLES = 8;
/**
 * Additional cycles where a result is added to that of earlier passes: 7 to 33 cycles of a convolution of 16 channels (one core of a Xeon,
 * 2026-11-22).
 */
const ADDED_OUT_CYCLES = 16;
const LINE_BYTES = 64;
/** Fraction of unaligned loads as long as a cache line that need two line reads; shorter ones do so less often. */
const STRADDLING = 0.9;
/** Every second element: two loads, and a shuffle that takes the port of two more. */
const EVEN_SHUFFLE = 2;
/** A shift on 256 bits: VPERM2I128 of port 5, and VPALIGNR of two ports. Source: LLVM's scheduling model of Sapphire Rapids. */
const YMM_SHIFT = { issueCycles: 1.5, latencyCycles: 4 };
/**
 * Instructions that widen narrow elements into 32-bit lanes and narrow them again, on port 5 or on either vector port: VPMOVZX and VPMOVSX; for
 * bf16 a shift in addition; VCVTPH2PS. A broadcast element goes through a general register: VPBROADCASTD. Source: LLVM's scheduling model of
 * Sapphire Rapids.
 */
const CONVERSIONS = {
  integer: { vector: [1, 0], element: [1, 0], store: [2, 0] },
  bf16: { vector: [1, 1], element: [1, 0], store: [2, 3] },
  f16: { vector: [1, 1], element: [3, 1], store: [1, 1] },
} as const;
/** Cycles to insert an element that is not contiguous with the others: VPINSRD, and VINSERT of each quarter. */
const INSERTED = 1.25;
/** Multiply-adds of later blocks that a core can start while a chain waits: half of Golden Cove's reorder buffer of 512 entries. */
const LOOKAHEAD = 256;
/** Points enumerated one by one to count the loads that a compiler merges. */
const MOST_COUNTED = 1024;

/** Instructions of passes side by side, in cycles of their units. */
export interface ArrayCosts {
  readonly multiplyAdds: number;
  readonly shifts: number;
  /** Conversions of narrow elements to 32-bit lanes, and back. */
  readonly conversions: number;
  readonly loads: number;
  readonly stores: number;
  /** Cycles that the longest chain of sums costs a core that starts later blocks in the meantime. */
  readonly waiting: number;
  /** Vectors live at the same time. */
  readonly registers: number;
  /** Cycles of one block, and the number of blocks. */
  readonly cycles: number;
  readonly blocks: number;
}

/** Seconds of a call. @param vectors registers that the lanes lie in */
export function arraySeconds(
  array: LaneArray,
  s: DesignSchedule,
  target: ModelTarget,
  vectors: VectorRegisters = ZMM,
): number {
  return secondsOf(arrayCosts(array, s, target, vectors), array, s, target);
}

function secondsOf({ cycles, blocks }: ArrayCosts, array: LaneArray, s: DesignSchedule, target: ModelTarget): number {
  const compute = cycles * blocks;
  const memory = transferCycles(array, s, target);
  const all = Math.max(compute, memory) + NOT_OVERLAPPED * Math.min(compute, memory);
  return all / target.clockHz.value / s.threads;
}

/** The prediction and its parts in the form a correction reads: the shares of the parts, and the seconds, which need no bounds. */
export function arrayTerms(
  array: LaneArray,
  s: DesignSchedule,
  target: ModelTarget,
  vectors: VectorRegisters = ZMM,
): Costs {
  const costs = arrayCosts(array, s, target, vectors);
  const seconds = secondsOf(costs, array, s, target);
  const { multiplyAdds, shifts, conversions, loads, stores, waiting, blocks } = costs;
  const each = { "multiply-adds": multiplyAdds, shifts, conversions, loads, stores, "chains of sums": waiting };
  const perSecond = target.clockHz.value * s.threads;
  const terms = Object.entries(each).map(([name, cycles]) => ({ name, seconds: (cycles * blocks) / perSecond }));
  const memory = { name: "memory", seconds: transferCycles(array, s, target) / perSecond };
  return { terms: [...terms, memory], bounds: [seconds, seconds], traits: [`inputs ${s.inputs}`] };
}

/** What an operand makes passes side by side issue: cycles of port 5, cycles of either vector port, and reads of the cache. */
interface Issued {
  readonly shifts: number;
  readonly others: number;
  readonly conversions: readonly [shuffles: number, others: number];
  readonly loads: number;
  readonly registers: number;
}

export function arrayCosts(
  array: LaneArray,
  s: DesignSchedule,
  target: ModelTarget,
  vectors: VectorRegisters = ZMM,
): ArrayCosts {
  const { sum, design, space, beside } = array;
  const inner = new Set(beside.map((l) => l.name));
  const copies = beside.reduce((n, l) => n * l.extent, 1);
  const blocks = space.outside.reduce((n, l) => (inner.has(l.name) ? n : n * l.extent), 1);
  const { steps } = design;
  const { inputs } = operandAccesses(sum);
  const inverse = inverseOf([...array.spaceTime.allocation, ...array.spaceTime.schedule]);
  const words = leastLaneBytes(vectors) === 2;
  const integer = isInteger(outputOf(sum).dtype) && !array.dot;
  const joined = array.dot ? stepsJoined(sum, s.transform, steps, array.dot.terms) : steps;
  const shift = vectors.bytes < ZMM.bytes ? YMM_SHIFT : words ? WORD_SHIFT : SHIFT;
  const issued: Issued[] = [];
  let multiplyAdds =
    joined * copies * ((integer ? multiplyAddCycles(words ? "s16" : "s32") : undefined) ?? FMA.issueCycles);
  let stores = 0;
  let chain = 0;
  for (const [i, flow] of design.flows.entries()) {
    const read = inputs[i];
    if (flow.role === "input" && read) {
      issued.push(inputIssues(array, s, flow, read, inverse, shift.issueCycles, words));
      continue;
    }
    const dependences = flow.variables.flatMap((v) => v.dependences);
    const timed = dependences.filter((d) => d.steps > 0);
    const moved = timed.some((d) => d.hop.some((x) => x !== 0)) ? 1 : 0;
    const across = dependences.some((d) => d.steps === 0) || flow.letter === "A" ? Math.ceil(Math.log2(design.pes)) : 0;
    multiplyAdds += steps * copies * across * FMA.issueCycles;
    const latency = (integer ? ADDITION_LATENCY : FMA.latencyCycles) + moved * shift.latencyCycles;
    const apart = Math.min(...timed.map((d) => d.steps), Number.POSITIVE_INFINITY);
    chain = Number.isFinite(apart) ? (joined * latency) / apart : across * (FMA.latencyCycles + shift.latencyCycles);
    const leaving = leavingSteps(array);
    const whole = array.joined.length > 0 ? 2 : 1;
    const each = TAKEN_OUT_CYCLES + (whole > 1 && across === 0 ? ADDED_OUT_CYCLES : 0);
    stores += leaving === 1 ? copies * whole : leaving * copies * each;
    const [shuffles, others] = (words ? undefined : conversionsOf(outputOf(sum).dtype))?.store ?? [0, 0];
    issued.push({
      shifts: steps * copies * (moved + across) * shift.issueCycles,
      others: 0,
      conversions: [copies * shuffles, copies * others],
      loads: 0,
      registers: copies * Math.max(1, ...timed.map((d) => d.steps)),
    });
  }
  const total = (of: (part: Issued) => number): number => issued.reduce((n, part) => n + of(part), 0);
  const shifts = total((i) => i.shifts);
  const registers = total((i) => i.registers);
  const widened = total((i) => i.conversions[0]);
  const converted = total((i) => i.conversions[1] / 2);
  // Values that exceed the registers are spilled and reloaded at every step.
  const spilled = (2 * steps * copies * Math.max(0, registers - vectors.count)) / registers;
  const loading = (total((i) => i.loads) + spilled) / target.loadsPerCycle.value;
  const waiting = chain / Math.max(1, LOOKAHEAD / (steps * copies));
  const storing = stores / target.storesPerCycle.value;
  const port5 = shifts + widened;
  // A 512-bit shuffle takes one of the two ports that multiply; a 256-bit shuffle a third of them.
  const arithmetic = multiplyAdds + total((i) => i.others) + converted + (vectors.bytes < ZMM.bytes ? 0 : port5 / 2);
  const slowest = Math.max(arithmetic, port5, loading, storing, waiting);
  const cycles = slowest + LOADS_SHOWING * Math.min(loading, slowest);
  const conversions = widened + converted;
  return {
    multiplyAdds,
    shifts: shifts + total((i) => i.others),
    conversions,
    loads: loading,
    stores: storing,
    waiting,
    registers,
    cycles,
    blocks,
  };
}

/** Cost of an input that is passed from lane to lane, or loaded where it is used. */
function inputIssues(
  array: LaneArray,
  s: DesignSchedule,
  flow: OperandFlow,
  read: Access,
  inverse: Inverse | undefined,
  shiftCycles: number,
  words: boolean,
): Issued {
  const { steps } = array.design;
  const copies = array.beside.reduce((n, l) => n * l.extent, 1);
  const own = copiesOf(array, read, copies);
  const dtype = tensorOf(array.sum, read.tensor).dtype;
  const conversion = words ? undefined : conversionsOf(dtype);
  const moves = flow.variables.flatMap((v) => v.dependences).filter((d) => d.steps > 0 && d.hop.some((x) => x !== 0));
  const isPassed = s.inputs === "passed" && moves.length > 0;
  const stride = strideOf(array, read, inverse);
  const alone = isPassed ? steps * own : distinctLoads(array, read, inverse, steps * own);
  const vectors = array.dot ? alone * (stepsJoined(array.sum, s.transform, steps, array.dot.terms) / steps) : alone;
  // Values that are the same for the next block are converted once by the compiler and kept on the stack.
  const isKept = !isPassed && isInvariant(array, read);
  // A window of bytes takes two shuffles, a window of words one (codegen/avx512-helpers.ts).
  const window = array.dot && (array.dot.terms === 4 ? ([2, 0] as const) : ([1, 0] as const));
  const one = isPassed || stride === 0 ? conversion?.element : (window ?? conversion?.vector);
  const [shuffles, others] = isKept ? [0, 0] : (one ?? [0, 0]);
  // No instruction gathers narrow elements.
  const isInserted = conversion && !isPassed && !isKept && stride !== 0 && stride !== 1;
  const inserted = isInserted ? s.lanes * INSERTED : 0;
  const perLoad = isPassed || isKept ? 1 : isInserted ? s.lanes : loadCost(stride, s.lanes, bytesOf(dtype));
  const entering = inverse && Math.abs(inverse.denominator) === 1 ? BLEND_CYCLES : s.lanes * MASKED_LANE_CYCLES;
  return {
    shifts: isPassed ? vectors * moves.length * shiftCycles : 0,
    others: isPassed ? vectors * moves.length * entering : 0,
    conversions: [vectors * (inserted > 0 ? inserted : shuffles), vectors * (inserted > 0 ? 0 : others)],
    loads: vectors * perLoad,
    registers: isPassed ? own * Math.max(1, ...moves.map((d) => d.steps)) : 1,
  };
}

/** Whether an operand is the same for the blocks of the innermost loop around them. */
function isInvariant({ beside, space }: LaneArray, read: Access): boolean {
  const inner = new Set(beside.map((l) => l.name));
  const around = space.outside.findLast((l) => !inner.has(l.name) && l.extent > 1);
  return around !== undefined && !axesIn(read).includes(rootOf(space, around.name));
}

/** The loop of the computation whose tiles an outside loop counts. */
function rootOf(space: LaneArray["space"], name: string): string {
  const of = space.tiled.find((t) => t.outer === name)?.name;
  return of === undefined ? name : rootOf(space, of);
}

/** Conversions of a type narrower than a lane. */
function conversionsOf(dtype: DType): (typeof CONVERSIONS)[keyof typeof CONVERSIONS] | undefined {
  if (bytesOf(dtype) >= 4) return undefined;
  return dtype === "bf16" || dtype === "f16" ? CONVERSIONS[dtype] : CONVERSIONS.integer;
}

/** The kind of instruction, or the chain of sums, that decides how long a block takes. */
export function boundOf({ multiplyAdds, shifts, conversions, loads, stores, waiting }: ArrayCosts): string {
  const kinds = {
    "multiply-adds": multiplyAdds + (shifts + conversions) / 2,
    shifts,
    conversions,
    loads,
    stores,
    "chains of sums": waiting,
  };
  return Object.entries(kinds).reduce((a, b) => (b[1] > a[1] ? b : a))[0];
}

/** The number of copies of an operand among the passes side by side. */
export function copiesOf({ beside, space }: LaneArray, read: Access, all: number): number {
  const axes = new Set(axesIn(read));
  const shared = beside.filter((l) => !axes.has(rootOf(space, l.name))).reduce((n, l) => n * l.extent, 1);
  return all / shared;
}

/** Reads of the cache for a vector of an operand, by the distance in memory between neighbouring lanes. */
function loadCost(stride: number | undefined, lanes: number, bytes: number): number {
  if (stride === undefined) return lanes / GATHERED_PER_CYCLE;
  if (stride === 0) return 1;
  const unaligned = 1 + STRADDLING * Math.min(1, (lanes * bytes) / LINE_BYTES);
  if (stride === 1) return unaligned;
  return stride === 2 ? 2 * unaligned + EVEN_SHUFFLE : (2 * lanes) / GATHERED_PER_CYCLE;
}

/** Distance between neighbouring lanes in elements; undefined when the lanes do not read at equal distances. */
export function strideOf({ sum, space }: LaneArray, read: Access, inverse: Inverse | undefined): number | undefined {
  if (!inverse) return undefined;
  const { dims } = tensorOf(sum, read.tensor);
  const index = new Map(read.index.map((e, d) => [dims[d]?.name ?? "", affineForm(e)]));
  let stride = 0;
  let pitch = 1;
  for (const { name, extent } of dims.toReversed()) {
    const form = index.get(name);
    if (!form) return undefined;
    const moved = dot(
      space.inside.map((l) => form.terms.get(l.name) ?? 0),
      inverse.numerators.map((row) => row[0] ?? 0),
    );
    stride += (pitch * moved) / inverse.denominator;
    pitch *= extent;
  }
  return stride;
}

/** Number of distinct vectors of an operand that a block reads. A compiler merges repeated loads. */
export function distinctLoads(array: LaneArray, read: Access, inverse: Inverse | undefined, all: number): number {
  const { space, beside, spaceTime } = array;
  if (!inverse) return all;
  const extents = space.inside.map((l) => l.extent);
  const forms = read.index.map((e) => affineForm(e)?.terms ?? new Map<string, number>());
  // 1. How far each step of time, and each pass side by side, moves the read position.
  const moves = [
    ...spaceTime.schedule.map((row, r) => ({
      extent: extentOfRow(row, extents),
      by: forms.map((form) =>
        space.inside.reduce((n, l, i) => n + (form.get(l.name) ?? 0) * (inverse.numerators[i]?.[r + 1] ?? 0), 0),
      ),
    })),
    ...beside.map(({ name, extent }) => {
      // Tiles of an array loop are as far apart as the array is long; other loops advance step by step.
      const of = space.tiled.find((t) => t.outer === name);
      const by = forms.map((form) => inverse.denominator * (form.get(of?.name ?? name) ?? 0) * (of?.size ?? 1));
      return { extent, by };
    }),
  ].filter((m) => m.extent > 1 && m.by.some((x) => x !== 0));
  // 2. Movement along a dimension that only one loop moves multiplies the count; movements of several loops overlap.
  const alone = (m: (typeof moves)[number]): boolean =>
    m.by.some((x, d) => x !== 0 && moves.every((other) => other === m || other.by[d] === 0));
  const meeting = moves.filter((m) => !alone(m));
  const product = moves.filter(alone).reduce((n, m) => n * m.extent, 1);
  if (meeting.reduce((n, m) => n * m.extent, 1) > MOST_COUNTED) return all;
  let places: readonly (readonly number[])[] = [forms.map(() => 0)];
  for (const { extent, by } of meeting) {
    const next = new Map<string, readonly number[]>();
    for (const place of places)
      for (let i = 0; i < extent; i++) {
        const moved = place.map((x, d) => x + i * (by[d] ?? 0));
        next.set(moved.join(), moved);
      }
    places = [...next.values()];
  }
  return Math.min(all, product * places.length);
}

/** Steps at which results leave the array: those that the loops indexing a result reach. */
export function leavingSteps({ sum, problem, design }: Pick<LaneArray, "sum" | "problem" | "design">): number {
  const kept = new Set(axesIn(sum.equation.target));
  const row = design.schedule.map((x, i) => (kept.has(problem.loops[i]?.name ?? "") ? x : 0));
  return Math.min(
    design.steps,
    extentOfRow(
      row,
      problem.loops.map((l) => l.extent),
    ),
  );
}

function transferCycles({ sum }: LaneArray, s: DesignSchedule, target: ModelTarget): number {
  const output = outputOf(sum);
  const outBytes = elementCount(output) * bytesOf(output.dtype);
  const inBytes = Object.values(sum.tensors)
    .filter((t) => t.name !== output.name)
    .reduce((bytes, t) => bytes + elementCount(t) * bytesOf(t.dtype), 0);
  const last = target.memory.at(-1);
  const level = target.memory.find((m) => m.bytes !== undefined && m.bytes >= inBytes + outBytes) ?? last;
  const read = level?.readBytesPerCycle.value ?? 1;
  const write = s.streaming
    ? STREAMED_TO_READ * (last?.readBytesPerCycle.value ?? read)
    : (level?.writeBytesPerCycle.value ?? 1);
  return inBytes / read + outBytes / write;
}
