/**
 * @file A tuned kernel as a function on typed arrays.
 *
 *     const conv = await load("3f9a1c77", { database: "automap.db" });      a record, or what tune gave, or an emitted folder
 *     conv.run(input, weight, output);                                      inputs in the order the equation reads them, the output last
 *     conv.close();
 *
 * Compiled once: the library is kept under a hash of its sources and of the compiler, in `~/.cache/automap/kernels`.
 */

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { callingThreads } from "../../abstraction/candidate.ts";
import { automapCommand, checkNames, EnvironmentError, UsageError } from "../../abstraction/error.ts";
import { DEFAULT_DATABASE, shortId, showTrial, type TrialRecord, withDatabase } from "../../db/index.ts";
import {
  type BindOptions,
  type BoundKernel,
  type BuildSubject,
  bind,
  buildOf,
  descriptionOf,
  type EmitSubject,
  type KernelDescription,
  librarySources,
  PACKAGE_VERSION,
  packageName,
} from "../../package/index.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { type CoreOptions, coresOf } from "../../runtime/cores.ts";
import { architectureOf } from "../../targets/index.ts";
import { loadKoffi } from "../natives.ts";
import type { TunedKernel } from "../tune/finals.ts";
import { builtLibrary } from "./built-library.ts";
import { sourceNames, subjectOf } from "./emit.ts";
import { type Consent, checkConsent, checkFenced } from "./imported.ts";
import { type PackageFiles, readDescription, readSealed } from "./sealed-package.ts";

export { type BoundKernel, type KernelDescription, KernelError } from "../../package/index.ts";

/** Where a kernel is looked up, built and cached, and whether it may run. */
export interface LoadOptions extends BindOptions, Consent, CoreOptions {
  /** Database that holds the record; `automap.db` by default. */
  readonly database?: string;
  /** Folder that caches libraries; `~/.cache/automap/kernels` by default. */
  readonly cache?: string;
  /** Looked for when left out. */
  readonly compiler?: Compiler;
}

const OPTIONS = {
  database: true,
  cache: true,
  compiler: true,
  trustImported: true,
  implementation: true,
  cores: true,
  onWait: true,
} as const;

/**
 * Compiles a kernel, or takes it from the cache, and loads it into this process. An imported record or a package from elsewhere is somebody
 * else's code: it is loaded only with `trustImported`, and an imported record's kernel only after it gave right results in a separate process.
 * @param source the id of a record, a record, the best of `tune`, or a folder that `automap emit` wrote
 * @throws UsageError when there is no such record or folder, it cannot be used, or it was not made here and may not be trusted; EnvironmentError
 * when a compiler or koffi is missing; KernelError when `tuned` is requested and this CPU cannot run it
 */
export async function load(
  source: string | TrialRecord | TunedKernel,
  options: LoadOptions = {},
): Promise<BoundKernel> {
  checkNames(options, OPTIONS, "load");
  const { build, description, sources, imported } = readSource(source, options);
  const compiler = options.compiler ?? (await findCompiler());
  if (compiler.status === "environment") throw new EnvironmentError(compiler);
  const cores = coresOf(options);
  const fenced = imported && (await checkFenced(imported, compiler, { cores }));
  if (fenced?.status === "environment") throw new EnvironmentError(fenced);
  if (fenced?.status === "wrong")
    throw new UsageError(fenced.because, "it is not run here; measure it here: automap tune");
  const library = await builtLibrary(
    { name: build.name, build: buildOf(build), sources },
    { cache: options.cache ?? cacheFolder("kernels"), compiler, cores },
  );
  const koffi = await loadKoffi();
  return bind(koffi, library, description, options.implementation ? { implementation: options.implementation } : {});
}

interface Loadable {
  readonly build: BuildSubject;
  readonly description: KernelDescription;
  readonly sources: PackageFiles;
  /** The record, if it was imported. */
  readonly imported?: TrialRecord;
}

function readSource(source: string | TrialRecord | TunedKernel, options: LoadOptions): Loadable {
  if (typeof source !== "string")
    return "kernel" in source ? loadableOf(subjectOfTuned(source)) : loadableRecord(source, options);
  if (existsSync(join(source, "kernel.json"))) return readFolder(source, options);
  if (statSync(source, { throwIfNoEntry: false })?.isDirectory())
    throw new UsageError(`${source} is no package: it has no kernel.json`, "automap emit RECORD --to DIR writes one");
  return loadableRecord(
    withDatabase(options.database ?? DEFAULT_DATABASE, (db) => showTrial(db, source)),
    options,
  );
}

function loadableRecord(trial: TrialRecord, options: LoadOptions): Loadable {
  checkConsent(trial, options);
  return { ...loadableOf(subjectOf(trial)), ...(trial.provenance === "here" ? {} : { imported: trial }) };
}

function subjectOfTuned({ id, candidate, computation, kernel }: TunedKernel): EmitSubject {
  return {
    name: packageName(computation.name),
    computation,
    tuned: kernel,
    threads: callingThreads(candidate),
    record: id,
    provenance: [`record    ${shortId(id)}`],
  };
}

function loadableOf(subject: EmitSubject): Loadable {
  const { name, threads, tuned, record = "" } = subject;
  if (tuned && tuned.language !== "c++")
    throw new UsageError(
      `${shortId(record)} is a kernel in CUDA: only kernels in C++ are loaded into Node`,
      `${automapCommand("emit", shortId(record), "--to", "DIR")} writes a package for C, C++ and PyTorch`,
    );
  checkArchitecture(name, tuned?.features);
  return {
    build: { name, threads, features: tuned?.features },
    description: descriptionOf(subject),
    sources: librarySources(subject),
  };
}

/** @throws UsageError when the tuned kernel is for another architecture than this process */
function checkArchitecture(name: string, features: readonly string[] = []): void {
  const own = process.arch === "arm64" ? "arm" : "x86";
  const needed = architectureOf(features);
  if (needed !== undefined && needed !== own)
    throw new UsageError(
      `${name}: its tuned kernel is for ${needed === "arm" ? "AArch64" : "x86-64"} processors`,
      "build its package with CMake, which takes the portable code here",
    );
}

const word = z.string().regex(/^[A-Za-z][A-Za-z0-9_]*$/);

const ARRAYS = [
  "Uint8Array",
  "Int8Array",
  "Uint16Array",
  "Int16Array",
  "Uint32Array",
  "Int32Array",
  "Float32Array",
  "Float64Array",
] as const;

const REMAKE = "automap emit RECORD --to DIR --force";

const descriptionSchema = z.object({
  schemaVersion: z.literal(PACKAGE_VERSION, { error: `is of another version than ${PACKAGE_VERSION}` }),
  name: word,
  equation: z.string(),
  parameters: z
    .array(
      z.object({
        name: word,
        role: z.enum(["input", "constant", "output"]),
        dtype: z.string(),
        array: z.enum(ARRAYS),
        elements: z.int().positive(),
        shape: z.string(),
        storage: z.string(),
      }),
    )
    .min(1),
  tuned: z
    .object({
      features: z.array(z.string().regex(/^[a-z0-9.-]+$/)),
      instruction: z.string().optional(),
      threads: z.int().positive(),
    })
    .optional(),
});

function readFolder(folder: string, { trustImported = false }: Consent): Loadable {
  const { text, facts } = readDescription(folder, "kernel.json", descriptionSchema, {
    describes: "a package",
    remake: REMAKE,
  });
  const { name, equation, parameters, tuned } = facts;
  const sources = readSealed(folder, { name: "kernel.json", text }, sourceNames({ name, tuned }), {
    isTrusted: trustImported,
    remake: REMAKE,
  });
  checkArchitecture(name, tuned?.features);
  const { instruction, ...needs } = tuned ?? { features: [], threads: 1 };
  return {
    build: { name, threads: tuned?.threads ?? 1, features: tuned?.features },
    description: {
      name,
      equation,
      parameters,
      ...(tuned ? { tuned: { ...needs, ...(instruction === undefined ? {} : { instruction }) } } : {}),
    },
    sources,
  };
}
