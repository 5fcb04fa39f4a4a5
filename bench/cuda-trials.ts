/**
 * @file Writes and reads trials of GPU kernels for the benches, one a line.
 *
 *     {"kind":"trial","case":"c2d-5@16 last","suite":{...},"candidate":{...},"status":"ok","median":9.1e-6,...}
 */

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { z } from "zod";
import type { Candidate, GridCandidate, ThreadCandidate } from "../abstraction/candidate.ts";
import type { Measurement } from "../abstraction/trial.ts";
import type { Configuration } from "./cuda-suite-cases.ts";
import type { Case } from "./cuda-suite-report.ts";

/** A trial of a configuration of the suite. */
export function trialOf({ id, op, params, layout, dtype }: Case, candidate: Candidate, measurement: Measurement) {
  const came =
    measurement.status === "ok"
      ? { status: "ok", median: measurement.median, interval: measurement.interval }
      : { status: measurement.status, log: measurement.log.slice(0, 300) };
  const name = dtype === "f16" ? `${id} ${layout}` : `${id} ${layout} ${dtype}`;
  return { kind: "trial", case: name, suite: { op, params, layout, dtype }, candidate, ...came } as const;
}

const TRIAL = z.object({
  kind: z.literal("trial"),
  case: z.string(),
  /** Present in trials of the suite. */
  suite: z.custom<Configuration>().optional(),
  candidate: z.custom<GridCandidate | ThreadCandidate>(
    (value) => z.object({ kind: z.enum(["grid", "threads"]) }).safeParse(value).success,
  ),
  /** Seconds. */
  median: z.number(),
  /** 95 % interval of the median. */
  interval: z.tuple([z.number(), z.number()]).optional(),
  /** The median of a second measurement, by another process. */
  again: z.number().optional(),
});
export type TimedTrial = z.infer<typeof TRIAL>;

/** The trials of a file that ended with a time. */
export function timedTrialsIn(file: string): readonly TimedTrial[] {
  const bytes = readFileSync(file);
  const text = (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8");
  return text.split("\n").flatMap((line) => TRIAL.safeParse(line === "" ? undefined : JSON.parse(line)).data ?? []);
}
