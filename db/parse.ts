/**
 * @file What a candidate, a prediction and a status may be in a record: columns.ts says which column holds each.
 *
 *     candidate.schedule.block  { "q": 12 }           { "q": 2000000 } is refused: Too big: expected number to be <=1024
 *
 * Objects are closed: an unknown entry is refused, never passed on to code that might print it.
 */

import { z } from "zod";
import type { Candidate, Kind } from "../abstraction/candidate.ts";
import { REWRITINGS } from "../abstraction/computation.ts";
import { identifier, named } from "../abstraction/schema.ts";
import type { MeasurementStatus, Prediction } from "../abstraction/trial.ts";
import { KINDS } from "../mapper/schedule/kinds.ts";
import { MAPPED_DECISIONS } from "../mapper/schedule/mapped-decisions.ts";
import { type Decisions, scheduleSchema } from "../mapper/schedule/schedules.ts";
import { expression, word } from "./parse-text.ts";

// ---- Candidates

export const THREADS = 4096;
/** Most loops, instruction axes or tensors of a computation. */
export const LOOPS = 64;

export const threads = MAPPED_DECISIONS.threads.schema;
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

export const candidate: z.ZodType<Candidate> = z.unknown().transform((given, context): Candidate => {
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

/** The levels of a prediction. */
export const levels: z.ZodType<Prediction["levels"]> = z
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

// ---- Statuses

type Failure = Exclude<MeasurementStatus, "ok">;
/** How a trial can fail. */
export const failure = z.enum({
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
