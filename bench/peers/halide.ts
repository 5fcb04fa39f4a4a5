/**
 * @file Halide as a peer for sums of neighbours, with its automatic schedulers and a schedule from its tutorials.
 *
 *     const peer = await halideKernel(computation, "Adams2019", options)   out(x, y) = sum of w(k) * in(x + .., y + ..)
 *
 * Debian 12 has version 14 (libhalide14-0-dev). A call runs a compiled pipeline; only the first call compiles.
 */

import { type Computation, inputsOf } from "../../abstraction/computation.ts";
import type { CompileOptions } from "../../runtime/compiler.ts";
import { filled, LOOP_FLAGS, opened, type Peer, shiftsOf, sumOf, weightPlaces } from "./loops.ts";

export const HALIDE_SCHEDULES = ["Adams2019", "Mullapudi2016", "by hand"] as const;

/** @throws Error when the computation has no taps */
export function halideKernel(
  computation: Computation,
  schedule: (typeof HALIDE_SCHEDULES)[number],
  options: Omit<CompileOptions, "flags">,
): Promise<Peer> {
  const sum = sumOf(computation);
  const weights = weightPlaces(sum);
  const taps = sum.taps.map((t, k) => `{{${shiftsOf(t).toReversed().join(", ")}}, ${weights[k]}}`);
  const innermostFirst = (dims: readonly { readonly extent: number }[]): string =>
    dims
      .map((d) => d.extent)
      .toReversed()
      .join(", ");
  const elements = inputsOf(computation)
    .filter((t) => t.name !== sum.input.name)
    .flatMap((t) => t.dims.map((d) => d.extent))
    .reduce((all, n) => all * n, 1);
  const source = filled("halide.cpp", {
    "@T": sum.output.dtype === "f64" ? "double" : "float",
    "@WEIGHTS": elements,
    "@SCHEDULE": schedule,
    "/* @out */": innermostFirst(sum.output.dims),
    "/* @in */": innermostFirst(sum.input.dims),
    "/* @taps */": taps.join(", "),
  });
  return opened(computation, source, [...LOOP_FLAGS, "-I/usr/include/halide14", "-lHalide14", "-ldl"], options);
}
