/**
 * @file What benches share: lines of results in files, tables, means, runners, and ratios of kernels that were timed in turns.
 *
 *     const write = writerTo(values.out);              a line of JSON for each call
 *     table(["case", "us"], [["conv", us(2e-6)]])      the lines of a table in Markdown
 */

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { cpus } from "node:os";
import { gunzipSync } from "node:zlib";
import { z } from "zod";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import type { ModelTarget } from "../../perfmodel/target.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { createRunner, type Runner, type RunnerOptions } from "../../runtime/measure.ts";
import { type CudaRunner, type CudaRunnerOptions, createCudaRunner } from "../../runtime/run/cuda.ts";
import { summariseRatio } from "../../runtime/statistics.ts";
import { calibrateMachine } from "../../session/calibrate/calibrate.ts";

// ---- lines

/** Appends lines to a file, or prints them where none is given. */
export function writerTo(file: string | undefined): (line: unknown) => void {
  return (line) => {
    const text = JSON.stringify(line);
    if (file === undefined) console.log(text);
    else appendFileSync(file, `${text}\n`);
  };
}

/** The lines of files, separated by commas. The last line of a process that was ended may be cut off, and is left out. */
export function linesIn(files: string): unknown[] {
  return files.split(",").flatMap((file) => {
    const bytes = readFileSync(file);
    const texts = (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8").split("\n");
    const whole = texts.at(-1) === "" ? texts : texts.slice(0, -1);
    return whole.flatMap((text): unknown[] => (text === "" ? [] : [JSON.parse(text)]));
  });
}

/** The lines that a schema describes. */
export function linesOf<T>(schema: z.ZodType<T>, lines: readonly unknown[]): T[] {
  return lines.flatMap((line) => schema.safeParse(line).data ?? []);
}

/** The rows of a file that a schema describes, from this run or an earlier one; none where there is no such file. */
export function rowsIn<T>(schema: z.ZodType<T>, file: string): T[] {
  return existsSync(file) ? linesOf(schema, linesIn(file)) : [];
}

/** @param shard `2/4` takes every fourth, starting with the second */
export function inShard<T>(all: readonly T[], shard: string): readonly T[] {
  const [which = 1, shards = 1] = shard.split("/").map(Number);
  return all.filter((_, i) => i % shards === which - 1);
}

// ---- pages

/** The command that was given, for the page that it makes. */
export function givenCommand(): string {
  const script = /dist\/bench\/.*/.exec(process.argv[1] ?? "")?.[0] ?? "";
  return ["    node", script, ...process.argv.slice(2)].join(" ");
}

/** A page of results: its title, what was measured and where, the command, and the rest. */
export function page(title: string, about: string, ...rest: readonly string[]): string {
  return `${[`# ${title}`, "", about, "", givenCommand(), "", ...rest].join("\n")}\n`;
}

export function cpuName(): string {
  return cpus()[0]?.model.trim() ?? "unknown processor";
}

export function table(head: readonly string[], rows: readonly (readonly (string | number | undefined)[])[]): string[] {
  const line = (cells: readonly (string | number | undefined)[]): string =>
    `| ${cells
      .map((cell) =>
        String(cell ?? "")
          .replaceAll("|", "/")
          .replaceAll("\n", " "),
      )
      .join(" | ")} |`;
  return [line(head), `|${"---|".repeat(head.length)}`, ...rows.map(line)];
}

/** NaN of none. */
export function geomean(numbers: readonly number[]): number {
  return Math.exp(numbers.reduce((sum, x) => sum + Math.log(x), 0) / numbers.length);
}

export const ms = (seconds: number | undefined): string => (seconds === undefined ? "" : (seconds * 1e3).toFixed(2));
export const us = (seconds: number | undefined): string => (seconds === undefined ? "" : (seconds * 1e6).toFixed(1));
export const percent = (share: number | undefined): string => (share === undefined ? "" : (100 * share).toFixed(1));
export const threadsText = (threads: number): string => `${threads} thread${threads === 1 ? "" : "s"}`;

// ---- kernels

/** @throws EnvironmentError without a C++ compiler */
export async function cpuCompiler(): Promise<Compiler> {
  const found = await findCompiler();
  if (found.status === "environment") throw new EnvironmentError(found);
  return found;
}

/** The model of a core with its calibration, which is made first where the database has none. @throws EnvironmentError when it cannot be made */
export async function calibratedTarget(database = ":memory:"): Promise<ModelTarget> {
  const calibrated = await calibrateMachine(database, {}, (text) => console.error(text));
  if (calibrated.status === "environment") throw new EnvironmentError(calibrated.problem);
  return calibrated.target;
}

/** @throws EnvironmentError where kernels cannot be compiled and run */
export async function cpuRunner(options: RunnerOptions = {}): Promise<Runner> {
  const made = await createRunner(options);
  if (made.status === "environment") throw new EnvironmentError(made);
  return made.runner;
}

/** @throws EnvironmentError without a GPU */
export async function gpuRunner(options: CudaRunnerOptions = {}): Promise<CudaRunner> {
  const made = await createCudaRunner(options);
  if (made.status === "environment") throw new EnvironmentError(made);
  return made.runner;
}

/** The least time of a batch: on a busy machine a median shows which kernel was interrupted. Infinity for a failed kernel. */
export function leastOf(m: Measurement | undefined): number {
  return m?.status === "ok" ? Math.min(...m.samples) : Number.POSITIVE_INFINITY;
}

/** The time of a peer over ours, the median over neighbouring batches. */
export function ratioOf(peer: Measurement | undefined, ours: Measurement | undefined): number | undefined {
  return peer?.status === "ok" && ours?.status === "ok"
    ? summariseRatio(peer.samples, ours.samples, 1).median
    : undefined;
}

/** What a line keeps of a measurement. */
export const TIME = z.union([
  z.object({ status: z.literal("ok"), median: z.number(), interval: z.tuple([z.number(), z.number()]).readonly() }),
  z.object({ status: z.string(), log: z.string() }),
]);
export type Time = z.infer<typeof TIME>;

export function timeOf(m: Measurement): Time {
  return m.status === "ok"
    ? { status: "ok", median: m.median, interval: m.interval }
    : { status: m.status, log: m.log.slice(0, 200) };
}

/** Microseconds and half the 95 % interval, or how a kernel failed. */
export function timeText(time: Time | undefined): string {
  if (time === undefined || !("median" in time)) return time?.status ?? "";
  const half = (100 * (time.interval[1] - time.interval[0])) / 2 / time.median;
  return `${us(time.median)} ±${half.toFixed(1)}%`;
}
