/**
 * @file A network from a model to a library: its tasks tuned, the best kernel of each taken, the library written and proved.
 *
 *     const { program } = openNetwork("resnet18.onnx", { dims: { batch: 1 } });
 *     await tuneNetwork(program, { seconds: 60, database: "automap.db" });
 *     const subject = networkSubject("resnet18", program, kernelsFor(program, records));
 */

import type { Candidate } from "../abstraction/candidate.ts";
import { isOnGpu } from "../abstraction/candidate.ts";
import { type Computation, computationKey } from "../abstraction/computation.ts";
import { attempt } from "../abstraction/error.ts";
import { best, type Database, type Environment, shortId, type TrialRecord } from "../db/index.ts";
import { everyIntrinsic } from "../intrinsics/index.ts";
import { fuse } from "../network/fuse.ts";
import type { Graph } from "../network/graph.ts";
import { inHalf } from "../network/half.ts";
import { channelsLast } from "../network/layout.ts";
import { type LowerOptions, lowerGraph } from "../network/lower.ts";
import { readOnnx } from "../network/onnx/read.ts";
import type { Program } from "../network/program.ts";
import { isTuned, type Task, tasksOf } from "../network/tasks.ts";
import { packageName } from "../package/index.ts";
import type { NetworkKernel, NetworkSubject } from "../package/network/index.ts";
import { placeText } from "../report/describe-candidate.ts";
import { nativeTarget } from "../targets/index.ts";
import { formsIn, inBestForms, targetOfForms } from "./forms.ts";
import { kernelFor, kernelOfRecord } from "./kernel.ts";
import { loopsKernel } from "./plain-loops.ts";
import { rankOf } from "./rank.ts";
import { VERSION } from "./version.ts";

export interface OpenNetwork {
  readonly graph: Graph;
  /** Every node as its equations. */
  readonly plain: Program;
  /** The same fused and laid out. */
  readonly program: Program;
}

/** @throws UsageError when the file is no model, or a node of it is not supported */
export function openNetwork(file: string, options: LowerOptions = {}): OpenNetwork {
  return openGraph(readOnnx(file), options);
}

export function openGraph(graph: Graph, options: LowerOptions = {}): OpenNetwork {
  const plain = lowerGraph(graph, options);
  return { graph, plain, program: channelsLast(fuse(plain)) };
}

/** A network for a GPU: values in f16, sums in f32, images and filters with their channels innermost. */
export function inHalfOnGpu({ graph, plain }: OpenNetwork): OpenNetwork {
  return { graph, plain, program: channelsLast(inHalf(fuse(plain)), true) };
}

/** How a task is computed: by a kernel of a record, by what the model expects to be fastest, or by plain loops. */
export type Choice =
  | {
      readonly kind: "record";
      readonly kernel: NetworkKernel;
      readonly id: string;
      readonly seconds: number;
      readonly place: string;
    }
  /** `expected` are seconds of a call, by the model. */
  | { readonly kind: "model"; readonly kernel: NetworkKernel; readonly place: string; readonly expected: number }
  /** Vectorised, or where that is not to be had by the equation as it is written. */
  | { readonly kind: "loops"; readonly kernel?: NetworkKernel; readonly because: string };

/** The records that hold here. */
export interface Records {
  readonly db: Database;
  readonly environment: Environment;
}

/** Candidates that the model ranks for a step that nobody tuned. */
const UNTUNED_DRAWS = 100;

/** The fastest kernel of a computation that was measured here. @param onGpu which of the kinds of kernels */
function bestRecord(
  computation: Computation,
  { db, environment }: Records,
  { threads, onGpu }: { readonly threads: number; readonly onGpu: boolean },
): TrialRecord | undefined {
  const trusted = { environment, intrinsics: everyIntrinsic(), policy: "exact" } as const;
  return best(db, { computation, trusted, threads }).find((t) => isOnGpu(t.candidate) === onGpu);
}

/** The program with each step in the form that the records say is fastest. @param exact whether each step is computed as its equation says */
export function inRecordedForms(program: Program, records: Records, threads = 1, exact = false): Program {
  const secondsOf = (computation: Computation): number | undefined => {
    const measurement = bestRecord(computation, records, { threads, onGpu: false })?.measurement;
    return measurement?.status === "ok" ? measurement.median : undefined;
  };
  return inBestForms(program, formsIn(program, exact), { secondsOf, target: targetOfForms(records), threads });
}

/** The fastest kernel that was measured, if one was. @param onGpu which of the kinds of kernels */
export function recordedKernel(
  computation: Computation,
  records: Records,
  of: { readonly threads: number; readonly onGpu: boolean },
): Choice | undefined {
  const trial = bestRecord(computation, records, of);
  if (trial?.measurement.status !== "ok") return undefined;
  const id = shortId(trial.id);
  return {
    kind: "record",
    kernel: {
      kernel: kernelOfRecord(trial, { chained: true }),
      provenance: [`record    ${id}`, `made by   automap ${VERSION}`],
    },
    ...{ id, seconds: trial.measurement.median, place: placeOf(trial.candidate) },
  };
}

export function chooseKernel({ computation, multiplyAdds }: Task, records?: Records, threads = 1): Choice {
  const recorded = records && recordedKernel(computation, records, { threads, onGpu: false });
  if (recorded) return recorded;
  const ranked =
    multiplyAdds > 0 ? rankOf(computation, { count: 1, kinds: "mappings", threads }, UNTUNED_DRAWS) : undefined;
  const first = ranked && !("refused" in ranked) ? ranked[0] : undefined;
  const kernel = first && attempt(() => kernelFor(computation, first.candidate));
  if (first && kernel) {
    const provenance = ["not tuned: chosen by the model", `made by   automap ${VERSION}`];
    const { candidate, prediction } = first;
    return { kind: "model", kernel: { kernel, provenance }, place: placeOf(candidate), expected: prediction.seconds };
  }
  const loops = attempt(() => loopsKernel(computation, nativeTarget().isa));
  return {
    kind: "loops",
    because: ranked && "refused" in ranked ? (ranked.refused[0]?.because ?? "nothing maps") : "it sums no products",
    ...(loops && { kernel: { kernel: loops, provenance: [`made by   automap ${VERSION}`] } }),
  };
}

/** What a candidate is in few words. */
export const placeOf = (candidate: Candidate): string => `${candidate.intrinsic} ${placeText(candidate)}`.trim();

/** What a package of the network is made of, with the kernels that were chosen. */
export function networkSubject(
  program: Program,
  choices: ReadonlyMap<Task, Choice>,
  {
    name,
    threads = 1,
    gpu,
    provenance = [],
  }: {
    readonly name?: string | undefined;
    readonly threads?: number;
    /** Where all kernels are in CUDA. */
    readonly gpu?: NetworkSubject["gpu"];
    readonly provenance?: readonly string[];
  } = {},
): NetworkSubject {
  const kernels = new Map(
    [...choices].flatMap(([{ computation }, choice]) =>
      choice.kernel ? [[computationKey(computation), choice.kernel] as const] : [],
    ),
  );
  return {
    name: packageName(program.name, name),
    program,
    kernels,
    threads,
    ...(gpu && { gpu }),
    provenance: [...provenance, `made by   automap ${VERSION}`],
  };
}

/** Every task with how it is computed. */
export function choicesOf(program: Program, records?: Records, threads = 1): Map<Task, Choice> {
  return new Map(tasksOf(program).map((task) => [task, chooseKernel(task, records, threads)] as const));
}

export const tunedTasks = (program: Program): Task[] => tasksOf(program).filter(isTuned);
