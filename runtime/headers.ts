/**
 * @file Headers that a compilation reads in less time than those its source includes. The code that comes out is the same.
 *
 *     <immintrin.h>       cut to the intrinsics that the source uses (used-intrinsics.ts): a millisecond
 *     other headers       precompiled, from the second source with the same headers and flags on
 *
 * `immintrin.h` takes longer than most kernels, 0.26 s of 0.34 (g++ 12), and precompiled still 0.016 s and 26 MB each time.
 */

import { createHash } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type ChildRun, runChild } from "./child.ts";
import { keep, privatePath, takeKept } from "./kept.ts";
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
  const entry = `${fileFor([flags, INTRINSICS, words], options)}.h`;
  const file = await takeKept(entry, "fleeting");
  if (file !== undefined) return file;
  const reading = knownIntrinsics.get(key) ?? declaredIntrinsics(flags, options);
  knownIntrinsics.set(key, reading);
  const declared = await reading;
  if (declared === undefined) return undefined;
  const own = privatePath(entry, ".h");
  await writeFile(own, headerOf(declared, words));
  return keep(own, entry, "fleeting");
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
const knownHeaders = new Map<string, Asked>();

interface Asked {
  asked: number;
  /** Those that another process made. */
  ready?: Promise<string | undefined>;
  making?: Promise<string | undefined>;
}

/**
 * The headers a source begins with, compiled once.
 * @returns a header to include first; undefined for the first source that asks for it, or if it could not be compiled
 */
async function precompiledHeaders({ includes, flags }: Request, options: HeaderOptions): Promise<string | undefined> {
  const file = `${fileFor([flags, includes], options)}.h`;
  const known = knownHeaders.get(file) ?? { asked: 0 };
  knownHeaders.set(file, known);
  known.asked++;
  known.ready ??= keptHeaders(file);
  const ready = await known.ready;
  if (ready !== undefined || known.asked < 2) return ready;
  known.making ??= compileHeaders(includes, flags, file, options);
  return known.making;
}

/** A header with its precompiled form beside it. */
async function keptHeaders(file: string): Promise<string | undefined> {
  const header = await takeKept(file);
  const precompiled = await takeKept(`${file}.gch`);
  return precompiled === undefined ? undefined : header;
}

async function compileHeaders(
  includes: readonly string[],
  flags: readonly string[],
  file: string,
  { compiler, timeLimitMs, cpus }: HeaderOptions,
): Promise<string | undefined> {
  const draft = privatePath(file, ".h");
  const made = privatePath(file, ".gch");
  try {
    await writeFile(draft, `${includes.join("\n")}\n`);
    const header = await keep(draft, file);
    const command = [...compiler.command, ...flags, "-x", "c++-header", header, "-o", made];
    const run = await runChild(command, { timeLimitMs, cpus });
    if (run.status !== "ok") return undefined;
    await keep(made, `${file}.gch`);
    return header;
  } finally {
    await Promise.all([draft, made].map((left) => rm(left, { force: true })));
  }
}
