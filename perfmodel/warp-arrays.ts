/**
 * @file Predicts the time of a lane design given by its transform on the lanes of a GPU's warps: what a quarter of a multiprocessor issues for one
 * pass, how long a warp waits, and the bytes that all passes move.
 *
 *     FBS of a 3x3 filter, 4 x 2 passes side by side      72 multiply-adds, 54 loads of 1 line, 8 stores
 *     SBM                                                 72 multiply-adds, 24 loads, 48 shuffles
 *
 * The costs of instructions are those of windows (warps.ts), whose kernels were measured.
 */

import { affineForm } from "../abstraction/affine.ts";
import type { WarpDesignSchedule } from "../abstraction/candidate.ts";
import { elementCount, inputsOf, outputOf, tensorOf } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";
import type { Access } from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import { levelOf, memoryOf, readRate, type Target } from "../abstraction/machine.ts";
import type { OperandFlow } from "../mapper/space-time/design.ts";
import type { LaneArray } from "../mapper/space-time/lane-array.ts";
import { MOST_UNROLLED_STEPS } from "../mapper/space-time/lower.ts";
import { heldAs } from "../mapper/space-time/lower-computation.ts";
import { operandAccesses } from "../mapper/space-time/problem.ts";
import { inverseOf } from "../mapper/space-time/reverse.ts";
import { laneCosts } from "../targets/lanes.ts";
import { CONSTANT_BYTES, LINE_BYTES } from "../targets/nvidia-gpu.ts";
import { copiesOf, distinctLoads, leavingSteps, strideOf } from "./arrays.ts";
import type { CostTerm } from "./correct.ts";
import {
  FETCH_TURNS,
  LOAD_INSTRUCTIONS,
  LOAD_TURNS,
  LOADED,
  NEAR_INSTRUCTIONS,
  NOT_OVERLAPPED,
  OTHER_REGISTERS,
  QUARTER_REGISTERS,
  QUARTER_WARPS,
  residentOf,
  SHUFFLE_TURNS,
  tailOf,
  WORD_BYTES,
} from "./warps.ts";

/** A factor in constant memory is an operand of its multiply-add. Where its place depends on a loop, it is loaded first. */
const CONSTANT_TURNS = 0.8;
/** Integer multiply-adds run at half the rate. Source: CUDA C++ Programming Guide, Throughput of Native Arithmetic Instructions. */
const INTEGER_TURNS = 2;
/** A conversion of f16, or of a narrow integer, at a quarter of the rate or faster. Source: the same. */
const CONVERSION_TURNS = 2;
/** Loaded values that a compiler keeps at the same time beside the sums, of each pass. */
const HELD_LOADS = 2;

/** What the passes side by side of one array issue, in issue cycles of a quarter. */
export interface WarpArrayCosts {
  readonly multiplyAdds: number;
  readonly shuffles: number;
  /** Conversions of narrow elements to 32-bit lanes, and back. */
  readonly conversions: number;
  /** Loads and stores, by what they issue and by the lines of the first cache that they request. */
  readonly accesses: number;
  /** Cycles of the longest chain of sums. */
  readonly waiting: number;
  /** 32-bit registers of a lane. */
  readonly registers: number;
  /** Cycles of one block, and the number of blocks. */
  readonly cycles: number;
  readonly blocks: number;
}

/** Seconds of a call. */
export function warpArraySeconds(array: LaneArray, s: WarpDesignSchedule, target: Target): number {
  const costs = warpArrayCosts(array, s, target);
  const { sum, space, beside } = array;
  const clock = target.clockHz?.value ?? 1;

  // 1. Arrays are dealt to warps, or to equal parts of them; the passes of one sum follow one another.
  const inner = new Set(beside.map((l) => l.name));
  const summed = new Set(array.joined);
  const passes = space.outside.reduce((n, l) => (inner.has(l.name) || !summed.has(l.name) ? n : n * l.extent), 1);
  const arrays = costs.blocks / passes;
  const total = Math.ceil((arrays * s.lanes) / WARP);
  const quarters = levelOf(target, "block").units * levelOf(target, "warp").units;
  const fitting = Math.min(QUARTER_WARPS, Math.floor(QUARTER_REGISTERS / (costs.registers + OTHER_REGISTERS)));
  const warps = Math.min(residentOf(Math.max(1, fitting), s.warps), Math.ceil(total / quarters));

  // 2. Time that is not unrolled waits for memory in every round.
  const rounds = Math.max(1, Math.ceil(array.design.steps / MOST_UNROLLED_STEPS));
  const latency = LOADED * (memoryOf(target, "dram").latencyCycles?.value ?? 0) + costs.waiting / rounds;
  const turns = costs.cycles / rounds;
  const round = Math.max(warps * turns, turns + latency);
  const waves = Math.max(1, total / quarters / warps) * (1 + (tailOf(s.warps) * quarters) / Math.max(total, quarters));
  const busy = (waves * passes * rounds * round) / clock;

  // 3. Every element once from memory; what several arrays read, from the cache.
  const output = outputOf(sum);
  const written = elementCount(output) * bytesOf(output.dtype);
  const read = inputsOf(sum).reduce((n, t) => n + elementCount(t) * bytesOf(t.dtype), 0);
  const near = read + written <= (memoryOf(target, "l2").bytes?.value ?? 0);
  const rateOf = (memory: string): number => readRate(target, memory, "grid")?.value ?? Number.POSITIVE_INFINITY;
  const moving = Math.max(
    (read + written) / rateOf(near ? "l2" : "dram"),
    (readOf(array) * costs.blocks + written) / rateOf("l2"),
  );
  const launch = target.fixed["launch"]?.value ?? 0;
  return launch + Math.max(busy, moving) + NOT_OVERLAPPED * Math.min(busy, moving);
}

/** The work of a warp, whose parts each run an array, for one pass of arrays side by side. */
export function warpArrayCosts(array: LaneArray, s: WarpDesignSchedule, target: Target): WarpArrayCosts {
  const { sum, design, space, beside } = array;
  const { multiplyAdd, shift, load } = laneCosts(target);
  const inner = new Set(beside.map((l) => l.name));
  const copies = beside.reduce((n, l) => n * l.extent, 1);
  const blocks = space.outside.reduce((n, l) => (inner.has(l.name) ? n : n * l.extent), 1);
  const { steps } = design;
  const output = outputOf(sum);
  const held = heldAs(output.dtype);
  const words = bytesOf(held) / WORD_BYTES;
  const parts = WARP / s.lanes;
  const inverse = inverseOf([...array.spaceTime.allocation, ...array.spaceTime.schedule]);
  const { inputs, output: result } = operandAccesses(sum);
  const each = multiplyAdd.issueCycles * (isInteger(held) ? INTEGER_TURNS : words);
  let multiplyAdds = steps * copies * each;
  let shuffles = 0;
  let conversions = 0;
  let loads = 0;
  let lines = 0;
  let others = 0;
  let registers = 0;
  let waiting = 0;
  for (const [i, flow] of design.flows.entries()) {
    const read = inputs[i];
    if (flow.role === "input" && read) {
      const own = copiesOf(array, read, copies);
      const isPassed = s.inputs === "passed" && hops(flow) > 0;
      const count = isPassed ? steps * own : distinctLoads(array, read, inverse, steps * own);
      const { dtype } = tensorOf(sum, read.tensor);
      conversions += bytesOf(dtype) < WORD_BYTES ? count * CONVERSION_TURNS : 0;
      if (isPassed) shuffles += steps * own * hops(flow) * (bytesOf(dtype) > WORD_BYTES ? 2 : 1);
      registers += own * (isPassed ? depthOf(flow) : HELD_LOADS) * (bytesOf(heldAs(dtype)) / WORD_BYTES);
      if (isConstant(array, read) && strideOf(array, read, inverse) === 0) others += count * CONSTANT_TURNS;
      else {
        loads += count;
        lines += count * parts * linesOf(strideOf(array, read, inverse), s.lanes, dtype);
      }
      continue;
    }
    const dependences = flow.variables.flatMap((v) => v.dependences);
    const isAcross = dependences.some((d) => d.steps === 0) || flow.letter === "A";
    const across = isAcross ? Math.ceil(Math.log2(s.lanes)) : 0;
    const moved = hops(flow) > 0 ? 1 : 0;
    shuffles += steps * copies * (moved + across) * words;
    multiplyAdds += steps * copies * across * each;
    const apart = Math.min(...dependences.flatMap((d) => (d.steps > 0 ? [d.steps] : [])), Number.POSITIVE_INFINITY);
    const link = (multiplyAdd.latencyCycles ?? 0) + moved * (shift.latencyCycles ?? 0);
    waiting = Number.isFinite(apart)
      ? (steps * link) / apart
      : across * ((multiplyAdd.latencyCycles ?? 0) + (shift.latencyCycles ?? 0));
    const leaving = leavingSteps(array);
    const stored = leaving * copies;
    registers += copies * depthOf(flow) * words;
    // Where passes of one sum follow one another, a result is read before it is written.
    const touched = stored * (array.joined.length > 0 ? 2 : 1);
    loads += touched;
    lines += touched * parts * (leaving > 1 ? 1 : linesOf(strideOf(array, result, inverse), s.lanes, output.dtype));
    conversions += held === output.dtype ? 0 : stored * CONVERSION_TURNS;
  }
  const written = Math.min(steps, MOST_UNROLLED_STEPS) * copies + loads * LOAD_INSTRUCTIONS;
  const far = FETCH_TURNS * Math.max(0, written - NEAR_INSTRUCTIONS);
  const issued = multiplyAdds + conversions + others + loads * LOAD_TURNS + shuffles * SHUFFLE_TURNS + far;
  const requests = lines * load.issueCycles;
  return {
    multiplyAdds,
    conversions,
    waiting,
    registers,
    blocks,
    shuffles: shuffles * SHUFFLE_TURNS,
    accesses: Math.max(loads * LOAD_TURNS, requests),
    cycles: Math.max(issued, requests),
  };
}

/** Seconds of each part of a call, as if it ran alone on all quarters. */
export function warpArrayParts(array: LaneArray, s: WarpDesignSchedule, target: Target): readonly CostTerm[] {
  const { multiplyAdds, shuffles, conversions, accesses, waiting, blocks } = warpArrayCosts(array, s, target);
  const quarters = levelOf(target, "block").units * levelOf(target, "warp").units;
  const each = (blocks * s.lanes) / WARP / quarters / (target.clockHz?.value ?? 1);
  const cycles = {
    "multiply-adds": multiplyAdds,
    shifts: shuffles,
    conversions,
    loads: accesses,
    "chains of sums": waiting,
  };
  return Object.entries(cycles).map(([name, count]) => ({ name, seconds: count * each }));
}

/** Transfers between lanes that a value takes at each step. */
function hops({ variables }: OperandFlow): number {
  return variables.flatMap((v) => v.dependences).filter((d) => d.steps > 0 && d.hop.some((x) => x !== 0)).length;
}

const depthOf = ({ variables }: OperandFlow): number =>
  Math.max(1, ...variables.flatMap((v) => v.dependences).map((d) => d.steps));

function isConstant({ sum }: LaneArray, { tensor }: Access): boolean {
  const own = tensorOf(sum, tensor);
  return own.constant && elementCount(own) * bytesOf(own.dtype) <= CONSTANT_BYTES;
}

/** Lines of a load by lanes whose elements lie `stride` apart; undefined where they do not lie at equal distances. */
function linesOf(stride: number | undefined, lanes: number, dtype: DType): number {
  if (stride === undefined) return lanes;
  return Math.min(lanes, Math.max(1, Math.ceil((Math.abs(stride) * lanes * bytesOf(dtype)) / LINE_BYTES)));
}

/** Bytes of the boxes that the passes side by side of one array read. */
function readOf({ sum, space, beside }: LaneArray): number {
  const { inputs } = operandAccesses(sum);
  return inputs.reduce((bytes, read) => {
    const { dims, dtype } = tensorOf(sum, read.tensor);
    const elements = read.index.reduce((n, index, d) => {
      const terms = affineForm(index)?.terms ?? new Map<string, number>();
      const inside = space.inside.reduce((m, l) => m + Math.abs(terms.get(l.name) ?? 0) * (l.extent - 1), 0);
      const along = beside.reduce((m, l) => {
        const of = space.tiled.find((t) => t.outer === l.name);
        return m + Math.abs(terms.get(of?.name ?? l.name) ?? 0) * (of?.size ?? 1) * (l.extent - 1);
      }, 0);
      return n * Math.min(dims[d]?.extent ?? 1, 1 + inside + along);
    }, 1);
    return bytes + elements * bytesOf(dtype);
  }, 0);
}
