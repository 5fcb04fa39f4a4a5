/**
 * @file Opens a network, chooses a kernel for each task, and assembles the contents of its library.
 *
 *     const { program } = openGraph(readOnnx("resnet18.onnx"), { dims: { batch: 1 } });
 *     await tuneNetwork(program, { seconds: 60, database: "automap.db" });
 *     const subject = networkSubject(program, choicesOf(program, { records }));
 */

import { type Candidate, type CandidateKinds, isOnGpu } from "../../abstraction/candidate.ts";
import { type Computation, computationKey } from "../../abstraction/computation.ts";
import { attempt, checkNames, UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import { finished } from "../../abstraction/steps.ts";
import { boundOfForm } from "../../abstraction/winograd.ts";
import { best, type Conditions, type Database, type Environment, shortId } from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { isLoops } from "../../intrinsics/loops.ts";
import { THREAD } from "../../intrinsics/thread.ts";
import { inBrainFloats } from "../../network/brain-float.ts";
import { chainsOf, type StepChain } from "../../network/chains.ts";
import { fuse } from "../../network/fuse.ts";
import type { Graph } from "../../network/graph.ts";
import { inHalf } from "../../network/half.ts";
import { channelsLast } from "../../network/layout.ts";
import { type LowerOptions, lowerGraph } from "../../network/lower.ts";
import type { Network, Step } from "../../network/network.ts";
import { stacked } from "../../network/stack.ts";
import { isTuned, multiplyAddsOf, type Task, tasksOf } from "../../network/tasks.ts";
import { type Widened, widened } from "../../network/widen.ts";
import { packageName } from "../../package/index.ts";
import type { NetworkKernel, NetworkSubject } from "../../package/network/index.ts";
import { placeText } from "../../report/describe-candidate.ts";
import { counted } from "../../report/text.ts";
import { capabilityOf, isGpu, nativeTarget } from "../../targets/index.ts";
import { isTimed } from "../../tuner/trials.ts";
import { usableIntrinsics } from "../kinds/choose.ts";
import { kernelFor, kernelOfRecord } from "../kinds/kernel.ts";
import { sessionKindOf, usualKernel } from "../kinds/kinds.ts";
import { isRefusals, type SessionKind } from "../kinds/session-space.ts";
import { sessionSpace } from "../kinds/space.ts";
import { storedCalibration } from "../recorded.ts";
import type { TimedRecord } from "../report/report-trials.ts";
import { rankOf } from "../tune/rank.ts";
import { MADE_BY } from "../version.ts";

/** A network that is ready to be tuned and emitted. */
export interface OpenNetwork {
  readonly graph: Graph;
  readonly options: LowerOptions;
  /** Every node as its equations. */
  readonly plain: Network;
  /** The same after operator fusion and layout selection. */
  readonly program: Network;
  /** The f16 of the graph that is computed in f32, if it has any. */
  readonly widened?: Widened;
}

/** Whether a machine has an instruction that scales sums of bytes, for products that allow rounding to bytes. */
export const sumsBytes = (machine: Target = nativeTarget()): boolean =>
  usableIntrinsics(machine).some(({ operands }) => operands[0]?.dtype === "f32" && operands[1]?.dtype === "s8");

/**
 * Opens a graph for this CPU, in f32: every node as its equations, then fused, with channels last. Products of `accuracy_level` 4 are in bytes where
 * `sumsBytes` says so, unless `inBytes` decides.
 * @throws UsageError, naming the node or input, when one of its nodes is not supported or a size is missing
 */
export function openGraph(graph: Graph, options: LowerOptions = {}): OpenNetwork {
  checkNames(options, { dims: true, constants: true, inBytes: true }, "openGraph");
  const wide = widened(graph);
  const plain = lowerGraph(wide?.graph ?? graph, { inBytes: sumsBytes(), ...options });
  return { graph, options, plain, program: channelsLast(fuse(plain)), ...(wide && { widened: wide.was }) };
}

/** The network for a GPU: values in f16, sums in f32, channels of images and filters innermost, and products of one value as one step. */
export function inHalfOnGpu(given: OpenNetwork): OpenNetwork {
  const { graph, options } = given;
  const { plain, ...opened } = given.plain.inBytes ? openGraph(graph, { ...options, inBytes: false }) : given;
  return { ...opened, plain, program: stacked(channelsLast(inHalf(fuse(plain)), true)) };
}

/** The network for a CPU in bf16: factors of products in bf16, all else in f32. */
export function inBrainFloatsOnCpu({ plain, ...opened }: OpenNetwork): OpenNetwork {
  return { ...opened, plain, program: channelsLast(inBrainFloats(fuse(plain))) };
}

/**
 * How a task is computed: by the kernel of a record, by one that is expected to be fast (that of a record with another number of threads, or the fastest
 * by the model), or by plain loops.
 */
export type Choice =
  | {
      readonly kind: "record";
      readonly kernel: NetworkKernel;
      readonly id: string;
      readonly seconds: number;
      /** State of the caches in which it was measured. */
      readonly cache: Conditions["cache"];
      readonly place: string;
      readonly family: SessionKind["family"];
    }
  /** `expected` is the predicted time of a call in seconds. */
  | { readonly kind: "model"; readonly kernel: NetworkKernel; readonly place: string; readonly expected: number }
  /** Vectorised, or where that is not possible, compiled from the equation as written. */
  | { readonly kind: "loops"; readonly kernel?: NetworkKernel; readonly because: string };

/** The records of one environment. */
export interface Records {
  readonly db: Database;
  readonly environment: Environment;
  /** Its CPU where that is elsewhere. */
  readonly machine?: Target | undefined;
}

/** Candidates that the model ranks for a step that was never tuned. */
const UNTUNED_DRAWS = { cpu: 100, gpu: 400 };

/** The kernels of a network follow one another in a stream. */
const IN_STREAM = { chained: true };

/** What decides how a network's steps are computed. */
export interface ChosenOn {
  /** This CPU when left out. */
  readonly machine?: Target | undefined;
  readonly threads?: number | undefined;
  readonly records?: Records | undefined;
  /** Whether each step must be computed as its equation says; false when left out. */
  readonly exact?: boolean | undefined;
}

/** A world that trusts what was measured in exactly this environment. */
export const trustedIn = (environment: Environment) =>
  ({ environment, intrinsics: intrinsicNamed, policy: "exact" }) as const;

/** A kernel of a network, with the lines that say where it comes from. */
export const networkKernel = (kernel: Kernel, ...from: readonly string[]): NetworkKernel => ({
  kernel,
  provenance: [...from, MADE_BY],
});

/** Which kernels are meant. */
interface Kernels {
  readonly threads: number;
  /** Those of GPUs, or those of CPUs. */
  readonly onGpu: boolean;
  readonly exact?: boolean | undefined;
}

/** What the kernels of a product are chosen from: where its equation has a form with fewer products (Winograd), of that too unless it must be exact. */
export const kindsForProducts = (computation: Computation, exact = false): CandidateKinds =>
  exact || !boundOfForm(computation) ? "mappings" : "instructions";

/**
 * The fastest kernel of a computation that was measured here: with flushed caches if it was, because that comes nearer to its time in the network,
 * unless the other one alone was decided in finals. Imported records have no part in a network: `tune-network --trust-imported` measures them here.
 */
function bestRecord(
  computation: Computation,
  { db, environment }: Records,
  { threads, onGpu, exact }: Kernels,
): TimedRecord | undefined {
  // Designs on the lanes of warps keep constants in variables that all kernels of a program share.
  const kinds = exact ? "exact" : "all";
  const found = best(db, { computation, trusted: trustedIn(environment), threads }, { kinds })
    .filter(isTimed)
    .filter(({ candidate }) => (onGpu ? isOnGpu(candidate) && !isOnLanes(candidate) : !isOnGpu(candidate)));
  const [warm, flushed] = (["warm", "flushed"] as const).map((cache) =>
    found.find(({ conditions }) => conditions.cache === cache),
  );
  return flushed && (flushed.finals || !warm?.finals) ? flushed : (warm ?? flushed);
}

/** Whether a candidate is a design on the lanes of vectors or warps. */
const isOnLanes = (candidate: Candidate): boolean => ["window", "design"].includes(sessionKindOf(candidate).family);

/** A kernel measured with another number of threads, its loops divided among those wanted; its time is expected in proportion. */
interface Divided {
  readonly trial: TimedRecord;
  readonly candidate: Candidate;
  readonly seconds: number;
}

/** The same schedule for another number of threads; undefined for a kind that depends on it. */
function dividedAmong(candidate: Candidate, threads: number): Candidate | undefined {
  if (candidate.kind === "mapping") return { ...candidate, schedule: { ...candidate.schedule, threads } };
  if (candidate.kind === "winograd") return { ...candidate, schedule: { ...candidate.schedule, threads } };
  return undefined;
}

/** Of the fastest kernels with other numbers of threads, the one with the shortest time expected; undefined when there is none. */
function dividedRecord(
  computation: Computation,
  records: Records,
  { threads, exact }: Pick<Kernels, "threads" | "exact">,
): Divided | undefined {
  const trusted = trustedIn(records.environment);
  const counts = new Set(best(records.db, { computation, trusted }).map(({ conditions }) => conditions.threads));
  const found = [...counts].flatMap((count): readonly Divided[] => {
    const trial = bestRecord(computation, records, { threads: count, onGpu: false, exact });
    const candidate = trial && dividedAmong(trial.candidate, threads);
    return candidate ? [{ trial, candidate, seconds: (trial.measurement.median * count) / threads }] : [];
  });
  return found.sort((a, b) => a.seconds - b.seconds)[0];
}

/** Seconds of the fastest kernel that was measured here, if any. */
export function recordedSeconds(computation: Computation, records: Records, of: Kernels): number | undefined {
  return bestRecord(computation, records, of)?.measurement.median;
}

/** The fastest measured kernel, if any. */
export function recordedKernel(computation: Computation, records: Records, of: Kernels): Choice | undefined {
  const trial = bestRecord(computation, records, of);
  if (!trial) return undefined;
  const id = shortId(trial.id);
  return {
    kind: "record",
    kernel: networkKernel(kernelOfRecord(trial, IN_STREAM), `record    ${id}`),
    id,
    seconds: trial.measurement.median,
    cache: trial.conditions.cache,
    place: placeOf(trial.candidate),
    family: sessionKindOf(trial.candidate).family,
  };
}

/** @throws UsageError naming the node when a step has no kernel for a GPU; on a CPU such a step is compiled as it is written */
export function chooseKernel(
  task: Task,
  { machine = nativeTarget(), threads = 1, records, exact }: ChosenOn = {},
): Choice {
  const { computation, multiplyAdds } = task;
  const onGpu = isGpu(machine);
  const recorded = records && recordedKernel(computation, records, { threads, onGpu, exact });
  if (recorded) return recorded;
  const divided =
    records && multiplyAdds > 0 && !onGpu ? dividedRecord(computation, records, { threads, exact }) : undefined;
  const shared = divided && attempt(() => kernelFor(computation, divided.candidate));
  if (divided && shared) {
    const { trial, candidate, seconds } = divided;
    const from = `not tuned for ${counted(threads, "thread")}: the schedule of record ${shortId(trial.id)}, tuned for ${trial.conditions.threads}`;
    return { kind: "model", kernel: networkKernel(shared, from), place: placeOf(candidate), expected: seconds };
  }
  const calibration = onGpu || !records ? undefined : storedCalibration(records.db, records.environment)?.calibration;
  const kinds = kindsForProducts(computation, exact);
  const options = { machine, threads, calibration, count: 1, kinds } as const;
  const draws = onGpu ? UNTUNED_DRAWS.gpu : UNTUNED_DRAWS.cpu;
  const ranked = multiplyAdds > 0 ? rankOf(computation, options, draws) : [];
  const [first] = "refused" in ranked ? [] : ranked;
  const mapped = first && attempt(() => kernelFor(computation, first.candidate, machine, IN_STREAM));
  if (mapped)
    return {
      kind: "model",
      kernel: networkKernel(mapped, "not tuned: chosen by the model"),
      place: placeOf(first.candidate),
      expected: first.prediction.seconds,
    };
  const because = "refused" in ranked ? (ranked.refused[0]?.because ?? "nothing maps") : "it sums no products";
  const kernel = attempt(
    () => usualKernel(computation, machine, IN_STREAM),
    ({ message }) => {
      if (onGpu) throw new UsageError(`${task.steps[0]?.nodes[0] ?? computation.name}: ${message}`);
    },
  );
  return { kind: "loops", because, ...(kernel && { kernel: networkKernel(kernel) }) };
}

/** A short description of a candidate. */
export const placeOf = (candidate: Candidate): string => `${candidate.intrinsic} ${placeText(candidate)}`.trim();

/** The contents of the network's package, with the chosen kernels. */
export function networkSubject(
  program: Network,
  choices: ReadonlyMap<Task, Choice>,
  {
    name,
    threads = 1,
    gpu,
    provenance = [],
    chains = chainsIn(program, choices, { threads, machine: gpu }),
  }: {
    readonly name?: string | undefined;
    readonly threads?: number;
    /** The machine when all kernels are CUDA kernels. */
    readonly gpu?: Target | undefined;
    readonly provenance?: readonly string[];
    /** Steps that one kernel computes; without records when left out. */
    readonly chains?: readonly ChosenChain[];
  } = {},
): NetworkSubject {
  const chosen = [...choices].map(([{ computation }, choice]) => ({ computation, choice }));
  const kernels = new Map(
    [...chosen, ...chains].flatMap(({ computation, choice }) =>
      choice.kernel ? [[computationKey(computation), choice.kernel] as const] : [],
    ),
  );
  return {
    name: packageName(program.name, name),
    program,
    kernels,
    chains,
    threads,
    ...(gpu && { gpu: { capability: capabilityOf(gpu) } }),
    provenance: [...provenance, MADE_BY],
  };
}

/** Steps that one kernel computes, and how. */
export type ChosenChain = StepChain & { readonly choice: Choice };

/** Steps that one kernel computes row by row: of those that no instruction computes. */
export function chainsIn(program: Network, choices: ReadonlyMap<Task, Choice>, on: ChosenOn): ChosenChain[] {
  const free = new Set(
    [...choices].flatMap(([{ steps }, choice]) => (isInLoops(choice) && choice.kernel ? steps : [])),
  );
  const known = new Map<string, Choice | undefined>();
  const { machine = nativeTarget(), threads = 1 } = on;
  const options = { threads, isFree: (step: Step) => free.has(step), withoutSums: isGpu(machine) };
  return chainsOf(program, options).flatMap((one) => {
    const key = computationKey(one.computation);
    if (!known.has(key)) known.set(key, chosenChain(one, on));
    const choice = known.get(key);
    return choice ? [{ ...one, choice }] : [];
  });
}

/** Whether no instruction computes it: it may then join a chain. */
export const isInLoops = (choice: Choice): boolean =>
  choice.kind === "loops" || (choice.kind === "record" && choice.family === "loops");

/** Undefined for a chain whose rows fit into no block of a GPU: it stays apart. */
function chosenChain(
  { computation, steps }: StepChain,
  { machine = nativeTarget(), threads = 1, records }: ChosenOn,
): Choice | undefined {
  const recorded = records && recordedKernel(computation, records, { threads, onGpu: isGpu(machine) });
  if (recorded) return recorded;
  const kernel = attempt(() => usualKernel(computation, machine, IN_STREAM));
  return (
    kernel && {
      kind: "loops",
      because: `${steps.length} steps row by row`,
      kernel: networkKernel(kernel),
    }
  );
}

/** Each task with its kernel. */
export function choicesOf(program: Network, on: ChosenOn = {}): Map<Task, Choice> {
  return new Map(tasksOf(program).map((task) => [task, chooseKernel(task, on)] as const));
}

/** The network with the steps alone that are no products. */
export function withoutProducts(program: Network): Network {
  return { ...program, steps: program.steps.filter(({ computation }) => multiplyAddsOf(computation) === 0) };
}

/**
 * What a search may find a faster kernel for besides products: chains, each with the last step of every place where it stands, and steps in no chain.
 */
export function otherTasksOf(program: Network, choices: ReadonlyMap<Task, Choice>, on: ChosenOn): Task[] {
  const tasks = new Map<string, Task>();
  const chained = new Set<Step>();
  for (const { computation, steps } of chainsIn(program, choices, on)) {
    for (const step of steps) chained.add(step);
    const key = computationKey(computation);
    const known = tasks.get(key)?.steps ?? [];
    tasks.set(key, { computation, steps: [...known, ...steps.slice(-1)], multiplyAdds: 0 });
  }
  const plain = [...choices].flatMap(([task, choice]) => {
    const steps = isInLoops(choice) ? task.steps.filter((step) => !chained.has(step)) : [];
    return steps.length > 0 ? [{ ...task, steps }] : [];
  });
  return [...tasks.values(), ...plain].filter(({ computation }) => hasChoice(computation, on));
}

/** The rows of plain loops that a machine can use. */
export const loopRowsFor = (machine: Target = nativeTarget()): readonly Intrinsic[] =>
  isGpu(machine) ? [THREAD] : usableIntrinsics(machine).filter(isLoops);

/** Whether plain loops of a computation, or a program, have several candidates. */
function hasChoice(computation: Computation, { machine = nativeTarget(), threads = 1 }: ChosenOn): boolean {
  const found = finished(sessionSpace(computation, { intrinsics: loopRowsFor(machine), machine, threads, seed: 1 }));
  return !isRefusals(found) && (found.size ?? 2) > 1;
}

export const tunedTasks = (program: Network): Task[] => tasksOf(program).filter(isTuned);
