/** Kernels whose loads make weights of bytes and half bytes, compiled and run on this CPU. */

import { expect, it } from "vitest";
import { interpret } from "../../abstraction/interpret.ts";
import { generateCpp } from "../../codegen/cpp/cpp.ts";
import { runEmulated } from "../../runtime/emulated-kernel.ts";
import { hasFeature, nativeTarget } from "../../targets/index.ts";
import { GROUPED_CASES, groupedNest, SCALED_CASES, SCALED_DOTS, scaledNest } from "../support/grouped-weights.ts";

it("weights of groups are what their equations say", async () => {
  const { isa } = nativeTarget();
  const cases = [
    ...GROUPED_CASES.map((one) => ({ ...one, ...groupedNest(one) })),
    ...SCALED_CASES.map((one) => ({ ...one, row: `${SCALED_DOTS.name}, groups of ${one.group}`, ...scaledNest(one) })),
  ];
  const possible = cases.filter(({ mapping }) => hasFeature({ isa }, mapping.intrinsic.isa));
  const jobs = possible.map(({ computation, mapping, nest, inputs }) => ({
    kernel: generateCpp(computation, mapping.intrinsic, nest, { lines: [] }),
    inputs,
  }));
  const runs = await runEmulated(jobs);
  for (const [i, { what, row, computation, inputs }] of possible.entries()) {
    const run = runs[i];
    if (run?.status !== "ok") throw new Error(`${what} on ${row}: ${run?.status}`);
    const wanted = interpret(computation, inputs);
    const wrong = [...run.output].filter((value, at) => Math.abs(value - (wanted[at] ?? 0)) > 0.05);
    expect({ what, row, wrong }).toEqual({ what, row, wrong: [] });
  }
});
