/**
 * @file Headers that a compilation reads in less time than those its source includes. The code that comes out is the same.
 *
 *     <immintrin.h>       cut to the intrinsics that the source uses (used-intrinsics.ts): a millisecond
 *     other headers       precompiled, from the second source with the same headers and flags on
 *
 * `immintrin.h` takes longer than most kernels, 0.26 s of 0.34 (g++ 12), and precompiled still 0.016 s and 26 MB each time.
 */

import { createHash } from "node:crypto";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isCached } from "./cache.ts";
import { type ChildRun, runChild } from "./child.ts";
import { headerOf, type Intrinsics, readIntrinsics, wordsOf } from "./used-intrinsics.ts";

export interface HeaderOptions {
  readonly compiler: { readonly command: readonly string[]; readonly version: string };
  /** Where headers are kept. */
  readonly workdir: string;
  readonly timeLimitMs: number;
  readonly cpus: readonly number[] | undefined;
}

/**
 * Compiles a source behind the headers that suit it.
 * @param compile given the words that include them first
 */
export async function compiledBehindHeaders(
  source: string,
  flags: readonly string[],
  options: HeaderOptions,
  compile: (headers: readonly string[]) => Promise<ChildRun>,
): Promise<ChildRun> {
  const request = requestOf(source, flags);
  if (request === undefined) return compile([]);
  const used = await usedIntrinsics(source, request, options);
  if (used !== undefined) {
    const run = await compile(["-include", used]);
    if (run.status !== "failed") return run;
  }
  const precompiled = await precompiledHeaders(request, options);
  const run = await compile(precompiled === undefined ? [] : ["-include", precompiled]);
  // This compiler's header is cut wrongly: no other source is to be compiled twice.
  if (used !== undefined && run.status === "ok") uncut.add(fileFor([request.flags], options));
  return run;
}

/** The headers of a source and the flags that they are read with. */
interface Request {
  readonly includes: readonly string[];
  readonly flags: readonly string[];
}

/** Undefined for a source that is compiled as it stands. */
function requestOf(source: string, flags: readonly string[]): Request | undefined {
  const includes = leadingIncludes(source);
  // g++ 12 declares scalable vectors while it reads arm_sve.h, and refuses to do so behind a precompiled header.
  if (includes.length === 0 || flags.some((flag) => /^-march=.*\+sve/.test(flag))) return undefined;
  return { includes, flags: flags.filter((flag) => !isOfLinking(flag)) };
}

const isOfLinking = (flag: string): boolean => /^-(shared$|c$|Wl,|nodefaultlibs$|l)|\.o$/.test(flag);

/** The system headers included before anything but comments. */
export function leadingIncludes(source: string): string[] {
  const [head = ""] = /^(?:\s|\/\/.*|\/\*[\s\S]*?\*\/|#include <[\w./]+>)*/.exec(source) ?? [];
  return head.match(/^#include <[\w./]+>/gm) ?? [];
}

/** The name, without its ending, of a header made from this. */
function fileFor(of: readonly unknown[], { compiler, workdir }: HeaderOptions): string {
  const identity = JSON.stringify([compiler.command, compiler.version, ...of]);
  return join(workdir, createHash("sha256").update(identity).digest("hex").slice(0, 32));
}

let unique = 0;

// ---- Intrinsics ---------------------------------------------------------------------------------------------------------------

const INTRINSICS = "#include <immintrin.h>";
const knownIntrinsics = new Map<string, Promise<Intrinsics | undefined>>();
/** Compilers and flags whose header does not compile when it is cut. */
const uncut = new Set<string>();

/** A header with the intrinsics that a source uses; undefined if it includes none, or the compiler's cannot be cut. */
async function usedIntrinsics(
  source: string,
  { includes, flags }: Request,
  options: HeaderOptions,
): Promise<string | undefined> {
  const key = fileFor([flags], options);
  if (!includes.includes(INTRINSICS) || uncut.has(key)) return undefined;
  const words = wordsOf(source);
  const file = `${fileFor([flags, INTRINSICS, words], options)}.h`;
  if (await isCached(file)) return file;
  const reading = knownIntrinsics.get(key) ?? declaredIntrinsics(flags, options);
  knownIntrinsics.set(key, reading);
  const declared = await reading;
  if (declared === undefined) return undefined;
  const own = `${file.slice(0, -".h".length)}.${process.pid}.${unique++}.h`;
  try {
    await writeFile(own, headerOf(declared, words));
    await rename(own, file);
  } finally {
    await rm(own, { force: true });
  }
  return file;
}

async function declaredIntrinsics(flags: readonly string[], options: HeaderOptions): Promise<Intrinsics | undefined> {
  const { compiler, timeLimitMs, cpus } = options;
  const command = [...compiler.command, ...flags, "-E", "-dD", "-include", "immintrin.h", "-x", "c++", "/dev/null"];
  const run = await runChild(command, { timeLimitMs, cpus });
  if (run.status === "ok") return readIntrinsics(run.stdout);
  // It may have lacked time or memory, so the next source asks again.
  knownIntrinsics.delete(fileFor([flags], options));
  return undefined;
}

// ---- Precompiled --------------------------------------------------------------------------------------------------------------

/** Headers by what they are compiled from; how often each was asked for. */
const knownHeaders = new Map<string, { asked: number; ready: Promise<string | undefined> | undefined }>();

/**
 * The headers a source begins with, compiled once.
 * @returns a header to include first; undefined for the first source that asks for it, or if it could not be compiled
 */
async function precompiledHeaders({ includes, flags }: Request, options: HeaderOptions): Promise<string | undefined> {
  const base = fileFor([flags, includes], options);
  const file = `${base}.h`;
  const known = knownHeaders.get(file) ?? { asked: 0, ready: undefined };
  knownHeaders.set(file, known);
  known.asked++;
  if (await isCached(`${file}.gch`)) return file;
  if (known.asked < 2) return undefined;
  known.ready ??= compileHeaders(includes, flags, base, options);
  return known.ready;
}

async function compileHeaders(
  includes: readonly string[],
  flags: readonly string[],
  base: string,
  { compiler, timeLimitMs, cpus }: HeaderOptions,
): Promise<string | undefined> {
  const file = `${base}.h`;
  const own = `${base}.${process.pid}.${unique++}.h`;
  try {
    await writeFile(own, `${includes.join("\n")}\n`);
    await rename(own, file);
    const command = [...compiler.command, ...flags, "-x", "c++-header", file, "-o", `${own}.gch`];
    const run = await runChild(command, { timeLimitMs, cpus });
    if (run.status !== "ok") return undefined;
    await rename(`${own}.gch`, `${file}.gch`);
    return file;
  } finally {
    await Promise.all([own, `${own}.gch`].map((left) => rm(left, { force: true })));
  }
}
