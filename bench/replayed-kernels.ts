/**
 * @file Repeats the kernels of a recorded search with two builds or compiler flags, and times compiling and running.
 *
 *     automap tune conv2d --db trials.db                                       or any database of trials
 *     node dist/bench/replayed-kernels.js --db trials.db --flags="-O2" --flags="-O3 -fno-ivopts"
 *     node dist/bench/replayed-kernels.js --db trials.db --other ../before/dist
 *
 * Two searches cannot be compared round by round: each continues from its own measurements to other kernels. Here both
 * builds compile the same candidates (half the fastest recorded, half spread over the rest). Their kernels run in turns
 * in one process, on checked data. Without --other and --flags the kernels are compared with themselves, for the noise.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type Candidate, candidateKey } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { computationOf, openDatabase, queryTrials } from "../db/index.ts";
import { compileKernel, findCompiler } from "../runtime/compiler.ts";
import { madeHarness, runHarness } from "../runtime/harness/run.ts";
import { createRunner } from "../runtime/measure.ts";
import { OwnFolder } from "../runtime/own-folder.ts";
import { referenceFiles } from "../runtime/reference-files.ts";
import { median } from "../runtime/statistics.ts";
import { kernelFor } from "../session/kernel.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    db: { type: "string" },
    other: { type: "string" },
    flags: { type: "string", multiple: true, default: [] },
    kernels: { type: "string", default: "40" },
  },
});
if (values.db === undefined) throw new UsageError("--db FILE: the trials whose kernels are compiled again");

/** A way to make a candidate's kernel. */
interface Variant {
  readonly name: string;
  readonly kernelFor: (computation: Computation, candidate: Candidate) => Kernel;
  readonly compileKernel: typeof compileKernel;
  readonly flags: readonly string[];
}

async function otherBuild(dist: string): Promise<Variant> {
  const load = async (file: string): Promise<unknown> => import(pathToFileURL(resolve(dist, file)).href);
  const made = { ...((await load("session/kernel.js")) as object), ...((await load("runtime/compiler.js")) as object) };
  return { name: "other", flags: [], ...(made as Pick<Variant, "kernelFor" | "compileKernel">) }; // the same names in both builds
}

/** The fastest candidates of one workload, and as many spread over the rest. */
function candidatesIn(path: string, count: number): { computation: Computation; candidates: readonly Candidate[] } {
  const db = openDatabase(path, { readonly: true });
  const records = queryTrials(db).filter((r) => r.finals === undefined && r.measurement.status === "ok");
  db.close();
  const [first] = records;
  if (!first) throw new UsageError(`${path} holds no trial that worked`);
  const of = records.filter((r) => r.workload.id === first.workload.id);
  const seconds = (r: (typeof of)[number]): number => (r.measurement.status === "ok" ? r.measurement.median : 0);
  const sorted = of.toSorted((a, b) => seconds(a) - seconds(b)).map((r) => r.candidate);
  const all = [...new Map(sorted.map((c) => [candidateKey(c), c])).values()];
  const best = all.slice(0, Math.ceil(count / 2));
  const rest = all.slice(best.length);
  const step = Math.max(1, rest.length / (count - best.length));
  const spread = Array.from({ length: count - best.length }, (_, i) => rest[Math.floor(i * step)]);
  return { computation: computationOf(first.workload), candidates: [...best, ...spread.flatMap((c) => c ?? [])] };
}

const folder = mkdtempSync(join(tmpdir(), "automap-replayed-kernels-"));

const LIMITS = { stepSeconds: 10, outputBytes: 1 << 20 } as const;
const TIMING = {
  fileBytes: 0,
  memoryBytes: 2 ** 30,
  cache: "warm",
  batchSeconds: 200e-6,
  budgetSeconds: 0.25,
} as const;
const geometric = (all: readonly number[]): number => Math.exp(all.reduce((s, x) => s + Math.log(x), 0) / all.length);

try {
  const { computation, candidates } = candidatesIn(values.db, Number(values.kernels));
  const own: Variant = { name: "now", kernelFor, compileKernel, flags: [] };
  const others = [
    ...(values.other === undefined ? [] : [await otherBuild(values.other)]),
    ...values.flags.map((text) => ({ ...own, name: text, flags: text.split(/\s+/) })),
  ];
  const variants = [own, ...(others.length > 0 ? others : [{ ...own, name: "itself", flags: ["-g0"] }])];
  const compiler = await findCompiler();
  const made = await createRunner({ workdir: join(folder, "runner") });
  if (compiler.status === "environment" || made.status === "environment") throw new Error("no compiler");
  const sets = await referenceFiles(new OwnFolder(folder))(await made.runner.reference(computation, 1));
  await made.runner.close();
  const harness = await madeHarness({ compiler, workdir: folder });
  const compiling = variants.map((): number[] => []);
  const ratios = variants.map((): number[] => []);
  for (const [at, candidate] of candidates.entries()) {
    const files: string[] = [];
    // The variant that goes first alternates.
    for (const v of variants.keys()) {
      const turn = (v + at) % variants.length;
      const variant = variants[turn] ?? own;
      const options = { compiler, workdir: join(folder, `by-${turn}`), flags: variant.flags };
      const compiled = await variant.compileKernel(variant.kernelFor(computation, candidate), options);
      if (compiled.status !== "compiled") throw new Error(`${variant.name}: ${compiled.log}`);
      files[turn] = compiled.file;
      // The first two are not counted: they also compile headers.
      if (at > 1) compiling[turn]?.push(compiled.seconds);
    }
    const { arguments: tensors } = kernelFor(computation, candidate);
    const request = {
      ...TIMING,
      batches: [20, 400] as const,
      arguments: tensors,
      sets,
      kernels: files,
      cpus: [at % 2],
    };
    const { verdicts } = await runHarness(harness, request, LIMITS);
    const samples = files.map((_, i) => {
      const verdict = verdicts.get(i);
      if (verdict?.status !== "timed") throw new Error(`${variants[i]?.name}: ${verdict?.status} ${verdict?.log}`);
      return verdict.samples;
    });
    for (const [i, taken] of samples.entries())
      ratios[i]?.push(median(taken.map((seconds, batch) => seconds / (samples[0]?.[batch] ?? seconds))));
  }
  console.log(
    "| kernels by | s to compile one | time, mean of ratios | of the fastest ten | least | most |\n|---|---|---|---|---|---|",
  );
  for (const [i, { name }] of variants.entries()) {
    const all = ratios[i] ?? [];
    const compiled = compiling[i] ?? [];
    const mean = compiled.reduce((s, x) => s + x, 0) / compiled.length;
    const numbers = [geometric(all), geometric(all.slice(0, 10)), Math.min(...all), Math.max(...all)];
    console.log(`| ${name} | ${mean.toFixed(3)} | ${numbers.map((x) => x.toFixed(3)).join(" | ")} |`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
