/**
 * @file Predicts the time of a nest on GPU warps from its census: the instructions that a quarter of a multiprocessor issues, the latency of one warp
 * alone, and the bytes moved.
 *
 *     one run       the busiest of instructions, arithmetic, loads and shuffles, constants; of the second of them a part shows beside it
 *     all runs      as often as warps run them; at least as long as a warp waits by itself, in as many waves as registers allow
 *     all bytes     once from memory, what blocks read from the last cache, what stores send to it
 */

import { boundsOf, type Extents } from "../abstraction/affine.ts";
import { namesOf, product, sumOf } from "../abstraction/collections.ts";
import { type Computation, elementCount, inputsOf, outputOf } from "../abstraction/computation.ts";
import { bytesOf, isInteger } from "../abstraction/dtype.ts";
import { accessesIn } from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import type { Loop, LoopNest, Statement } from "../abstraction/loop-nest.ts";
import { levelOf, memoryOf, type Target, unitCost } from "../abstraction/machine.ts";
import { USUAL_WARPS } from "../mapper/schedule/lane-decisions.ts";
import { warpsHolding } from "../mapper/space-time/warp-tile.ts";
import { laneCosts } from "../targets/lanes.ts";
import { CONSTANT_BYTES, LINE_BYTES, SECTOR_BYTES } from "../targets/nvidia-gpu.ts";
import type { Costs } from "./correct.ts";
import { launchOf, rateOn, staysNear, writeRateOf } from "./rates.ts";
import { type VectorRun, vectorRuns, WORD_BYTES } from "./vector-census.ts";
import { LOADED, NOT_OVERLAPPED } from "./warps.ts";

/** Integer multiply-adds run at half the rate. Source: CUDA C++ Programming Guide, Throughput of Native Arithmetic Instructions. */
const INTEGER_TURNS = 2;

// Instructions that the compiler adds, counted in SASS of the designs of bench/trials/cuda-designs-h100 (ptxas 13.0, 2026-11-29).

/** Of a load under a test, beside it: its register is cleared first, or the load is jumped over. */
const GUARD_TURNS = 1;
/** Of a test: comparisons, and where they are joined. */
const TEST_TURNS = 1.5;
/** Of a value taken from one of two. */
const SELECT_TURNS = 2;
/** Of a loop around a run. */
const LOOP_TURNS = 6;
/** Loops shorter than this many instructions are unrolled, at most so often, and their loads wait together. */
const UNROLLED_TURNS = 64;
const MOST_UNROLLED = 8;
/** Fraction of the second busiest unit of a quarter that does not overlap with the busiest; adjusted on the same designs. */
const UNITS_SHOWING = 0.25;
/** How much longer the last blocks of a quarter take, in blocks. */
const TAIL = 0.45;

/** How the warps of a nest are grouped. */
interface OnWarps {
  /** Lanes of an array: a warp, or an equal part of it. */
  readonly lanes: number;
  /** Warps of a block. */
  readonly warps?: number | undefined;
}

/** Seconds of a call. */
export function secondsOnWarps(nest: LoopNest, computation: Computation, on: OnWarps, target: Target): number {
  return costsOnWarps(nest, computation, on, target).bounds[0];
}

/** The prediction in the form that a correction reads: seconds of each part as if it ran alone, and of the call. */
export function costsOnWarps(
  nest: LoopNest,
  computation: Computation,
  { lanes, warps: ofBlock = USUAL_WARPS }: OnWarps,
  target: Target,
): Costs {
  const part = lanes / WARP;
  const runs = vectorRuns(nest, computation.tensors, {
    lineBytes: LINE_BYTES,
    sectorBytes: SECTOR_BYTES,
    constants: constantsOf(computation),
    arrays: 1 / part,
  });
  const machine = costsOf(nest, part, target);

  // 1. What all warps keep busy, and what one of them takes by itself.
  const parts = { "multiply-adds": 0, shifts: 0, conversions: 0, loads: 0, "chains of sums": 0 };
  let busy = 0;
  let alone = 0;
  let sent = 0;
  let added = 0;
  for (const run of runs) {
    const { cycles, waiting, ...own } = turnsOf(run, machine);
    busy += run.times * cycles;
    alone += (run.times / run.parallel) * (cycles / part + waiting);
    sent += run.times * run.sentBytes;
    added += run.times * run.added;
    for (const name of Object.keys(own) as (keyof typeof own)[]) parts[name] += run.times * own[name]; // its own keys
    parts["chains of sums"] += run.times * part * waiting;
  }

  // 2. Blocks on multiprocessors, and their warps on quarters. The last blocks end together.
  const quarters = levelOf(target, "warp").units;
  const multiprocessors = levelOf(target, "block").units;
  const [run] = runs;
  const total = (run?.parallel ?? 1) * part;
  const blocks = Math.ceil(total / ofBlock);
  const used = Math.min(blocks, multiprocessors) * quarters;
  const resident = warpsHolding((run?.registers ?? 0) * machine.words);
  const tail = (TAIL * ofBlock * busy) / USUAL_WARPS / total;
  const waves = Math.max(1, total / used / resident);
  const clock = target.clockHz?.value ?? 1;
  const computing = Math.max(busy / used + tail, waves * alone) / clock;

  // 3. Bytes. Results that are added to are cleared first, by a kernel of one element a lane.
  const output = outputOf(computation);
  const written = elementCount(output) * bytesOf(output.dtype);
  const read = sumOf(inputsOf(computation), (t) => elementCount(t) * bytesOf(t.dtype));
  const far = rateOn(target, staysNear(target, read + written) ? "l2" : "dram");
  const sending = writeRateOf(target) * multiprocessors;
  const again = added > 0 ? 1 : 0;
  const fetched = (blockBytes(nest, computation, ofBlock / part) * total) / part;
  const moving = Math.max(
    (read + written * (1 + again)) / far,
    (fetched + again * sent) / rateOn(target, "l2") + sent / sending,
  );
  const beginning = target.fixed["blockStart"]?.value ?? 0;
  const cleared = again * Math.max(written / far, (elementCount(output) / WARP / ofBlock) * beginning);
  const slower = Math.max(computing, moving, blocks * beginning);
  const seconds = launchOf(target) + cleared + slower + NOT_OVERLAPPED * Math.min(computing, moving);
  const terms = Object.entries(parts).map(([name, turns]) => ({ name, seconds: turns / used / clock }));
  return { terms: [...terms, { name: "memory", seconds: cleared + moving }], bounds: [seconds, seconds], traits: [] };
}

/** Costs on a quarter of a multiprocessor, in cycles. */
interface WarpCosts {
  /** Of a warp, what an array takes. */
  readonly part: number;
  /** Words of a value that sums hold, and issue cycles of its multiply-add. */
  readonly words: number;
  readonly multiplyAdd: number;
  readonly latency: number;
  readonly shiftLatency: number;
  /** A line of the first cache, or a shuffle: one unit serves both. */
  readonly load: number;
  readonly shift: number;
  readonly constant: number;
  readonly loadLatency: number;
}

function costsOf({ vectors = [] }: LoopNest, part: number, target: Target): WarpCosts {
  const { multiplyAdd, shift, load, level } = laneCosts(target);
  const held = vectors.map((v) => v.dtype);
  const words = Math.max(...held.map(bytesOf)) / WORD_BYTES;
  return {
    part,
    words,
    multiplyAdd: multiplyAdd.issueCycles * (held.some(isInteger) ? INTEGER_TURNS : words),
    latency: multiplyAdd.latencyCycles * words,
    shiftLatency: shift.latencyCycles * words,
    load: load.issueCycles,
    shift: shift.issueCycles * words,
    constant: unitCost(target, "constant", level).issueCycles,
    loadLatency: LOADED * (memoryOf(target, "l2").latencyCycles?.value ?? 0),
  };
}

/** What a run keeps busy on a quarter, and how long its warp waits besides. */
function turnsOf(run: VectorRun, costs: WarpCosts) {
  const { part, words } = costs;
  const folds = run.reductions * Math.log2(WARP * part);
  const values = run.multiplyAdds + run.arithmetic + run.added + run.shifts + SELECT_TURNS * run.blends + 2 * folds;
  const accesses = run.loads + run.stores + run.added + run.constants + GUARD_TURNS * run.guardedLoads;
  const conversions = run.widened + run.narrowed;
  const issued = part * (values * words + accesses + TEST_TURNS * run.tests + conversions + LOOP_TURNS);
  const shifts = part * (run.shifts + folds) * costs.shift;
  const loads = run.lines * costs.load;
  const products = part * run.multiplyAdds * costs.multiplyAdd;
  const slowest = Math.max(issued, loads + shifts, products, part * run.constants * costs.constant);
  const isLoop = run.times > run.parallel;
  const together = isLoop ? Math.max(1, Math.min(MOST_UNROLLED, Math.floor((UNROLLED_TURNS * part) / issued))) : 1;
  const chain = run.chain.operations * costs.latency + run.chain.shifts * costs.shiftLatency;
  return {
    cycles: slowest + UNITS_SHOWING * Math.min(issued, loads + shifts),
    waiting: chain + (run.loads > 0 ? costs.loadLatency / together : 0),
    "multiply-adds": products,
    shifts,
    conversions: part * conversions,
    loads,
  };
}

/** Tensors that fit in constant memory. */
function constantsOf({ tensors }: Computation): ReadonlySet<string> {
  const fitting = Object.values(tensors).filter(
    (t) => t.constant && elementCount(t) * bytesOf(t.dtype) <= CONSTANT_BYTES,
  );
  return new Set(namesOf(fitting));
}

/** Bytes of the boxes that the arrays of a block read, an array. @param arrays of a block, which are neighbours */
function blockBytes(nest: LoopNest, { tensors }: Computation, arrays: number): number {
  const shared: Loop[] = [];
  for (let [first] = nest.body; first?.kind === "loop" && first.mode === "parallel"; [first] = first.body)
    shared.push(first);
  const together: Record<string, number> = {};
  let left = arrays;
  for (const { axis, extent } of shared.toReversed()) {
    together[axis] = Math.max(1, Math.min(extent, left));
    left = Math.floor(left / together[axis]);
  }
  const boxes = new Map<string, (readonly [least: number, most: number])[]>();
  const visit = (body: readonly Statement[], extents: Extents): void => {
    for (const s of body) {
      if (s.kind === "loop") visit(s.body, { ...extents, [s.axis]: together[s.axis] ?? s.extent });
      else if (s.kind === "when") visit([...s.body, ...s.otherwise], extents);
      if (s.kind !== "scalar") continue;
      const within = s.together ? { ...extents, [s.together.name]: s.together.extent } : extents;
      for (const { tensor, index } of accessesIn(s.equation.value)) {
        if (!tensors[tensor]) continue;
        const box = boxes.get(tensor);
        const bounds = index.map((e, d) => {
          const [least, most] = boundsOf(e, within);
          const [low, high] = box?.[d] ?? [least, most];
          return [Math.min(least, low), Math.max(most, high)] as const;
        });
        boxes.set(tensor, bounds);
      }
    }
  };
  visit(nest.body, {});
  const bytes = [...boxes].reduce((sum, [name, box]) => {
    const { dims = [], dtype = "f32" } = tensors[name] ?? {};
    const sides = box.map(([least, most], d) => Math.min(dims[d]?.extent ?? 1, most - least + 1));
    return sum + bytesOf(dtype) * product(sides);
  }, 0);
  return bytes / product(Object.values(together));
}
