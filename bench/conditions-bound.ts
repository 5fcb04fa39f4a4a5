/**
 * @file What no kernel of a computation can beat on this machine: the larger of two times.
 *
 *     memory   every byte of the inputs that some point reads is read once, every byte of the result written once, and nothing else done:
 *              measured (bench/peers/touch.cpp), the fastest call of four ways to do it
 *     issues   the tiles, at multiples of the instruction's extents, in which the condition holds at some point, times the cycles between two
 *              issues (calibrated): the least over all mappings onto all instructions of the machine
 *
 * What packs inputs, loads tiles, masks, and waits is left out, and so is that memory and arithmetic may not overlap.
 */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Computation, inputsOf, memoryElements, outputOf, pointCount } from "../abstraction/computation.ts";
import { usefulPoints } from "../abstraction/condition.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { accessesIn, axesIn } from "../abstraction/expression.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { plainSchedule, unschedulable } from "../mapper/schedule/mapped.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { createCounts } from "../perfmodel/plan.ts";
import { runChild } from "../runtime/child.ts";
import type { Cores } from "../runtime/cores.ts";
import { nativeIntrinsics } from "../session/tune.ts";

export interface Bound {
  /** Seconds of a call: the larger of the two. */
  readonly seconds: number;
  readonly memory: number;
  readonly issues: number;
  /** What the fewest seconds of issues are of. */
  readonly instruction: string;
}

/** Compiles the program that touches memory. @returns seconds of the fastest call for each computation, inputs and result warm */
export function memoryBounds(
  folder: string,
  cores: Cores,
): (computations: readonly Computation[]) => Promise<number[]> {
  const program = join(folder, "touch");
  const source = fileURLToPath(new URL("./peers/touch.cpp", import.meta.url));
  execFileSync("g++", ["-O3", "-march=native", source, "-o", program]);
  return async (computations) => {
    const bytes = computations.map((c) => `${bytesIn(outputOf(c))}:${readBytes(c)}`);
    const run = await cores.measuring(cores.processors, ([cpu = 0]) =>
      runChild([program, ...bytes], { timeLimitMs: 60_000, cpus: [cpu] }),
    );
    if (run.status !== "ok") throw new Error(`${program}: ${run.status}`);
    return run.stdout.trim().split("\n").map(Number);
  };
}

const bytesIn = (tensor: ReturnType<typeof outputOf>): number => memoryElements(tensor) * bytesOf(tensor.dtype);

/** Of each input what some point reads, where its index is loops alone; a condition among its own loops leaves the rest unread. */
function readBytes(computation: Computation): number {
  const { where, value } = computation.equation;
  const share = usefulPoints(computation) / pointCount(computation);
  return inputsOf(computation).reduce((sum, tensor) => {
    const read = accessesIn(value).find((a) => a.tensor === tensor.name);
    const loops = read?.index.flatMap(axesIn) ?? [];
    const isTied = where !== undefined && axesIn(where).every((l) => loops.includes(l));
    return sum + (isTied ? share : 1) * bytesIn(tensor);
  }, 0);
}

/** The fewest seconds that issues take, and of which instruction. */
export function issueBound(computation: Computation, calibration: Calibration): Pick<Bound, "issues" | "instruction"> {
  let least: Pick<Bound, "issues" | "instruction"> = { issues: Number.POSITIVE_INFINITY, instruction: "none" };
  for (const intrinsic of nativeIntrinsics()) {
    const timing = calibration.intrinsics[intrinsic.name];
    if (timing === undefined) continue;
    for (const mapping of mappings(computation, intrinsic).valid) {
      if (unschedulable(mapping) !== undefined) continue;
      const counted = createCounts(mapping)(plainSchedule(mapping));
      if (counted === undefined) continue;
      const issues = (counted.issues * timing.issueCycles.median) / calibration.clockHz.median;
      if (issues < least.issues) least = { issues, instruction: intrinsic.name };
    }
  }
  return least;
}
