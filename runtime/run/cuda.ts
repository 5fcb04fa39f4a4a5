/**
 * @file Measures CUDA kernels on this machine's NVIDIA GPU: compiled in parallel, every element checked on the device,
 * timed in alternating batches.
 *
 *     const made = await createCudaRunner();
 *     if (made.status === "environment") ...                            no nvcc, no GPU: what to install
 *     const reference = await made.runner.reference(conv2d, 1);
 *     await made.runner.measureTogether(kernels, reference)             one process for all; if a kernel dies, the rest start again without it
 *
 * The output of ptxas counts: a stack frame, spilled registers, or a warning that it serialised asynchronous operations
 * is a failure of the kernel.
 */

import { mkdir, mkdtemp } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import pLimit from "p-limit";
import { defined, groupsOf } from "../../abstraction/collections.ts";
import { type Computation, inputsOf, tensorOf } from "../../abstraction/computation.ts";
import { EnvironmentError, type EnvironmentProblem, internal, UsageError } from "../../abstraction/error.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { SourceText } from "../../abstraction/source-text.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { encodeElements } from "../bytes.ts";
import { cacheFolder, cacheLimits, trimCache } from "../cache.ts";
import { findCompiler } from "../compiler.ts";
import { type Cores, shareCores } from "../cores.ts";
import { onThisMachine, orProblem } from "../environment.ts";
import { type HarnessLimits, type HarnessReply, runHarness, StandingHarness, type Verdict } from "../harness/run.ts";
import { OwnFolder } from "../own-folder.ts";
import { decidingInputs, drawnIndices } from "../reference/draw-inputs.ts";
import { cudaReferenceSource, INEXACT_SETS, setsOf } from "../reference/reference-cuda.ts";
import { referenceOfParts } from "../reference/reference-of-parts.ts";
import { checkedIn, toMemory, unverifiable } from "../reference/verify.ts";
import { argumentsOf, checkArguments, type Ready } from "../runner.ts";
import { summarise } from "../statistics.ts";
import { isDoneBefore, type Until } from "../until.ts";
import { Builder, type Compiling, emulatedToolchain, type Loadable, nvccToolchain, programText } from "./cuda-build.ts";
import { type CudaDevice, emulatedDevice, findCudaDevice } from "./cuda-device.ts";
import { cudaProblem, mayPass } from "./cuda-errors.ts";

interface CudaReference {
  readonly computation: Computation;
  /** The shared object of the reference kernel; undefined where all bounds are in files. */
  readonly file: string | undefined;
  /** By name; with the place of the argument that the answers are of, where it is not the first. */
  readonly sets: readonly string[];
  readonly seed: number;
  /** Files of inputs that the operator fixes, by tensor. */
  readonly fixed: Readonly<Record<string, string>>;
  /** The beginning of the names of files of bounds, where there is no reference kernel, or that keep its bounds for other processes. */
  readonly bounds: string | undefined;
}

/** What is measured, without its equations. */
type Problem = Omit<CudaReference, "computation">;
/** What a kernel takes. */
interface Taken {
  readonly arguments: ReturnType<typeof argumentsOf>;
}

export interface CudaTiming {
  readonly cache?: "warm" | "flushed";
  readonly budgetSeconds?: number;
  readonly batchSeconds?: number;
  readonly batches?: readonly [least: number, most: number];
  /** Batches of the first so many seconds count for no kernel: after a pause a device runs faster than it goes on. */
  readonly settleSeconds?: number;
  /** Kernels clearly slower than the best of them, or than `goal` seconds, are timed briefly. */
  readonly race?: { readonly goal: number | undefined };
  /** The longest silence of the process, after which a kernel counts as hanging. */
  readonly stepSeconds?: number;
  /** Called with each kernel's result as soon as it is known, even if a fault of the machine follows. */
  readonly onMeasured?: (at: number, measurement: Measurement) => void;
  /** Called with each set of inputs that kernels are not checked on, because it cannot reveal wrong results. */
  readonly onLeftOut?: (set: string) => void;
  /** Ends the round early: once time is up only compiled kernels are measured; if the user stops, it is rejected. */
  readonly until?: Until;
}

export interface CudaRunner {
  readonly device: CudaDevice;
  /** Whether threads are fibers on the CPU. Results are then checked, but times mean nothing. */
  readonly emulated: boolean;
  readonly compile: (kernel: Kernel) => Promise<Loadable>;
  readonly reference: (
    computation: Computation,
    seed: number,
    options?: { readonly fixed?: Inputs },
  ) => Promise<CudaReference>;
  /** Has what kernels of a computation are checked with computed, for measurements that follow; they tell of its errors. */
  readonly prepare: (reference: CudaReference | Promise<CudaReference>) => Promise<void>;
  /** Measures kernels, or libraries compiled elsewhere, in one process on the same memory, in alternating batches. */
  readonly measureTogether: (
    kernels: readonly (Kernel | Prebuilt)[],
    reference: CudaReference | Promise<CudaReference>,
    timing?: CudaTiming,
  ) => Promise<readonly Measurement[]>;
  /** Runs libraries of probes (perfmodel/gpu-probes.ts): for every probe in order, seconds and cycles of each sample. */
  readonly probe: (sources: readonly SourceText[]) => Promise<readonly (readonly (readonly [number, number])[])[]>;
  /** The measuring program, and its request for compiled kernels, for use with a sanitizer or a profiler. */
  readonly harness: string;
  readonly requestOf: (files: readonly string[], reference: CudaReference, timing?: CudaTiming) => string;
  /** Seconds spent waiting until another search released the device. */
  readonly waited: () => number;
  readonly close: () => Promise<void>;
}

/** A shared object with the interface of a kernel, such as a library to compare with. */
export interface Prebuilt {
  readonly file: string;
  readonly arguments: Kernel["arguments"];
}

export interface CudaRunnerOptions extends CudaTiming {
  /** `~/.cache/automap/runtime` by default. */
  readonly workdir?: string;
  /** Concurrent compilations; by default one a core. */
  readonly jobs?: number;
  /** The seed of the bootstrap. */
  readonly seed?: number;
  /** Runs everything on the CPU, each CUDA thread as a fiber. Results are checked, but times mean nothing. */
  readonly emulated?: boolean;
  /** Called with what is waited for: another search that measures on the device or compiles. */
  readonly onWait?: (text: string) => void;
}

type Settings = Required<Omit<CudaTiming, "race" | "onMeasured" | "onLeftOut" | "until">>;

/** How a kernel is measured where nothing else is asked for. */
export const CUDA_MEASURING = {
  cache: "warm",
  budgetSeconds: 0.05,
  batchSeconds: 500e-6,
  batches: [5, 200],
  settleSeconds: 0.05,
  stepSeconds: 20,
} as const satisfies Settings;

/** Makes a runner for the first GPU, or says what this machine lacks. */
export function createCudaRunner(options: CudaRunnerOptions = {}): Promise<Ready<CudaRunner> | EnvironmentProblem> {
  return orProblem(() => makeRunner(options));
}

async function makeRunner(options: CudaRunnerOptions): Promise<Ready<CudaRunner> | EnvironmentProblem> {
  const device = options.emulated ? await emulatedDevice() : await findCudaDevice();
  if ("status" in device) return device;
  const workdir = options.workdir ?? cacheFolder("runtime");
  await mkdir(workdir, { recursive: true });
  await trimCache(workdir, cacheLimits());
  const stopping = new AbortController();
  const sharing = { signal: stopping.signal, ...(options.onWait ? { onWait: options.onWait } : {}) };
  const compiler = await findCompiler();
  const host = compiler.status === "found" ? compiler : undefined;
  const toolchain = options.emulated ? emulatedToolchain(device) : nvccToolchain(device, host);
  const builder = new Builder(
    toolchain,
    workdir,
    options.jobs ?? availableParallelism(),
    shareCores(sharing),
    stopping.signal,
  );
  const harness = await builder.build(await programText("cuda.cu"), "program");
  if (harness.status !== "built")
    return {
      status: "environment",
      what: `${device.nvcc.path} (${device.nvcc.version}) cannot compile the measuring program\n${harness.log}`,
      why: "kernels are checked and timed by it",
      remedy: harness.log.includes("Unsupported gpu architecture")
        ? `put an nvcc first on the PATH that knows compute capability ${(device.capability / 10).toFixed(1)}: newer toolkits leave old GPUs out, older ones know no new ones`
        : "install a C++ compiler that this nvcc works with",
    };
  const scratch = new OwnFolder(await mkdtemp(join(workdir, `runner-${process.pid}-`)));
  // One search at a time measures on a device. Its lock is that of a core without processors.
  const gpu = { name: `gpu ${device.id}`, cpus: [], isFastest: true };
  const place = {
    device,
    builder,
    harness: harness.file,
    scratch,
    stopping,
    gpu: shareCores({ ...sharing, cores: [gpu], what: "GPU" }),
  };
  return { status: "ready", runner: new LocalCudaRunner(place, options) };
}

/** Where and with what a runner measures. */
interface Place {
  readonly device: CudaDevice;
  readonly builder: Builder;
  /** The measuring program. */
  readonly harness: string;
  /** This runner's own folder. */
  readonly scratch: OwnFolder;
  readonly stopping: AbortController;
  /** The lock on the device. */
  readonly gpu: Cores;
}

/** A compiled library without a promised instruction. */
function prebuilt({ file }: Prebuilt): Compiling {
  const compiled = { status: "compiled", file, instructions: 0, seconds: 0 } as const;
  return { loadable: Promise.resolve(compiled), examined: Promise.resolve(compiled) };
}

class LocalCudaRunner implements CudaRunner {
  readonly device: CudaDevice;
  readonly emulated: boolean;
  readonly harness: string;
  private readonly place: Place;
  private readonly settings: Settings;
  private readonly seed: number;
  private readonly oneAtATime = pLimit(1);
  /** The measuring process, which stays for what else is measured of its problem. */
  private readonly standing = new StandingHarness();
  private problem: string | undefined;

  constructor(place: Place, options: CudaRunnerOptions) {
    this.place = place;
    this.device = place.device;
    this.emulated = options.emulated === true;
    this.harness = place.harness;
    this.settings = { ...CUDA_MEASURING, ...(this.emulated && { settleSeconds: 0 }), ...defined(options) };
    this.seed = options.seed ?? 1;
  }

  compile(kernel: Kernel): Promise<Loadable> {
    return this.place.builder.kernel(kernel).loadable;
  }

  async reference(
    computation: Computation,
    seed: number,
    options: { readonly fixed?: Inputs } = {},
  ): Promise<CudaReference> {
    if (computation.program) return this.referenceInFiles(computation, seed);
    const fixed = { ...drawnIndices(computation, seed), ...options.fixed };
    const { builder, scratch } = this.place;
    const source = cudaReferenceSource(computation);
    const library = await builder.fileOf(source, "reference", `the reference of ${computation.name}`);
    return onThisMachine("writing inputs", async () => {
      const { write } = await scratch.inside();
      const files = Object.entries(fixed).map(async ([name, values]): Promise<[string, string]> => {
        const tensor = tensorOf(computation, name);
        const file = `fixed-${inputsOf(computation).findIndex((t) => t.name === name)}`;
        return [name, await write(file, encodeElements(tensor.dtype, toMemory(tensor, Float64Array.from(values))))];
      });
      return {
        computation,
        seed,
        file: library,
        bounds: undefined,
        sets: cudaSets(computation, fixed),
        fixed: Object.fromEntries(await Promise.all(files)),
      };
    });
  }

  /** Of a program: its inputs, and the bounds of each value that it stores. */
  private async referenceInFiles(computation: Computation, seed: number): Promise<CudaReference> {
    const { scratch, stopping } = this.place;
    const compiler = await findCompiler();
    if (compiler.status === "environment") throw new EnvironmentError(compiler);
    const options = { compiler, workdir: scratch.path, signal: stopping.signal };
    const { sets, checked } = await referenceOfParts(computation, seed, options);
    // Inputs are the same for every set: fractions if they can, which tell more than integers.
    const ofInputs = [...groupsOf(sets, ({ name }) => name).values()];
    const told = ofInputs.findLast((own) => own.length === new Set(sets.map(({ of }) => of)).size);
    const [set] = told ?? [];
    if (!told || !set)
      throw new UsageError(`${computation.name} cannot be verified: no inputs tell of all that it stores`);
    const places = Object.keys(computation.tensors);
    return onThisMachine("writing inputs", async () => {
      const { path, write } = await scratch.inside();
      const names = told.map(async ({ name, of, expected, tolerance }) => {
        const holes = of ? checkedIn(of) : checked;
        const bounds = new Float64Array(2 * expected.length);
        for (const [i, value] of expected.entries()) {
          const off = holes?.[i] === 0 ? Number.NaN : (tolerance[i] ?? 0);
          bounds[i] = value - off;
          bounds[expected.length + i] = value + off;
        }
        const place = of ? [`${places.indexOf(of.name)}`] : [];
        await write(["bounds", name, ...place].join("."), new Uint8Array(bounds.buffer));
        return [name, ...place].join(" ");
      });
      const inputs = Object.entries(set.inputs).map(
        async ([name, bytes], i): Promise<[string, string]> => [name, await write(`input-${i}`, bytes)],
      );
      return {
        computation,
        seed,
        file: undefined,
        bounds: join(path, "bounds"),
        sets: await Promise.all(names),
        fixed: Object.fromEntries(await Promise.all(inputs)),
      };
    });
  }

  async measureTogether(
    kernels: readonly (Kernel | Prebuilt)[],
    pending: CudaReference | Promise<CudaReference>,
    timing: CudaTiming = {},
  ): Promise<readonly Measurement[]> {
    const { until } = timing;
    const asked = kernels.map((k) => ("file" in k ? prebuilt(k) : this.place.builder.kernel(k)));
    const begun = asked.slice(0, await countInTime(asked, pending, until));
    for (const kernel of kernels.slice(begun.length)) if ("source" in kernel) this.place.builder.abandon(kernel);
    if (begun.length === 0) return [];
    const [reference, ...compiled] = await Promise.all([pending, ...begun.map(({ loadable }) => loadable)]);
    for (const kernel of kernels) checkArguments(kernel, reference.computation);
    const results = new Map<number, Measurement>();
    const keep = (at: number, measurement: Measurement): void => {
      results.set(at, measurement);
      timing.onMeasured?.(at, measurement);
    };
    let left: { readonly at: number; readonly file: string }[] = [];
    for (const [at, made] of compiled.entries()) {
      const kernel = kernels[at];
      const one = kernel && "source" in kernel ? await this.place.builder.present(kernel, made) : made;
      if (one.status === "compiled") left.push({ at, file: one.file });
      else keep(at, one);
    }
    // Code is disassembled while kernels run.
    const judge = async (at: number, verdict: Verdict): Promise<void> => {
      const examined = await begun[at]?.examined;
      if (examined?.status === "compiled") keep(at, toMeasurement(verdict, examined.instructions, this.seed));
      else if (examined) keep(at, examined);
    };
    const isOwn = kernels.every((kernel) => "source" in kernel);
    // An error may lose the device's context. Kernels without a verdict start again in another process.
    while (left.length > 0) {
      const tried = left;
      const before = results.size;
      const files = tried.map((k) => k.file);
      const request = this.requestOf(files, reference, timing);
      const heard: [number, Verdict][] = [];
      const onVerdict = (i: number, verdict: Verdict): void => {
        const one = tried[i];
        if (one) heard.push([one.at, verdict]);
      };
      const { name, time } = reference.computation;
      const told = defined({
        onVerdict,
        unverifiable: () => unverifiable(name, time?.steps ?? 0),
        onLeftOut: timing.onLeftOut,
      });
      // What is compiled elsewhere may leave something behind in its process.
      await this.run(request, timing, told, isOwn ? reference : undefined).finally(() =>
        Promise.all(heard.map(([at, verdict]) => judge(at, verdict))),
      );
      if (results.size === before) internal("the measuring program ended without an answer");
      left = left.filter(({ at }) => !results.has(at));
    }
    return begun.map((_, at) => {
      return results.get(at) ?? internal("a kernel was lost");
    });
  }

  requestOf(files: readonly string[], reference: CudaReference, timing: CudaTiming = {}): string {
    const kernel = { arguments: argumentsOf(reference.computation) };
    return cudaRequest(files, kernel, reference, { ...this.settings, ...defined(timing) });
  }

  async prepare(pending: CudaReference | Promise<CudaReference>): Promise<void> {
    const reference = await pending;
    const request = this.requestOf([], reference);
    await this.run(request, {}, {}, reference).catch(() => undefined);
  }

  async probe(sources: readonly SourceText[]): Promise<readonly (readonly (readonly [number, number])[])[]> {
    const { builder } = this.place;
    const files = await Promise.all(sources.map((source) => builder.fileOf(source, "probe", "a library of probes")));
    const verdicts = await this.run(`${files.map((file) => `probe ${file}`).join("\n")}\ngo\n`, {});
    return [...verdicts.entries()]
      .sort(([a], [b]) => a - b)
      .map(([, verdict]) => {
        if (verdict.status !== "timed") throw new Error(`a probe ${verdict.status}: ${verdict.log}`);
        const { samples } = verdict;
        return samples.flatMap((s, i) => (i % 2 === 0 ? [[s, samples[i + 1] ?? 0] as const] : []));
      });
  }

  waited(): number {
    return this.place.gpu.waited();
  }

  async close(): Promise<void> {
    this.place.stopping.abort();
    await this.oneAtATime(() => this.standing.end());
    await this.place.scratch.remove();
  }

  /**
   * Has a process answer a request, alone on the device. A fault that a new process may not meet is tried once more.
   * @param reference what the process stays for; undefined for a process of its own
   */
  private run(
    request: string,
    timing: CudaTiming,
    told: Pick<HarnessLimits, "onVerdict" | "unverifiable" | "onLeftOut"> = {},
    reference?: CudaReference,
  ): Promise<HarnessReply["verdicts"]> {
    const { gpu, stopping } = this.place;
    const { stepSeconds } = { ...this.settings, ...defined(timing) };
    // The device that records name, independent of CUDA's numbering.
    const variables = { CUDA_VISIBLE_DEVICES: this.device.id };
    const limits = {
      stepSeconds,
      outputBytes: 2 ** 20,
      signal: timing.until ? AbortSignal.any([stopping.signal, timing.until.stop]) : stopping.signal,
      variables,
      ...told,
    };
    const once = (): Promise<HarnessReply> =>
      runHarness(this.harness, `parent ${process.pid}\n${request}`, limits, this.standingFor(reference)).catch(
        (error: unknown) => {
          throw error instanceof EnvironmentError ? cudaProblem(error) : error;
        },
      );
    return this.oneAtATime(async () => {
      const reply = await gpu.measuring(1, () =>
        once().catch((error: unknown) => {
          if (mayPass(error)) return once();
          throw error;
        }),
      );
      return reply.verdicts;
    });
  }

  /** The process that stays for a problem, or none; that of another problem ends. */
  private standingFor(reference: CudaReference | undefined): StandingHarness | undefined {
    const text = reference && problemOf({ arguments: argumentsOf(reference.computation) }, reference).join("\n");
    if (this.problem !== text) this.standing.end();
    this.problem = text;
    return text === undefined ? undefined : this.standing;
  }
}

/** The lines of a request that are the same for everything that is measured of a problem. */
function problemOf({ arguments: all }: Taken, { fixed, seed, sets, file, bounds }: Problem): string[] {
  return [
    ...all.map(({ dtype, elements, tensor }) => `argument ${dtype} ${elements} ${tensor}`),
    ...Object.entries(fixed).map(([tensor, path]) => `fixed ${tensor} ${path}`),
    `seed ${seed}`,
    ...sets.map((set) => `set ${set}`),
    ...(file === undefined ? [] : [`reference ${file}`]),
    ...(bounds === undefined ? [] : [`bounds ${bounds}`]),
  ];
}

/** The number of kernels to measure, from the first: those compiled, with the reference, before the round ends. */
async function countInTime(
  begun: readonly Compiling[],
  reference: Promise<unknown> | unknown,
  until: Until | undefined,
): Promise<number> {
  if (!until) return begun.length;
  let compiled = 0;
  // In order: kernels after one that still compiles are not counted.
  const inOrder = begun.reduce<Promise<unknown>>(
    (before, { loadable }) => before.then(() => loadable).then(() => void compiled++),
    Promise.resolve(reference),
  );
  if (await isDoneBefore(inOrder, AbortSignal.any([until.time, until.stop]))) return begun.length;
  const first = (): Promise<unknown> => Promise.all([reference, begun[0]?.loadable]);
  if (compiled === 0 && until.needsOne && (await isDoneBefore(first(), until.stop))) compiled = Math.max(1, compiled);
  return until.stop.aborted ? 0 : compiled;
}

/** The request for compiled kernels, but for the process that makes it. */
export function cudaRequest(
  files: readonly string[],
  kernel: Taken,
  reference: Problem,
  {
    cache,
    batchSeconds,
    budgetSeconds,
    batches,
    settleSeconds,
    race,
  }: Omit<Settings, "stepSeconds"> & Pick<CudaTiming, "race">,
): string {
  const lines = [
    ...problemOf(kernel, reference),
    `cache ${cache}`,
    `batch ${batchSeconds}`,
    `budget ${budgetSeconds}`,
    `batches ${batches.join(" ")}`,
    `settle ${settleSeconds}`,
    ...(race ? ["race"] : []),
    ...(race?.goal === undefined ? [] : [`goal ${race.goal}`]),
    ...files.map((file) => `kernel ${file}`),
    "go",
  ];
  return `${lines.join("\n")}\n`;
}

/** The sets of inputs that kernels are checked on. Sums of small integers are exact, but not with fractions that the operator fixes. */
export function cudaSets(computation: Computation, fixed: Inputs): readonly string[] {
  const deciding = decidingInputs(computation);
  return Object.entries(fixed).some(([name, values]) => !deciding.has(name) && !Array.from(values).every(isSmall))
    ? INEXACT_SETS
    : setsOf(computation);
}

/** Whether a value is an integer of the exact set, whose products and sums are exact in every float type. */
function isSmall(value: number): boolean {
  return Number.isInteger(value) && Math.abs(value) <= 3;
}

/** What the measuring program says of a kernel, as a measurement. */
export function toMeasurement(verdict: Verdict, instructions: number, seed: number): Measurement {
  if (verdict.status !== "timed") return verdict;
  const { samples, clock, dropped: lostTo } = verdict;
  return { status: "ok", samples, ...summarise(samples, seed), instructions, ...defined({ clock, lostTo }) };
}
