/**
 * @file Writes a batch folder. The kernels are those that the first rounds of a search would measure, proposed by the model alone.
 *
 *     await writeBatch("batch", [{ computation, fixed: {}, intrinsics, threads: 1 }], { machine, kernels: 32, announce })
 */

import { copyFile, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Candidate, CandidateKinds } from "../../abstraction/candidate.ts";
import { defined, remembered, upTo, withName } from "../../abstraction/collections.ts";
import { tensorOf } from "../../abstraction/computation.ts";
import { EnvironmentError, internal, NotFoundError, reasonOf, UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { levelOf, type Target } from "../../abstraction/machine.ts";
import type { Measurement, Prediction } from "../../abstraction/trial.ts";
import { declarationHash, MEMORY } from "../../db/index.ts";
import { workloadRowOf } from "../../db/rows.ts";
import { counted } from "../../report/text.ts";
import { encodeElements } from "../../runtime/bytes.ts";
import { kernelFlags } from "../../runtime/compiler.ts";
import { onThisMachine } from "../../runtime/environment.ts";
import { HARNESS_FLAGS, harnessSource, requestText, type SetFiles } from "../../runtime/harness/run.ts";
import { createRunner, MEASURING } from "../../runtime/measure.ts";
import { OwnFolder } from "../../runtime/own-folder.ts";
import { cudaReferenceSource } from "../../runtime/reference/reference-cuda.ts";
import { referenceFiles } from "../../runtime/reference/reference-files.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import { CUDA_MEASURING, cudaRequest, cudaSets } from "../../runtime/run/cuda.ts";
import { nvccFlags, programText } from "../../runtime/run/cuda-build.ts";
import { softwareHere } from "../../session/calibrate/environment.ts";
import { languagesFor } from "../../session/kinds/choose.ts";
import { checkMemory } from "../../session/tune/memory.ts";
import { type TuneSubject, tuneComputation } from "../../session/tune/tune.ts";
import { INPUT_SEED, type Workplace } from "../../session/tune/workplace.ts";
import { VERSION } from "../../session/version.ts";
import { capabilityOf, isGpu, wordsOf } from "../../targets/index.ts";
import { sha256Of } from "../jobs.ts";
import { hashOfFile, MANIFEST, type Manifest } from "./manifest.ts";

/** What to propose kernels of. */
export interface BatchSubject extends TuneSubject {
  /** How messages name it. */
  readonly label: string;
  readonly intrinsics: readonly Intrinsic[];
  readonly threads: number;
  readonly seed?: number | undefined;
  readonly kinds?: CandidateKinds | undefined;
}

interface BatchOptions {
  readonly machine: Target;
  /** Kernels of each computation, at most. */
  readonly kernels: number;
  /** Told what is done, and what is left out. */
  readonly announce: (text: string) => void;
}

/** What was written. */
interface Batch {
  readonly problems: number;
  readonly kernels: number;
  readonly bytes: number;
}

/**
 * Writes a batch into a new folder, and nothing when that fails.
 * @throws UsageError for a machine whose kernels are in another language, and for a folder that is there
 */
export async function writeBatch(
  path: string,
  subjects: readonly BatchSubject[],
  { machine, kernels, announce }: BatchOptions,
): Promise<Batch> {
  const [language] = languagesFor(machine);
  const dialect = language === "c++" ? inCpp : language === "cuda" ? inCuda : undefined;
  if (!dialect)
    throw new UsageError(
      `kernels for ${machine.name} are written in ${language}`,
      "a batch is for a CPU, whose kernels are in C++, or for an NVIDIA GPU, whose kernels are in CUDA",
    );
  const folder = new Folder(await newFolder(path));
  try {
    const { ending, harness, settings, flagsOf, requestFor, builds, close } = await dialect(folder, machine);
    try {
      await folder.write(`harness.${ending}`, harness);
      const problems: Manifest["problems"] = [];
      const jobs: string[] = [];
      for (const [at, subject] of subjects.entries()) {
        announce(`${subject.label}: proposing ${counted(kernels, "kernel")} for ${machine.name}`);
        const { threads, intrinsics } = subject;
        const found = await proposed(subject, machine, kernels, announce);
        const [first = internal("a search without kernels")] = found.values();
        await folder.write(`problems/${at}/request`, await requestFor(`problems/${at}`, subject, first.kernel));
        const entries: Manifest["problems"][number]["kernels"] = [];
        for (const [source, { kernel, candidate, prediction }] of found) {
          const { promises } = kernel;
          const intrinsic = withName(intrinsics, candidate.intrinsic);
          const declaration = intrinsic && declarationHash(intrinsic);
          entries.push({ source, candidate, ...defined({ prediction, promises, declaration }) });
          await folder.write(`kernels/${source}.${ending}`, kernel.source);
          builds.add([`${source}.so`, `kernels/${source}.${ending}`, ...flagsOf(kernel)].join(" "));
          jobs.push([at, source, promises ?? "-", threads].join(" "));
        }
        problems.push({ workload: workloadRowOf(subject), threads, kernels: entries });
      }
      await folder.write("builds", lines(builds));
      await folder.write("jobs", lines(jobs));
      await folder.write("settings.sh", lines(Object.entries(settings).map(([name, value]) => `${name}="${value}"`)));
      await folder.write("run.sh", await readFile(fileURLToPath(new URL("./run.sh", import.meta.url))));
      const manifest: Manifest = {
        format: "automap-batch",
        version: 1,
        automap: VERSION,
        ending,
        flags: flagsOf({ features: [] }),
        problems,
        files: Object.fromEntries(folder.files),
      };
      await folder.write(MANIFEST, JSON.stringify(manifest, undefined, 1));
      await folder.write("SHA256SUMS", lines([...folder.files].map(([name, hash]) => `${hash}  ${name}`)));
      return { problems: problems.length, kernels: jobs.length, bytes: folder.bytes };
    } finally {
      await close();
    }
  } catch (error) {
    await rm(path, { recursive: true, force: true });
    throw error;
  }
}

const lines = (texts: Iterable<string>): string => [...texts].map((text) => `${text}\n`).join("");

async function newFolder(path: string): Promise<string> {
  try {
    await mkdir(path);
    return path;
  } catch (error) {
    const isThere = error instanceof Error && "code" in error && error.code === "EEXIST";
    throw new UsageError(
      isThere ? `${path} is there already` : `${path} cannot be made: ${reasonOf(error)}`,
      "--out names a new folder in one that is there",
    );
  }
}

/** A folder that is written, and the SHA-256 of each of its files. */
class Folder {
  readonly files = new Map<string, string>();
  bytes = 0;
  private readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  async write(name: string, content: string | Uint8Array): Promise<void> {
    await this.fill(name, (file) => writeFile(file, content));
  }

  /** @returns the name */
  async copy(from: string, name: string): Promise<string> {
    await this.fill(name, (file) => copyFile(from, file));
    return name;
  }

  private async fill(name: string, write: (file: string) => Promise<void>): Promise<void> {
    const file = join(this.path, name);
    await onThisMachine("writing a batch", async () => {
      await mkdir(dirname(file), { recursive: true });
      await write(file);
      this.files.set(name, await hashOfFile(file));
      this.bytes += (await stat(file)).size;
    });
  }
}

// ---- What is proposed

interface Proposal {
  readonly candidate: Candidate;
  readonly prediction: Prediction | undefined;
  readonly kernel: Kernel;
}

/** The kernels that a search on such a machine would measure first, by the hash of their sources. Nothing answers it, so it learns nothing. */
async function proposed(
  { computation, parameters, fixed, name, ...chosen }: BatchSubject,
  machine: Target,
  count: number,
  announce: BatchOptions["announce"],
): Promise<ReadonlyMap<string, Proposal>> {
  const kernels: Kernel[] = [];
  const unmeasured: Measurement = { status: "emulated", log: "proposed for a batch, and not run" };
  const place: Workplace = {
    status: "open",
    environment: {
      target: machine.name,
      cpu: machine.name,
      cores: levelOf(machine, isGpu(machine) ? "block" : "core").units,
      isa: machine.isa,
      compiler: { path: "none", version: "none", flags: [] },
      ...softwareHere(),
    },
    batch: count,
    calibration: () => Promise.resolve(undefined),
    machineIn: () => machine,
    checkPromises: () => undefined,
    bench: () =>
      Promise.resolve({
        begin: () => Promise.resolve(),
        measure: (round) => {
          kernels.push(...round);
          return Promise.resolve(round.map(() => unmeasured));
        },
        compare: () => internal("kernels of a batch are not compared where it is made"),
      }),
    waited: () => 0,
    close: () => Promise.resolve(),
  };
  const outcome = await tuneComputation(
    { computation, ...defined({ parameters, fixed, name }) },
    {
      ...defined(chosen),
      // The measuring program of a batch is not told of forms, which are judged otherwise.
      kinds: chosen.kinds === "all" ? "exact" : (chosen.kinds ?? "exact"),
      machine,
      trials: count,
      earlyStop: false,
      finals: false,
      database: MEMORY,
      openPlace: () => Promise.resolve(place),
      onNotice: announce,
    },
  );
  if (outcome.status === "environment") throw new EnvironmentError(outcome.problem);
  if (outcome.status === "nothing-maps")
    throw new NotFoundError(`no kernel computes ${chosen.label} on ${machine.name}: ${outcome.refused[0]?.because}`);
  const found = new Map<string, Proposal>();
  for (const [at, { candidate, prediction }] of outcome.trials.entries()) {
    const kernel = kernels[at] ?? internal("a candidate without its kernel");
    remembered(found, sha256Of(kernel.source), () => ({ candidate, prediction, kernel }));
  }
  return found;
}

// ---- In each language

/** How kernels of a language are built and checked. */
interface Dialect {
  readonly ending: "cpp" | "cu";
  /** The measuring program. */
  readonly harness: string;
  /** Variables of run.sh. */
  readonly settings: Readonly<Record<string, string | number>>;
  readonly flagsOf: (kernel: Pick<Kernel, "features">) => string[];
  /** Lines of what is built: the file that is made, its source, its flags. */
  readonly builds: Set<string>;
  /** Writes what the kernels of a computation are checked with. @returns what is asked of the measuring program */
  readonly requestFor: (folder: string, subject: BatchSubject, first: Kernel) => Promise<string>;
  readonly close: () => Promise<void>;
}

async function inCpp(folder: Folder, machine: Target): Promise<Dialect> {
  // Inputs are drawn, and what kernels must answer is computed, by programs that are compiled here.
  const made = await createRunner();
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  const scratch = new OwnFolder(await mkdtemp(join(runner.workdir, `runner-${process.pid}-`)));
  const filesOf = referenceFiles(scratch);
  return {
    ending: "cpp",
    harness: harnessSource(),
    settings: { language: "cpp", silence: MEASURING.stepSeconds, features: wordsOf(machine.isa).join(" ") },
    flagsOf: (kernel) => kernelFlags(kernel),
    builds: new Set([["harness", "harness.cpp", ...HARNESS_FLAGS].join(" ")]),
    requestFor: async (at, { computation, fixed, threads }, first) => {
      checkMemory(computation);
      const reference = await runner.reference(computation, INPUT_SEED, defined({ fixed }));
      const copied = (file: string): Promise<string> => folder.copy(file, `${at}/${basename(file)}`);
      const sets: SetFiles[] = [];
      for (const { expected, tolerance, checked, inputs, ...set } of await filesOf(reference))
        sets.push({
          ...set,
          inputs: await Promise.all(inputs.map(copied)),
          expected: await copied(expected),
          tolerance: typeof tolerance === "string" ? await copied(tolerance) : tolerance,
          checked: checked && (await copied(checked)),
        });
      const cpus = upTo(threads);
      return requestText({ ...MEASURING, parent: 0, cpus, arguments: first.arguments, sets, kernels: ["kernel.so"] });
    },
    close: async () => {
      await runner.close();
      await scratch.remove();
    },
  };
}

async function inCuda(folder: Folder, machine: Target): Promise<Dialect> {
  const capability = capabilityOf(machine);
  const builds = new Set([["harness", "harness.cu", ...nvccFlags("program", { capability })].join(" ")]);
  return {
    ending: "cu",
    harness: await programText("cuda.cu"),
    settings: { language: "cuda", silence: CUDA_MEASURING.stepSeconds, capability },
    flagsOf: () => nvccFlags("kernel", { capability }),
    builds,
    requestFor: async (at, { computation, fixed = {}, label }, first) => {
      if (computation.program)
        throw new UsageError(
          `${label} computes several things in one kernel, and a batch for a GPU cannot check that`,
          "tune it where the GPU is",
        );
      const name = `${basename(at)}.reference`;
      await folder.write(`${at}/reference.cu`, cudaReferenceSource(computation));
      builds.add([`${name}.so`, `${at}/reference.cu`, ...nvccFlags("reference", { capability })].join(" "));
      const held: Record<string, string> = {};
      for (const [tensor, values] of Object.entries(fixed)) {
        const { dtype } = tensorOf(computation, tensor);
        held[tensor] = `${at}/fixed.${tensor}`;
        const bytes = encodeElements(dtype, toMemory(tensorOf(computation, tensor), Float64Array.from(values)));
        await folder.write(held[tensor], bytes);
      }
      const files = { file: `build/${name}.so`, bounds: `build/${name}.bounds`, fixed: held };
      const reference = { ...files, seed: INPUT_SEED, sets: cudaSets(computation, fixed) };
      return `parent 0\n${cudaRequest(["kernel.so"], first, reference, CUDA_MEASURING)}`;
    },
    close: () => Promise.resolve(),
  };
}
