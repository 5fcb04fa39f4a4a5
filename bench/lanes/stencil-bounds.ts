/**
 * @file A bound of stencils over memory, measured: copies of as many elements.
 *
 *     const seconds = await copySeconds(8192 * 8192, settings);
 */

import type { WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { code, type SourceText, spell } from "../../abstraction/source-text.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { generateLanes } from "../../codegen/lanes.ts";
import { lowerWindow } from "../../mapper/space-time/lower-window.ts";
import type { Runner } from "../../runtime/measure.ts";
import type { Reference } from "../../runtime/reference/verify.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { windowLanes } from "../../session/kinds/window-kinds.ts";
import { nativeTarget } from "../../targets/native.ts";
import { printWindow } from "../../test/support/lane-cases.ts";

export interface BoundSettings {
  readonly runner: Runner;
  readonly type: "f32" | "f64";
  readonly threads: number;
}

/** Columns of a copy in rows. All cases have a multiple of so many outputs. */
export const COPIED_COLUMNS = 8192;

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
export function exactReference(computation: Computation, runner: Runner): Promise<Reference> {
  return runner.reference(computation, 1, { sets: ["exact"] });
}

/** The fastest of the known copies: memcpy, and our own loads with plain or streaming stores, of one row or several at once. */
export async function copySeconds(elements: number, { runner, type, threads }: BoundSettings): Promise<number> {
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
  return Math.min(...measured.map(secondsOf));
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
