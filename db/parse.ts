/**
 * @file Defines the valid rows of each table, field by field. This is the only place where data written by others becomes a record: rows that
 * are read, lines that are imported and rows about to be written all pass through it. rows.ts turns the result into records.
 *
 *     candidate.schedule.block  { "q": 12 }           { "q": 2000000 } is refused: Too big: expected number to be <=1024
 *     environment.cpu           "Intel(R) Xeon(R)"    "\u001b[2J" is refused: holds a character that cannot be seen
 *
 * Objects are closed: an unknown entry is refused, never passed on to code that might print it.
 */

import { z } from "zod";
import type { Candidate, Kind } from "../abstraction/candidate.ts";
import { REWRITINGS } from "../abstraction/computation.ts";
import { DTYPES } from "../abstraction/dtype.ts";
import { identifier, named } from "../abstraction/schema.ts";
import { type MeasurementStatus, type Prediction, THROTTLES } from "../abstraction/trial.ts";
import { KINDS } from "../mapper/schedule/kinds.ts";
import { MAPPED_DECISIONS } from "../mapper/schedule/mapped-decisions.ts";
import { type Decisions, scheduleSchema } from "../mapper/schedule/schedules.ts";
import {
  expression,
  extent,
  hash,
  json,
  line,
  log,
  notation,
  plainData,
  plainEntries,
  seconds,
  time,
  title,
  word,
} from "./parse-text.ts";
import { WORKLOAD_NAME } from "./record.ts";

// ---- Candidates

const THREADS = 4096;
/** Most loops, instruction axes or tensors of a computation. */
const LOOPS = 64;

const threads = MAPPED_DECISIONS.threads.schema;
const mapping = {
  intrinsic: word,
  matching: named(identifier, z.array(identifier).max(LOOPS)),
  operands: named(identifier, expression("value")),
  rewriting: z.enum(REWRITINGS).optional(),
};
const MAPPED: readonly Kind[] = ["mapping", "grid", "threads"];

/** Schemas by kind. */
const SCHEMAS: ReadonlyMap<unknown, z.ZodType<Candidate>> = new Map(
  Object.entries(KINDS).map(([kind, { decisions }]) => {
    const isMapping = MAPPED.some((name) => name === kind);
    const schema = z.strictObject({
      kind: z.literal(kind),
      ...(isMapping ? mapping : { intrinsic: word }),
      schedule: scheduleSchema(decisions as Decisions<object, never>), // each kind has its own
    });
    return [kind, schema as unknown as z.ZodType<Candidate>]; // of the kind that it names
  }),
);

const candidate: z.ZodType<Candidate> = z.unknown().transform((given, context): Candidate => {
  const kind = z.looseObject({ kind: z.unknown() }).safeParse(given).data?.kind;
  const known = SCHEMAS.get(kind);
  if (!known) {
    context.addIssue({
      code: "custom",
      message: `is of kind ${JSON.stringify(kind)?.slice(0, 40)}, which this automap does not know`,
      path: ["kind"],
    });
    return z.NEVER;
  }
  const result = known.safeParse(given);
  if (result.success) return result.data;
  for (const { message, path } of result.error.issues) context.addIssue({ code: "custom", message, path: [...path] });
  return z.NEVER;
});

/** Cycles and trips of a prediction; no model counts higher. */
const figure = z.number().nonnegative().max(1e30);

const levels: z.ZodType<Prediction["levels"]> = z
  .array(
    z.strictObject({
      level: word,
      trips: figure,
      inner: figure,
      read: figure,
      write: figure,
      bound: z.enum(["inner", "read", "write"]),
    }),
  )
  .max(32);

// ---- Rows

export const environmentRow = z.object({
  id: hash,
  target: line,
  cpu: line,
  cores: z.number().int().positive().max(65_536),
  isa: json(z.array(word).max(1000)),
  compiler: line,
  compiler_version: line,
  flags: json(z.array(line).max(1000)),
  kernel: line,
  driver: line.nullable(),
  node: line,
  automap: line,
});

export const workloadRow = z.object({
  id: hash,
  operator: title,
  computation: notation,
  equation: notation,
  extents: json(named(identifier, extent, LOOPS)),
  parameters: json(named(identifier, z.number().int())),
  tensors: json(
    named(
      identifier,
      z.strictObject({
        dtype: z.enum(DTYPES),
        dims: z.array(identifier).max(LOOPS),
        shape: z.array(extent).max(LOOPS),
        storage: expression("formula"),
        constant: z.boolean(),
      }),
    ),
  ),
  dtype: word,
  sum: z.enum(DTYPES),
  points: z.number().positive().max(Number.MAX_SAFE_INTEGER),
  name: z.string().regex(WORKLOAD_NAME).nullable().default(null),
});

export const runRow = z.object({
  id: hash,
  workload: hash,
  environment: hash,
  seed: z.number().int(),
  options: json(plainEntries),
  budget: json(plainEntries),
  process: z
    .number()
    .int()
    .nonnegative()
    .max(2 ** 32),
  started: time,
  ended: time.nullable(),
  status: z.enum(["running", "done", "interrupted", "failed"]),
});

/** Predicted seconds, including those of candidates too slow to run. */
const expected = z.number().positive().max(1e15);

const trialFacts = z.object({
  id: hash,
  run: hash.nullable(),
  workload: hash,
  environment: hash,
  candidate: json(candidate),
  intrinsic: word,
  declaration: hash.nullable(),
  predicted: expected.nullable(),
  uncorrected: expected.nullable(),
  levels: json(levels).nullable(),
  threads,
  cache: z.enum(["warm", "flushed"]),
  affinity: json(z.array(z.number().int().nonnegative().max(65_535)).max(THREADS)).nullable(),
  at: time,
  comparison: word.nullable().default(null),
  place: z.number().int().positive().max(1e6).nullable().default(null),
  load: z.number().min(0).max(1).nullable().default(null),
  clock: json(
    z.strictObject({
      hertz: z.number().positive().max(1e12),
      throttled: z.array(z.enum(THROTTLES)).max(THROTTLES.length),
    }),
  )
    .nullable()
    .default(null),
  lost_to: z.number().positive().nullable().default(null),
});

type Failure = Exclude<MeasurementStatus, "ok">;
const failure = z.enum({
  wrong: "wrong",
  "compile-failed": "compile-failed",
  "missing-instruction": "missing-instruction",
  "illegal-instruction": "illegal-instruction",
  crashed: "crashed",
  "timed-out": "timed-out",
  "out-of-memory": "out-of-memory",
  "out-of-bounds": "out-of-bounds",
  "output-flood": "output-flood",
  "out-of-resources": "out-of-resources",
  spilled: "spilled",
  serialised: "serialised",
  emulated: "emulated",
} as const satisfies { [S in Failure]: S });

/** Every status a trial can have. */
export const STATUSES: readonly MeasurementStatus[] = ["ok", ...failure.options];

/** Most batches of one trial; 200 by default. */
const SAMPLES = 10_000;

export const trialRow = z.discriminatedUnion("status", [
  trialFacts.extend({
    status: z.literal("ok"),
    median: seconds,
    low: seconds,
    high: seconds,
    samples: json(z.array(seconds).min(1).max(SAMPLES)),
    instructions: z.number().int().nonnegative().max(1e9),
  }),
  trialFacts.extend({ status: failure, log }),
]);
export type TrialRow = z.infer<typeof trialRow>;

export const calibrationRow = z.object({ id: hash, environment: hash, data: json(plainData), at: time });
