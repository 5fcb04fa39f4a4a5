/**
 * @file A measurement from elsewhere, such as the answer of a fleet's worker: it is held against what a record may hold before anything uses it.
 *
 *     readMeasurement({ status: "ok", median: 1e-12, ... }, { computation, threads: 1, environment })
 *     "its median of 1.00e-12 s is shorter than any call: ..."
 */

import { z } from "zod";
import { type Computation, equationText, pointCount } from "../abstraction/computation.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { COLUMNS } from "./columns.ts";
import { failure } from "./parse.ts";
import { impossibleTimes } from "./possible.ts";
import type { Environment } from "./record.ts";

const { trials } = COLUMNS;

const surroundings = {
  ran: z.strictObject({ cpus: trials.affinity.holds, load: trials.load.holds.optional() }).optional(),
  clock: trials.clock.holds.optional(),
};

const measurement = z.discriminatedUnion("status", [
  z.strictObject({
    status: z.literal("ok"),
    samples: trials.samples.holds,
    median: trials.median.holds,
    interval: z.tuple([trials.low.holds, trials.high.holds]),
    instructions: trials.instructions.holds,
    lostTo: trials.lost_to.holds.optional(),
    ...surroundings,
  }),
  z.strictObject({ status: failure, log: trials.log.holds, ...surroundings }),
]);

/** Where and of what a measurement is said to be. */
interface Claimed {
  readonly computation: Computation;
  readonly threads: number;
  readonly environment: Pick<Environment, "driver">;
}

/** A measurement that a record may hold and a machine can have made, or why this is none. */
export function readMeasurement(given: unknown, { computation, threads, environment }: Claimed): Measurement | string {
  const read = measurement.safeParse(given);
  if (!read.success) {
    const [issue] = read.error.issues;
    return `its field ${issue?.path.join(".")}: ${issue?.message}`;
  }
  const found = read.data as Measurement; // the fields of its columns
  const work = { points: pointCount(computation), equation: equationText(computation) };
  return impossibleTimes({ measurement: found, conditions: { threads } }, work, environment) ?? found;
}
