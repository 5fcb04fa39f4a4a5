/**
 * @file Bounds of stencils over memory, measured: copies of as many elements, and the traffic of the kernel without its
 * arithmetic (traffic.ts).
 *
 *     const copies = await measureCopies(8192 * 8192, settings);
 *     await trafficBound(computation, best, others, copies, settings)      { ofCopy: 0.84, trafficOfCopy: 0.88, ... }
 */

import { canonicalJson, type WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { code, type SourceText, spell } from "../../abstraction/source-text.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { argumentsOf } from "../../codegen/cpp/cpp-frame.ts";
import { generateLanes } from "../../codegen/lanes.ts";
import { lowerWindow } from "../../mapper/space-time/lower-window.ts";
import type { Runner } from "../../runtime/measure.ts";
import type { Reference } from "../../runtime/reference/verify.ts";
import { summariseRatio } from "../../runtime/statistics.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { windowLanes } from "../../session/kinds/window-kinds.ts";
import { nativeTarget } from "../../targets/native.ts";
import { printWindow } from "../../test/support/lane-cases.ts";
import { copyingWeights, trafficKernel, trafficSchedules } from "./traffic.ts";

export interface BoundSettings {
  readonly runner: Runner;
  readonly type: "f32" | "f64";
  readonly threads: number;
  /** Seconds of all batches of a kernel. */
  readonly budgetSeconds: number;
}

/** Columns of a copy in rows. All cases have a multiple of so many outputs. */
export const COPIED_COLUMNS = 8192;
/** Copies that are timed again beside a kernel; their times move by a fifth from run to run. */
const COPIES_AGAIN = 3;
/** Orders of accesses that are timed. */
const MOST_TRAFFIC = 8;

export function kernelOf(computation: Computation, schedule: WindowSchedule): Kernel {
  const { dtype } = outputOf(computation);
  if (dtype !== "f32" && dtype !== "f64") {
    const intrinsic = windowLanes(dtype, usableIntrinsics(nativeTarget()))?.name ?? "";
    return kernelFor(computation, { kind: "window", intrinsic, schedule });
  }
  const notes = { lines: [printWindow(schedule), "made by node dist/bench/lanes/stencils.js"] };
  const { streaming } = schedule;
  return generateLanes("c++", computation, lowerWindow(computation, schedule), notes, { streaming });
}

/** Small integers, whose sums are exact. The other sets of inputs are tested on small shapes. */
export function exactReference(computation: Computation, runner: Runner, fixed?: Inputs): Promise<Reference> {
  return runner.reference(computation, 1, { sets: ["exact"], ...(fixed && { fixed }) });
}

export interface Copies {
  /** Of the fastest one. */
  readonly seconds: number;
  /** The fastest ones. */
  readonly kernels: readonly Kernel[];
}

/** The known copies: memcpy, and our own loads with plain or streaming stores, of one row or several at once. */
export async function measureCopies(elements: number, { runner, type, threads }: BoundSettings): Promise<Copies> {
  const computation = defineComputation({
    name: "copy",
    equation: "out[i,j] = in[i,j]",
    extents: { i: elements / COPIED_COLUMNS, j: COPIED_COLUMNS },
    tensors: { in: type },
  });
  const plain: WindowSchedule = {
    dataflow: "FBS-load",
    lanes: 64 / bytesOf(type),
    rows: 1,
    vectors: 4,
    rolled: [],
    weights: "memory",
    streaming: false,
    prefetchBytes: 0,
    strip: 0,
    threads,
  };
  const ours = kernelOf(computation, plain);
  const streamed = [1, 4].flatMap((rows) =>
    [512, 2048, 8192].map((prefetchBytes) => kernelOf(computation, { ...plain, rows, streaming: true, prefetchBytes })),
  );
  const kernels = [{ ...ours, source: memcpySource(elements, bytesOf(type)) }, ours, ...streamed];
  const measured = await runner.compareKernels(kernels, await exactReference(computation, runner));
  const fastest = kernels
    .map((kernel, i) => ({ kernel, seconds: secondsOf(measured[i]) }))
    .sort((a, b) => a.seconds - b.seconds);
  return {
    seconds: fastest[0]?.seconds ?? Number.POSITIVE_INFINITY,
    kernels: fastest.slice(0, COPIES_AGAIN).map((c) => c.kernel),
  };
}

/** A kernel beside copies and its traffic, all in turns on the same memory: medians over neighbouring batches. */
export interface TrafficBound {
  /** The time of the fastest copy over the kernel's. */
  readonly ofCopy: number;
  /** The time of the fastest order of accesses over the kernel's. */
  readonly ofTraffic: number;
  readonly trafficOfCopy: number;
  /** The same for the kernel's own order of accesses. */
  readonly ownOfCopy: number | undefined;
  readonly seconds: { readonly kernel: number; readonly copy: number; readonly traffic: number };
  /** The fastest order of accesses. */
  readonly schedule: WindowSchedule;
  /** Orders that were timed. */
  readonly tried: number;
}

/**
 * Times a kernel, copies, and the traffic of this and other schedules without arithmetic. Undefined if the stencil with
 * some weights is no copy, or no order of accesses can be timed.
 * @param others schedules whose traffic is to be tried too, the most wanted first
 */
export async function trafficBound(
  computation: Computation,
  best: WindowSchedule,
  others: readonly WindowSchedule[],
  copies: Copies,
  { runner, budgetSeconds }: BoundSettings,
): Promise<TrafficBound | undefined> {
  const weights = copyingWeights(computation);
  const schedules = trafficSchedules(computation, best, others, MOST_TRAFFIC);
  if (!weights || schedules.length === 0) return undefined;
  const moving = schedules.map((schedule) => {
    const notes = { lines: [`the traffic of ${printWindow(schedule)}`, "made by node dist/bench/lanes/stencils.js"] };
    return trafficKernel(computation, schedule, notes);
  });
  const reference = await exactReference(computation, runner, weights);
  const [ours, ...rest] = await runner.compareKernels(
    [
      kernelOf(computation, best),
      ...copies.kernels.map((k) => ({ ...k, arguments: argumentsOf(computation) })),
      ...moving,
    ],
    reference,
    { budgetSeconds },
  );
  for (const m of rest) if (m.status !== "ok") console.error(`${computation.name}: ${m.status} ${m.log}`);
  const copied = rest.slice(0, copies.kernels.length);
  const moved = rest.slice(copies.kernels.length);
  const copy = fastestOf(copied);
  const traffic = fastestOf(moved);
  if (ours?.status !== "ok" || !copy || !traffic) return undefined;
  // Its own order is not among them where it is of another dataflow.
  const unrolled = canonicalJson({ ...best, rolled: [], weights: "memory" });
  const own = moved[schedules.findIndex((s) => canonicalJson(s) === unrolled)];
  const ratio = (a: readonly number[], b: readonly number[]): number => summariseRatio(a, b, 1).median;
  return {
    ofCopy: ratio(copy.samples, ours.samples),
    ofTraffic: ratio(traffic.samples, ours.samples),
    trafficOfCopy: ratio(copy.samples, traffic.samples),
    ownOfCopy: own?.status === "ok" ? ratio(copy.samples, own.samples) : undefined,
    seconds: { kernel: ours.median, copy: copy.median, traffic: traffic.median },
    schedule: schedules[moved.indexOf(traffic)] ?? best,
    tried: moved.length,
  };
}

type Timed = Extract<Measurement, { readonly status: "ok" }>;

function fastestOf(measured: readonly Measurement[]): Timed | undefined {
  const timed = measured.flatMap((m) => (m.status === "ok" ? [m] : []));
  return timed.length === 0 ? undefined : timed.reduce((a, b) => (b.median < a.median ? b : a));
}

export function secondsOf(m: Measurement | undefined): number {
  return m?.status === "ok" ? m.median : Number.POSITIVE_INFINITY;
}

function memcpySource(elements: number, bytes: number): SourceText {
  const text = code`#include <string.h>
extern "C" unsigned long automap_workspace_bytes(void) { return 64; }
extern "C" int automap_phases(void) { return 1; }
extern "C" void automap_prepare(void*, const void* const*) {}
extern "C" void automap_run(void*, void* const* tensors, int, int part, int parts) {
  const long from = ${elements}L * part / parts * ${bytes}, to = ${elements}L * (part + 1) / parts * ${bytes};
  memcpy((char*)tensors[0] + from, (const char*)tensors[1] + from, to - from);
}
`;
  return spell(text, "c++");
}
