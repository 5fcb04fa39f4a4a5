/**
 * @file A batch: kernels that a machine without automap builds, checks and times, in a folder.
 *
 *     kernels/5f0c2e....cpp     sources, each by the SHA-256 of its text
 *     problems/0/request        what the measuring program is asked for, beside the inputs and the answers that it compares with
 *     run.sh                    builds and measures all, and writes results.jsonl
 *     manifest.json             what each kernel is: its computation, its decisions, its prediction
 */

import { createHash } from "node:crypto";
import { createReadStream, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { isAbsent, reasonOf, UsageError, unreadable } from "../../abstraction/error.ts";
import { word } from "../../abstraction/schema.ts";
import { candidate, levels, threads } from "../../db/parse.ts";
import { hash, line } from "../../db/parse-text.ts";
import { sha256, sha256Of } from "../jobs.ts";

export const MANIFEST = "manifest.json";
export const RESULTS = "results.jsonl";

const MOST_BYTES = 2 ** 26;
export const MOST_KERNELS = 1000;
const MOST_PROBLEMS = 2000;

const seconds = z.number().positive().max(1e15);
const kernel = z.strictObject({
  /** Of its text, and with its ending the name of its file. */
  source: sha256,
  candidate,
  /** Hash of the declaration of its instruction. */
  declaration: hash.optional(),
  prediction: z.strictObject({ seconds, uncorrectedSeconds: seconds, levels }).optional(),
  /** The instruction that must stand in its code. */
  promises: word.optional(),
});

const problem = z.strictObject({
  /** The row that a database holds of it. */
  workload: z.record(z.string(), z.unknown()),
  threads,
  kernels: z.array(kernel).min(1).max(MOST_KERNELS),
});

const manifest = z.strictObject({
  format: z.literal("automap-batch"),
  version: z.literal(1),
  /** The version of automap that wrote it. */
  automap: line,
  /** Of the sources, by which their language is known. */
  ending: z.enum(["cpp", "cu"]),
  /** Those of the compiler that all kernels have in common. */
  flags: z.array(line).max(100),
  problems: z.array(problem).min(1).max(MOST_PROBLEMS),
  /** SHA-256 of every other file of the folder, by its path in it. */
  files: z.record(z.string().regex(/^\w[\w.-]*(\/\w[\w.-]*)*$/), sha256),
});
export type Manifest = z.infer<typeof manifest>;

/** The manifest of a folder, and the hash of its text. @throws UsageError for a folder that has none, or files that it does not name */
export async function readManifest(folder: string): Promise<{ readonly manifest: Manifest; readonly id: string }> {
  const path = join(folder, MANIFEST);
  const text = textOf(path);
  const refuse = (because: string): never => {
    throw new UsageError(`${path} is refused: ${because}`, "name the folder that automap batch export wrote");
  };
  const read = manifest.safeParse(jsonOf(text) ?? refuse("it is not JSON"));
  if (!read.success) {
    const [issue] = read.error.issues;
    return refuse(`${issue?.path.join(".") || "it"}: ${issue?.message}`);
  }
  for (const [name, expected] of Object.entries(read.data.files)) {
    const file = join(folder, name);
    if (!statSync(file, { throwIfNoEntry: false })?.isFile()) refuse(`it names ${name}, which is not there`);
    if ((await hashOfFile(file)) !== expected) refuse(`${name} is not as it was exported`);
  }
  return { manifest: read.data, id: sha256Of(text) };
}

function textOf(path: string): string {
  try {
    const about = statSync(path);
    if (about.isFile() && about.size <= MOST_BYTES) return readFileSync(path, "utf8");
  } catch (error) {
    const what = isAbsent(error) ? `there is no batch in ${dirname(path)}` : `cannot read ${path}: ${reasonOf(error)}`;
    throw unreadable(
      what,
      error,
      "name the folder that automap batch export wrote; beside results elsewhere, --batch names it",
    );
  }
  throw new UsageError(
    `${path} is no file of at most ${MOST_BYTES} bytes`,
    "name the folder that automap batch export wrote",
  );
}

/** What a text of JSON holds; undefined when it is none. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The SHA-256 of a file, which may be larger than memory. */
export async function hashOfFile(path: string): Promise<string> {
  const hashing = createHash("sha256");
  await pipeline(createReadStream(path), hashing);
  return hashing.digest("hex");
}
