/**
 * @file What tuners ask of workers and what these answer, as data: schemas with limits, and ids made of contents.
 *
 *     { task: "race", environment: "9c1f...", subject: "ab12...", kernel: { text: "77d0..." }, threads: 1, cache: "warm", goal: 4.1e-5 }
 *     { job: "5e0c...", environment: "9c1f...", outcome: { status: "measured", measurements: [{ status: "ok", median: 3.9e-5, ... }] } }
 *
 * A job names computations, kernels and binaries by the SHA-256 of their texts, which travel as blobs. The id of a job is the hash of what is asked,
 * so the same question is one job whoever asks it, and an answer that arrives twice is one answer. A repetition is another job.
 */

import { createHash } from "node:crypto";
import { z } from "zod";
import { canonicalJson } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { DTYPES } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import { KERNEL_LANGUAGES, type Kernel } from "../abstraction/kernel.ts";
import { identifier, word } from "../abstraction/schema.ts";
import { received } from "../abstraction/source-text.ts";
import { LOOPS, threads } from "../db/parse.ts";
import { extent, hash, line, log, plainData, seconds, time } from "../db/parse-text.ts";
import { computationOf, type Environment, type EnvironmentRecord } from "../db/record.ts";
import { environmentOf, environmentRowOf, rowHeld, workloadOf, workloadRowOf } from "../db/rows.ts";
import type { MachineRecord } from "../targets/index.ts";
import { FleetRefusal } from "./signed.ts";

/** Kinds of signed messages. */
export const JOB = "job";
export const ANSWER = "answer";
export const ADVERT = "advert";

export const sha256 = z.string().regex(/^[0-9a-f]{64}$/, { error: "is no SHA-256" });

// ---- What is asked

/** A compiled kernel, and the class of compilers that made it. */
const binary = z.strictObject({ bytes: sha256, compilers: hash });
export type Binary = z.infer<typeof binary>;

/** A kernel by the hash of its text, with its binary where one was made. */
const kernel = z.strictObject({ text: sha256, binary: binary.optional() });
export type KernelAsked = z.infer<typeof kernel>;

/** Most kernels of one comparison. */
const KERNELS = 64;

/** Most repetitions of one question. */
export const REPETITIONS = 1000;
/** Another number where the same is to be measured again. */
const repetition = z.int().nonnegative().max(REPETITIONS);

const conditions = {
  subject: sha256,
  threads,
  cache: z.enum(["warm", "flushed"]),
  repetition,
};
const classes = { environment: hash };

const jobSchema = z.discriminatedUnion("task", [
  z.strictObject({
    task: z.literal("calibrate"),
    ...classes,
    /** Only what is known of the machine, or measured where nothing is, or in any case. */
    effort: z.enum(["kept", "once", "anew"]),
    repetition,
  }),
  z.strictObject({ task: z.literal("draw"), ...classes, subject: sha256, threads }),
  z.strictObject({ task: z.literal("race"), ...classes, ...conditions, kernel, goal: seconds.optional() }),
  z.strictObject({
    task: z.literal("compare"),
    ...classes,
    ...conditions,
    kernels: z.array(kernel).min(1).max(KERNELS),
  }),
  z.strictObject({ task: z.literal("compile"), compilers: hash, kernel: kernel.omit({ binary: true }) }),
]);
/** What a tuner asks of a worker. */
export type Job = z.infer<typeof jobSchema>;
export type MeasuringJob = Exclude<Job, { task: "compile" }>;
export type CompileJob = Extract<Job, { task: "compile" }>;
export type CalibrateJob = Extract<Job, { task: "calibrate" }>;

/** The hash of what is asked. Binaries only save work, and are not part of it. */
export function jobId(job: Job): string {
  const bare = ({ text }: KernelAsked) => text;
  const asked =
    job.task === "race"
      ? { ...job, kernel: bare(job.kernel) }
      : job.task === "compare"
        ? { ...job, kernels: job.kernels.map(bare) }
        : job;
  return sha256Of(canonicalJson(asked));
}

export function readJob(body: unknown): Job {
  return parsed("a job", jobSchema, body);
}

// ---- What is answered

/** Most values of free text in a problem. */
const sentence = z.string().max(20_000);

const outcome = z.discriminatedUnion("status", [
  z.strictObject({
    status: z.literal("measured"),
    /** Held against what a record may hold where they are used. */
    measurements: z.array(z.unknown()).max(KERNELS),
    /** Kernels whose binaries were not used, and why. */
    compiledHere: line.optional(),
  }),
  z.strictObject({
    status: z.literal("drawn"),
    leftOut: z
      .array(z.strictObject({ name: word, because: line }))
      .max(8)
      .optional(),
  }),
  z.strictObject({ status: z.literal("calibrated"), data: plainData, isNew: z.boolean() }),
  z.strictObject({ status: z.literal("uncalibrated") }),
  z.strictObject({ status: z.literal("compiled"), bytes: sha256 }),
  z.strictObject({ status: z.literal("compile-failed"), log }),
  /** A fault of the worker's machine. */
  z.strictObject({ status: z.literal("fault"), what: sentence, why: sentence, remedy: sentence }),
  /** The job cannot be done by this worker. */
  z.strictObject({ status: z.literal("refused"), because: sentence }),
]);
export type Outcome = z.infer<typeof outcome>;

const answerSchema = z.strictObject({ job: sha256, class: hash, kernels: z.array(sha256).max(KERNELS), outcome });
/** What a worker answers: of which job, in which class of environments or compilers, about which kernels, and how it ended. */
export type Answer = z.infer<typeof answerSchema>;

export function answerTo(job: Job, outcome: Outcome): Answer {
  return { job: jobId(job), class: classOf(job), kernels: kernelsOf(job), outcome };
}

/** An answer to exactly this job. @throws FleetRefusal for any other */
export function readAnswer(body: unknown, job: Job): Answer {
  const answer = parsed("an answer", answerSchema, body);
  const expected = answerTo(job, answer.outcome);
  if (canonicalJson(answer) !== canonicalJson(expected))
    throw new FleetRefusal("an answer is refused: it is to another job");
  return answer;
}

/** The class of environments, or of compilers, that a job is for. */
export function classOf(job: Job): string {
  return job.task === "compile" ? job.compilers : job.environment;
}

function kernelsOf(job: Job): string[] {
  if (job.task === "compare") return job.kernels.map(({ text }) => text);
  return job.task === "race" || job.task === "compile" ? [job.kernel.text] : [];
}

// ---- Who answers

const machine = z.strictObject({
  name: line,
  isa: z.array(word).max(1000),
  clockHz: z.number().positive().max(1e12).optional(),
  levels: z
    .array(
      z.strictObject({
        name: word,
        units: z.int().positive().max(65_536),
        bytes: z
          .number()
          .positive()
          .max(2 ** 50)
          .optional(),
      }),
    )
    .max(16),
  source: line,
});

const advertSchema = z.strictObject({
  /** Rows as a database holds them, which are checked as on an import. */
  environment: z.record(z.string(), z.unknown()),
  machine,
  /** Whether it measures, or only compiles. */
  measures: z.boolean(),
  /** Compilations at once. */
  compiles: z.int().nonnegative().max(65_536),
  compilers: hash,
  at: time,
});
/** What a worker says of itself. */
export interface Advert extends Omit<z.infer<typeof advertSchema>, "environment"> {
  readonly environment: EnvironmentRecord;
}

/** An advert as it is signed. */
export function advertSent({
  environment,
  ...rest
}: Omit<Advert, "environment" | "machine"> & {
  readonly environment: Environment;
  readonly machine: MachineRecord;
}): object {
  return { ...rest, environment: environmentRowOf(environment) };
}

export function readAdvert(body: unknown): Advert {
  const { environment, ...rest } = parsed("an advert", advertSchema, body);
  const record = attemptRecord("an advert", () => environmentOf(rowHeld(environment), "an advert"));
  const { name, isa } = rest.machine;
  if (name !== record.target || [...isa].sort().join() !== record.isa.join())
    throw new FleetRefusal("an advert is refused: its machine is not that of its environment");
  return { ...rest, environment: record };
}

// ---- Blobs

/** Characters of the text of a kernel or a subject. */
const LONGEST_SOURCE = 2 ** 23;
/** Most values that an operator fixes. */
const FIXED = 2 ** 21;

/** Bytes that a kernel may ask for. */
const bytes = z
  .int()
  .nonnegative()
  .max(2 ** 40);

const kernelSchema = z.strictObject({
  call: z
    .strictObject({ workspaceBytes: bytes, prepares: z.boolean(), aligned: z.record(identifier, bytes) })
    .optional(),
  language: z.enum(KERNEL_LANGUAGES),
  source: z.string().max(LONGEST_SOURCE),
  features: z.array(word).max(64),
  promises: word.nullable(),
  ofForm: z.literal(true).optional(),
  arguments: z
    .array(
      z.strictObject({
        tensor: identifier,
        dtype: z.enum(DTYPES),
        elements: extent,
        role: z.enum(["output", "input", "constant"]),
      }),
    )
    .max(LOOPS),
});

/** The text by which a kernel in C++ or CUDA travels: in one piece, with what measuring needs to know of it. */
export function kernelText({ language, source, features, promises, ofForm, arguments: taken, call }: Kernel): string {
  return canonicalJson({ language, source, features, promises: promises ?? null, ofForm, arguments: taken, call });
}

export function readKernel(text: string): Kernel {
  const { source, promises, ofForm, call, ...rest } = parsed("a kernel", kernelSchema, jsonOf("a kernel", text));
  return {
    ...rest,
    source: received(source),
    promises: promises ?? undefined,
    ...(ofForm && { ofForm }),
    ...(call && { call }),
  };
}

/** A computation, and the values of tensors that its operator fixes. */
export interface Subject {
  readonly computation: Computation;
  readonly fixed: Inputs | undefined;
}

const subjectSchema = z.strictObject({
  workload: z.record(z.string(), z.unknown()),
  fixed: z.record(identifier, z.array(z.number()).max(FIXED)).optional(),
});

/** The text by which a computation travels: the row that a database holds of it. */
export function subjectText({ computation, fixed }: Subject): string {
  const values = fixed && Object.fromEntries(Object.entries(fixed).map(([name, given]) => [name, Array.from(given)]));
  return canonicalJson({ workload: workloadRowOf({ computation }), fixed: values });
}

export function readSubject(text: string): Subject {
  const { workload, fixed } = parsed("a computation", subjectSchema, jsonOf("a computation", text));
  const computation = attemptRecord("a computation", () => computationOf(workloadOf(rowHeld(workload), "a job")));
  return { computation, fixed };
}

// ---- Parsing

export function sha256Of(text: string | Uint8Array): string {
  return createHash("sha256").update(text).digest("hex");
}

function parsed<T>(what: string, schema: z.ZodType<T>, given: unknown): T {
  const read = schema.safeParse(given);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw new FleetRefusal(`${what} is refused: ${issue?.path.join(".") || "it"}: ${issue?.message}`);
}

function jsonOf(what: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new FleetRefusal(`${what} is refused: it is not JSON`);
  }
}

function attemptRecord<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof UsageError) throw new FleetRefusal(`${what} is refused: ${error.message}`);
    throw error;
  }
}
