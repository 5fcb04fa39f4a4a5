/**
 * @file Predicts the time of a nest on CPU vectors from its census: port pressure of each straight run of statements, dependence chains, and bytes
 * moved.
 *
 *     one run       the busiest of arithmetic, shuffles, loads, stores and the longest chain; of loads a part shows beside it
 *     all bytes     over the bandwidth of the level that holds them
 *
 * Memory traffic of the caches of a CPU while a nest runs: the lines that each access of a straight run touches while more and more of the loops
 * around it run, and what each cache fetches again because it did not keep them.
 *
 *     for c in 0..128                              a run of 56 x 56 rows of one channel: 3136 lines, 16 channels in each
 *       for p in 0..56, q_tile in 0..4             the second level does not keep them until the next channel
 *         X[0,lane] = in[0,c,p,14*q_tile+lane]     NHWC: 16 lines, which hold nothing else that this channel reads
 */

import { addressOf } from "../abstraction/affine.ts";
import { ascending, product, sumOf } from "../abstraction/collections.ts";
import { type Computation, elementCount, inputsOf, outputOf, type Tensor } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";
import { type Access, childrenOf, type Expr } from "../abstraction/expression.ts";
import type { LoopNest, Statement } from "../abstraction/loop-nest.ts";
import { laneCosts } from "../targets/lanes.ts";
import { leastLaneBytes, REFERENCE_CPU, type VectorRegisters, ZMM } from "../targets/x86.ts";
import type { Costs } from "./correct.ts";
import { AffineFootprint, type Covered, LINE_BYTES, type Term, term } from "./footprint.ts";
import { ADDITION_LATENCY, LOADS_SHOWING, multiplyAddCycles, NOT_OVERLAPPED, portCycles, WORD_SHIFT } from "./lanes.ts";
import { levelHolding, overlapped, ratesOf } from "./rates.ts";
import type { MemoryLevel, ModelTarget } from "./target.ts";
import { keptShare } from "./traffic.ts";
import {
  type Around,
  type Chain,
  formOf,
  type Stored,
  straightRuns,
  type Tensors,
  tensorsIn,
  type VectorRun,
  vectorRuns,
} from "./vector-census.ts";

const { multiplyAdd: FMA, shift: SHIFT } = laneCosts(REFERENCE_CPU);
/** A shift on 256 bits: VPERM2I128 of port 5, and VPALIGNR of two ports. Source: LLVM's scheduling model of Sapphire Rapids. */
const YMM_SHIFT = { issueCycles: 1.5, latencyCycles: 4 };
/** Reads of the cache for an unaligned load as long as a line; shorter ones cross a line less often. */
const CROSSING_READS = 2;

// Fitted to four computations of bench/trials/lane-designs-xeon: designs of 16 lanes on one core of a Xeon, 2026-11-22.

/** Cycles for each lane of a mask that depends on the loops around. */
const MASKED_LANE_CYCLES = 0.3;
/** Cycles until a result that is added to is in memory again, where it may be read: a store is forwarded to the load after it. */
const ADDED_CYCLES = 5;
/** Multiply-adds of later runs that a core can start while a chain waits: half of Golden Cove's reorder buffer of 512 entries. */
export const LOOKAHEAD = 256;

/**
 * Cycles on port 5 and on either vector port to widen a vector of narrow elements into 32-bit lanes, to widen one element for
 * all lanes, and to narrow a vector: VPMOVZX and VPMOVSX; for bf16 a shift in addition; VCVTPH2PS; VPBROADCASTD. Source: LLVM's
 * scheduling model of Sapphire Rapids.
 */
const CONVERSIONS = {
  integer: { vector: [1, 0], element: [1, 0], store: [2, 0] },
  bf16: { vector: [1, 1], element: [1, 0], store: [2, 3] },
  f16: { vector: [1, 1], element: [3, 1], store: [1, 1] },
} as const;

/** What a run keeps busy, in cycles. */
interface Busy {
  readonly "multiply-adds": number;
  readonly shifts: number;
  readonly conversions: number;
  readonly loads: number;
  readonly stores: number;
  readonly "chains of sums": number;
}

/** How the lanes of a nest are held. */
interface VectorMachine {
  readonly target: ModelTarget;
  readonly threads: number;
  /** Registers that the lanes lie in; those of AVX-512 when left out. */
  readonly vectors?: VectorRegisters;
  /** Whether results bypass the caches. */
  readonly streaming?: boolean;
}

/** Seconds of a call. */
export function vectorSeconds(nest: LoopNest, computation: Computation, machine: VectorMachine): number {
  return vectorCosts(nest, computation, machine).bounds[0];
}

/** The prediction in the form that a correction reads: seconds of each part as if it ran alone, and of the call. */
export function vectorCosts(nest: LoopNest, computation: Computation, machine: VectorMachine): Costs {
  const { target, threads, vectors = ZMM, streaming = false } = machine;
  const parts = { "multiply-adds": 0, shifts: 0, conversions: 0, loads: 0, stores: 0, "chains of sums": 0 };
  let compute = 0;
  for (const run of vectorRuns(nest, computation.tensors)) {
    const { busy, cycles } = cyclesOf(run, computation, vectors, target);
    compute += run.times * cycles;
    for (const name of Object.keys(parts) as (keyof Busy)[]) parts[name] += run.times * busy[name]; // its own keys
  }
  const memory = memoryCycles(nest, computation, streaming, target);
  const cycles = overlapped(compute, memory, NOT_OVERLAPPED);
  const perSecond = target.clockHz.value * threads;
  const terms = Object.entries({ ...parts, memory }).map(([name, n]) => ({ name, seconds: n / perSecond }));
  return { terms, bounds: [cycles / perSecond, cycles / perSecond], traits: [] };
}

function cyclesOf(
  run: VectorRun,
  computation: Computation,
  vectors: VectorRegisters,
  target: ModelTarget,
): { readonly busy: Busy; readonly cycles: number } {
  const { dtype } = outputOf(computation);
  const words = leastLaneBytes(vectors) === 2;
  const integer = isInteger(dtype);
  const rate = `${vectors.feature === "avx2" ? "avx2" : "avx512"}.fma.${dtype === "f64" ? "f64" : "f32"}`;
  const { issueCycles, latencyCycles } = target.timings[rate] ?? FMA;
  const ofIntegers = integer ? multiplyAddCycles(words ? "s16" : "s32") : undefined;
  const operations = (ofIntegers ?? FMA.issueCycles) / FMA.issueCycles;
  const latency = integer ? ADDITION_LATENCY : latencyCycles;
  const shift = vectors.bytes < ZMM.bytes ? YMM_SHIFT : words ? WORD_SHIFT : SHIFT;
  const narrow = words ? undefined : narrowOf(computation);
  const laneBytes = Math.max(words ? 2 : 4, bytesOf(dtype));
  const lanes = vectors.bytes / laneBytes;

  // 1. Ports that shuffle and ports that add.
  const reduced = run.reductions * Math.log2(lanes);
  const [widens, narrows] = conversionsOf(run, narrow);
  const shuffles = (run.shifts + reduced) * shift.issueCycles + run.pairedLoads;
  const others = run.arithmetic + run.blends + reduced;
  const masks = run.maskedLanes * MASKED_LANE_CYCLES;
  const port5 = shuffles + widens;
  const either = run.multiplyAdds * operations + others + narrows;
  // Shuffles of 256 bits hardly get in the way of multiply-adds.
  const together = vectors.bytes < ZMM.bytes ? 0 : portCycles(either, port5, issueCycles);
  const arithmetic = masks + Math.max(either * issueCycles, together);

  // 2. Loads and stores. Values that exceed the registers are spilled and reloaded.
  const loadBytes = narrow === undefined ? vectors.bytes : vectors.bytes / 2;
  const crossing = 1 + (CROSSING_READS - 1) * Math.min(1, loadBytes / LINE_BYTES);
  const over = Math.max(0, run.registers - vectors.count) / Math.max(1, run.registers);
  const spilled = 2 * run.multiplyAdds * over;
  const { scalar } = target;
  const reads = (run.loads + 2 * run.pairedLoads) * crossing + run.broadcasts;
  const loads =
    (reads + run.added + spilled) / target.loadsPerCycle.value + run.gatheredLanes * scalar.gatheredLane.value;
  const stored = run.stores / target.storesPerCycle.value;
  const stores = stored + run.scatteredLanes * scalar.scatteredLane.value + run.added * ADDED_CYCLES;

  // 3. Chains. A core starts later runs while one waits, as far as it looks ahead.
  const lengthOf = (chain: Chain): number => chain.operations * latency + chain.shifts * shift.latencyCycles;
  const beside = Math.max(1, LOOKAHEAD / Math.max(1, run.multiplyAdds + run.arithmetic));
  const waiting = Math.max(lengthOf(run.carried), lengthOf(run.chain) / beside);

  const slowest = Math.max(arithmetic, port5, loads, stores, waiting);
  const busy: Busy = {
    "multiply-adds": (run.multiplyAdds * operations + others) * issueCycles,
    shifts: shuffles + masks,
    conversions: widens + narrows * issueCycles,
    loads,
    stores,
    "chains of sums": waiting,
  };
  return { busy, cycles: slowest + LOADS_SHOWING * Math.min(loads, slowest) };
}

/** Cycles on port 5, and on either port. */
function conversionsOf(run: VectorRun, narrow: keyof typeof CONVERSIONS | undefined): readonly [number, number] {
  if (narrow === undefined) return [0, 0];
  const { vector, element, store } = CONVERSIONS[narrow];
  const sum = (i: 0 | 1): number =>
    run.widened * vector[i] + run.widenedElements * element[i] + run.narrowed * store[i];
  return [sum(0), sum(1)];
}

/** The narrow type that lanes widen, if any. */
function narrowOf({ tensors }: Computation): keyof typeof CONVERSIONS | undefined {
  const found = Object.values(tensors).find(({ dtype }) => bytesOf(dtype) < 4);
  return found && kindOf(found.dtype);
}

const kindOf = (dtype: DType): keyof typeof CONVERSIONS => (dtype === "bf16" || dtype === "f16" ? dtype : "integer");

/** Cycles of one core to move what the caches fetch and give back, at the busiest of them; results that bypass them go at a rate of their own. */
function memoryCycles(nest: LoopNest, computation: Computation, streaming: boolean, target: ModelTarget): number {
  const caches = cachesOf(target);
  const tensors = tensorsIn(nest, computation.tensors);
  for (const { statements, around, times } of straightRuns(nest))
    addTraffic(caches, statements, around, times, tensors);
  const resident = sumOf([...inputsOf(computation), outputOf(computation)], bytesIn);
  const cycles = caches.map(({ cache, source, fetched, returned }) => {
    // The call before left what fits.
    const missing = 1 - keptShare(resident, cache.bytes ?? 1);
    const written = streaming ? 0 : returned / source.writeBytesPerCycle.value;
    return missing * (fetched / source.readBytesPerCycle.value + written);
  });
  const around = streaming ? bytesIn(outputOf(computation)) / ratesOf(undefined, true, target).write : 0;
  return Math.max(around, ...cycles);
}

const bytesIn = (tensor: Tensor): number => elementCount(tensor) * bytesOf(tensor.dtype);

/** Cycles of one core to read every input and write the output once, in the level that holds them all. */
export function transferCycles(computation: Computation, target: ModelTarget): number {
  const outBytes = bytesIn(outputOf(computation));
  const inBytes = sumOf(inputsOf(computation), bytesIn);
  const { read, write } = ratesOf(levelHolding(target, inBytes + outBytes), false, target);
  return inBytes / read + outBytes / write;
}

/** A cache, and the bytes that it fetches from the memory behind it and gives back. */
interface CacheTraffic {
  readonly cache: MemoryLevel;
  readonly source: MemoryLevel;
  fetched: number;
  returned: number;
}

/** The caches of a machine before anything has moved. */
export function cachesOf({ memory }: ModelTarget): CacheTraffic[] {
  return memory.flatMap((cache, i) => {
    const source = memory[i + 1];
    return source === undefined ? [] : [{ cache, source, fetched: 0, returned: 0 }];
  });
}

/** A loop of which some steps are covered. */
interface Step extends Covered {
  readonly axis: string;
  readonly steps: number;
}

/** Accesses of a tensor that every loop moves alike, and their constants. */
interface Moved {
  readonly access: Access;
  readonly slopes: Slopes;
  readonly isWritten: boolean;
  readonly places: Set<number>;
}

/** What they touch. */
interface Touched {
  readonly footprint: AffineFootprint;
  readonly axes: ReadonlySet<string>;
  readonly isWritten: boolean;
}

/**
 * Adds the traffic of a run to that of the caches. While one trip of a loop fits, the next reuses what both share; otherwise every trip fetches its own.
 * @param times how often the statements run, of all steps of the loops around them
 */
export function addTraffic(
  caches: readonly CacheTraffic[],
  statements: readonly Statement[],
  { loops }: Around,
  times: number,
  tensors: Tensors,
): void {
  const around = loops.map(({ axis, steps }): Step => ({ axis, steps, covered: 1 }));
  const all = touchedBy(statements, around, tensors);
  const share = times / product(loops.map(({ steps }) => steps));
  const shared = caches.length > 2 ? caches.at(-1) : undefined;
  const totals = (): { readonly lines: number; readonly crowded: number } => ({
    lines: sumOf(all, ({ footprint }) => footprint.lines),
    crowded: sumOf(all, ({ footprint }) => footprint.crowded),
  });
  for (const { footprint } of all) footprint.measure();
  let before = totals();
  const lines = caches.map(() => all.map(({ footprint }) => footprint.lines));
  for (const step of around.toReversed()) {
    if (step.steps <= 1) continue;
    step.covered = step.steps;
    for (const { footprint, axes } of all) if (axes.has(step.axis)) footprint.measure();
    for (const [c, one] of caches.entries()) {
      const kept = keptShare(one === shared ? before.lines : before.crowded, one.cache.bytes ?? 1);
      for (const [i, { footprint, axes, isWritten }] of all.entries()) {
        // Sums stay in registers.
        if (isWritten && !axes.has(step.axis)) continue;
        const own = lines[c];
        if (own) own[i] = kept * footprint.lines + (1 - kept) * step.steps * (own[i] ?? 0);
      }
    }
    before = totals();
  }
  for (const [c, one] of caches.entries())
    for (const [i, { isWritten }] of all.entries()) {
      const bytes = share * (lines[c]?.[i] ?? 0);
      if (isWritten) one.returned += bytes;
      else one.fetched += bytes;
    }
}

/** What the statements touch, as the loops around them run. */
function touchedBy(statements: readonly Statement[], around: readonly Step[], tensors: Tensors): Touched[] {
  const found = new Map<string, Moved>();
  const inner: Step[] = [];
  const add = (access: Access, isWritten: boolean): void => {
    const tensor = tensors[access.tensor];
    if (!tensor) return;
    const { constant, slopes } = placeOf(tensor, access);
    let key = `${access.tensor} ${isWritten}`;
    for (const [axis, slope] of slopes) key += ` ${slope}${axis}`;
    const known = found.get(key);
    if (known) known.places.add(constant);
    else found.set(key, { access, slopes, isWritten, places: new Set([constant]) });
  };
  const addReads = (e: Expr): void => {
    if (e.kind === "access") add(e, false);
    else for (const child of childrenOf(e)) addReads(child);
  };
  const visit = (s: Statement): void => {
    if (s.kind === "loop") {
      inner.push({ axis: s.axis, steps: s.extent, covered: s.extent });
      for (const one of s.body) visit(one);
    } else if (s.kind === "scalar") {
      addReads(s.equation.value);
      add(s.equation.target, true);
    }
  };
  for (const s of statements) visit(s);
  const steps = new Map([...around, ...inner].map((step) => [step.axis, step]));
  return [...found.values()].map(({ access, slopes, isWritten, places }) => {
    const terms = [...slopes].flatMap(([axis, slope]): Term[] => {
      const step = steps.get(axis);
      if (!step || slope === 0) return [];
      const size = Math.abs(slope);
      return [{ ...term(Math.max(1, Math.round(size)), step, 1), ...(size < 1 && { divisor: Math.round(1 / size) }) }];
    });
    terms.push(...placesIn(ascending(places)));
    const bytes = bytesOf(tensors[access.tensor]?.dtype ?? "f32");
    const footprint = new AffineFootprint(terms, bytes, { written: isWritten, gathered: true });
    return { footprint, axes: new Set(slopes.keys()), isWritten };
  });
}

/** Places in order as terms: of a grid, those of each dimension; of others, all from the first to the last. */
function placesIn(places: readonly number[]): Term[] {
  const [first = 0, second] = places;
  const last = places.at(-1) ?? first;
  if (second === undefined) return [];
  const apart = second - first;
  const along = places.findIndex((place, i) => place !== first + i * apart);
  if (along === -1) return [term(apart, undefined, places.length)];
  const corners = places.filter((_, i) => i % along === 0);
  const isGrid = places.every((place, i) => place === (corners[Math.floor(i / along)] ?? 0) + (i % along) * apart);
  if (isGrid && places.length % along === 0) return [term(apart, undefined, along), ...placesIn(corners)];
  return [term(apart, undefined, Math.ceil((last - first) / apart) + 1)];
}

/** How far a step of each loop moves a place, in elements. */
type Slopes = ReadonlyMap<string, number>;

interface Place {
  readonly constant: number;
  readonly slopes: Slopes;
}

/** Where an access lies in memory. */
function placeOf({ dims, storage }: Stored, { index }: Access): Place {
  const pitches = formOf(storage);
  if (pitches === "other") return slopesOf(addressOf({ dims, storage }, index));
  return index.reduce<Place>((place, e, d) => moved(place, pitches.terms.get(dims[d]?.name ?? "") ?? 0, slopesOf(e)), {
    constant: pitches.constant,
    slopes: new Map(),
  });
}

/** A place, moved by so many times another. */
function moved(place: Place, times: number, by: Place): Place {
  const slopes = new Map(place.slopes);
  for (const [axis, slope] of by.slopes) slopes.set(axis, (slopes.get(axis) ?? 0) + times * slope);
  return { constant: place.constant + times * by.constant, slopes };
}

/** The slopes of an index, on average where it has quotients: a remainder stays where it is. */
function slopesOf(e: Expr): Place {
  const form = formOf(e);
  if (form !== "other") return { constant: form.constant, slopes: form.terms };
  if (e.kind !== "binary") return { constant: 0, slopes: new Map() };
  const left = slopesOf(e.left);
  const right = slopesOf(e.right);
  const scaled = (by: number): Place => ({
    constant: Math.floor(left.constant * by),
    slopes: new Map([...left.slopes].map(([axis, slope]) => [axis, slope * by])),
  });
  switch (e.op) {
    case "+":
      return moved(left, 1, right);
    case "-":
      return moved(left, -1, right);
    case "*":
      return scaled(right.constant);
    case "/":
      return scaled(1 / Math.max(1, right.constant));
    default:
      return { constant: 0, slopes: new Map() };
  }
}
