/**
 * @file Predicts the time of a stencil's time steps on lanes: the bytes of all passes over memory, and what steps load from the cache that holds
 * their rows.
 *
 *     bytes of a pass      the plane read once and written once (twice, where the cache fetches what is overwritten)
 *     bytes of a step      2r+1 rows read and one written, at the speed of the level that holds the rows of all steps; a row that is written over one
 *                          of those read is not fetched besides
 *     loads of a vector    one for each row; two for a row that is read off the lines of the cache, less where lines are shifted in registers
 */

import type { StepSchedule } from "../abstraction/candidate.ts";
import { sumOf, upTo } from "../abstraction/collections.ts";
import { elementCount, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { accessesIn } from "../abstraction/expression.ts";
import { unitCost } from "../abstraction/machine.ts";
import { operationsOfStep } from "../abstraction/time.ts";
import type { Steps } from "../mapper/space-time/plane.ts";
import {
  inBlock,
  keptRows,
  linesOf,
  overwrites,
  readsOf,
  registersOf,
  shiftsOf,
} from "../mapper/space-time/step-lines.ts";

import { REFERENCE_CPU } from "../targets/x86.ts";
import { NOT_OVERLAPPED } from "./lanes.ts";
import { levelHolding, overlapped, ratesOf } from "./rates.ts";
import type { ModelTarget } from "./target.ts";

const { issueCycles: FMA_CYCLES } = unitCost(REFERENCE_CPU, "fma");

/** Fraction of a cache that rows may fill, since the plane also streams through it. */
const ROWS_SHARE = 0.7;
/** Cycles of the loop around a vector, and of starting a row: addresses, and the columns at its ends that are done one by one. */
const VECTOR_CYCLES = 1;
const ROW_CYCLES = 60;
/** The same for a row of whole vectors: 3d7pt over rows of 4 and of 64 vectors in the first-level cache (an EPYC with AVX-512, 2026-11-23). */
const WHOLE_ROW_CYCLES = 7;
/**
 * Cost of a load that crosses a line, relative to one that does not: 0.47 to 0.49 ns against 0.29 in the first-level cache (an EPYC of Zen 4,
 * 2026-11-23).
 */
const CROSSING_LOADS = 1.6;

/** Seconds of all steps. */
export function stepSeconds(steps: Steps, s: StepSchedule, target: ModelTarget): number {
  const { axes, time, computation } = steps;
  const output = outputOf(computation);
  const bytes = bytesOf(output.dtype);
  const points = elementCount(output);
  const { depth } = s;
  const passes = Math.ceil(time.steps / depth);
  const [swept, tiled] = axes.length > 2 ? axes : axes.length > 1 ? [axes[0]] : [];
  const lane = axes.at(-1)?.extent ?? 1;
  const kept = 2 * (swept?.reach ?? 0) + 1;

  // 1. Rows computed twice where strips overlap: on average half of the halo of a pass.
  const high = tiled ? (s.strip > 0 ? Math.min(s.strip, tiled.extent) : tiled.extent) : 1;
  const again = tiled && high < tiled.extent ? 1 + ((depth - 1) * tiled.reach) / high : 1;
  const readAgain = tiled && high < tiled.extent ? 1 + (2 * depth * tiled.reach) / high : 1;

  // 2. A step: what a vector computes, and what it moves between the lanes and the rows of all steps.
  const arithmetic = operationsOfStep(time);
  const vectors = points / s.lanes;
  const line = bytes * s.lanes;
  const loaded = loadsOfVector(steps, s) / target.loadsPerCycle.value;
  const issued = Math.max(arithmetic * FMA_CYCLES, loaded, 1 / target.storesPerCycle.value);
  const rowBytes = lane * bytes * (tiled ? high + 2 * (depth - 1) * tiled.reach : 1);
  const workingSet = rowBytes * (keptRows(steps) * (depth - 1) + kept);
  const level =
    target.memory.find((m) => m.bytes !== undefined && workingSet <= m.bytes * ROWS_SHARE) ?? target.memory.at(-1);
  const fetched = line / (level?.readBytesPerCycle.value ?? 1);
  const stored = line / (level?.writeBytesPerCycle.value ?? 1);
  // Two planes together read four for their outputs, where each apart reads three.
  const moved = ((kept + s.rows - 1) / s.rows) * fetched + (overwrites(steps) ? Math.max(0, stored - fetched) : stored);
  const rows = points / lane;
  const begun = axes.at(-1)?.border === "zero" ? WHOLE_ROW_CYCLES : ROW_CYCLES;
  const step = vectors * Math.max(issued + VECTOR_CYCLES, moved) + rows * begun;

  // 3. A pass over memory.
  const { read, write } = ratesOf(levelHolding(target, 2 * points * bytes), s.streaming, target);
  const memory = passes * points * bytes * (readAgain / read + 1 / write);
  const compute = time.steps * step * again;
  // The first step of a pass only waits for memory, and so does the last step's store; only the steps in between overlap with it.
  const all = overlapped(compute, memory, depth > 1 ? 1 : NOT_OVERLAPPED);
  // 4. Threads share the rows. Each recomputes the rows of its neighbours that its steps need.
  const share = (swept?.extent ?? 1) / s.threads;
  const overlap = s.threads > 1 ? 1 + ((depth - 1) * (swept?.reach ?? 0)) / share : 1;
  return (all * overlap) / s.threads / target.clockHz.value;
}

/** Loads of a vector, in loads of a whole cache line. */
function loadsOfVector(steps: Steps, s: StepSchedule): number {
  const lines = linesOf(steps, s, s.rows);
  const isLine = (shifts: readonly number[], row: number): boolean =>
    lines.some(({ rows }) => rows.join() === inBlock(shifts, row).join());
  const each = readsOf(steps)
    .map(shiftsOf)
    .flatMap((shifts) => upTo(s.rows).map((row) => ({ shifts, row })))
    .filter(({ shifts, row }) => !isLine(shifts, row))
    .map(({ shifts }) => (shifts.at(-1) === 0 ? 1 : CROSSING_LOADS));
  const others = accessesIn(steps.time.step.equation.value).length - readsOf(steps).length;
  const held = sumOf(lines, (line) => registersOf(line, s.vectors)) / s.vectors;
  return others + (sumOf(each) + held) / s.rows;
}
