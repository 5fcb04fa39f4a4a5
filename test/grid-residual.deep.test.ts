/**
 * @file Results that another input is added to where they are stored: with stores of quads, lanes load that input 16 bytes at once and exchange its
 * words, on the emulated device with the results of the equation.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { type Computation, defineComputation, inputsOf, outputOf } from "../abstraction/computation.ts";
import { interpret } from "../abstraction/interpret.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { gridProblem } from "../mapper/schedule/grid.ts";
import { type GridContext, gridContext, gridLimits } from "../mapper/schedule/grid-context.ts";
import { GraphBuilder } from "../network/builder.ts";
import { runEmulated } from "../runtime/emulated-kernel.ts";
import { toMemory } from "../runtime/verify.ts";
import { inHalfOnGpu, openGraph } from "../session/network.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { smallIntegers } from "./support/grid-kernels.ts";

function contextOf(computation: Computation): GridContext {
  const [wgmma] = intrinsicsNamed("wgmma.m64n32k16.f32.f16");
  if (!wgmma) throw new Error("no wgmma");
  for (const mapping of mappings(computation, wgmma, { reasons: false }).valid) {
    const context = gridContext(mapping, gridLimits(nvidiaTarget("h100")));
    if (typeof context !== "string" && context.rows.dimension?.loops.some((l) => l.name === "m")) return context;
  }
  throw new Error("it does not map");
}

/** A product in f16 to which an input is added, as a network has it. */
function product(beside: readonly number[]): Computation {
  const net = new GraphBuilder("added");
  const [x, other] = [net.input("x", [70, 32]), net.input("other", beside)];
  const weights = net.constant("w", [32, 96], new Float32Array(32 * 96).fill(1));
  net.output(net.node("Relu", [net.node("Add", [net.node("MatMul", [x, weights]), other])]));
  const [step, ...more] = inHalfOnGpu(openGraph(net.graph)).program.steps;
  if (!step || more.length > 0) throw new Error("it is not one step");
  return step.computation;
}

const SCHEDULE: GridSchedule = {
  tile: { m: 64, n: 96, k: 32 },
  warps: { m: 1, n: 1 },
  stage: 3,
  swizzle: "spans",
  transfer: "async",
  order: 1,
  fragments: "across",
  store: "quads",
};

/** The kernel's text, and its results beside those of the equation. */
async function run(
  computation: Computation,
): Promise<{ readonly source: string; readonly got: unknown; readonly right: readonly number[] }> {
  const context = contextOf(computation);
  expect(gridProblem(context, SCHEDULE)).toBeUndefined();
  const kernel = generateCuda(computation, context.mapping.intrinsic, lowerGrid(context, SCHEDULE), { lines: [] });
  const inputs = smallIntegers(computation);
  const memory = Object.fromEntries(
    inputsOf(computation).map((t) => [t.name, toMemory(t, inputs[t.name] ?? [], () => 0)]),
  );
  const [done] = await runEmulated([{ kernel, inputs: memory }]);
  const right = [...toMemory(outputOf(computation), interpret(computation, inputs), () => 0)];
  return { source: kernel.source, got: done?.status === "ok" ? [...done.output] : done?.log, right };
}

describe("stores of quads with an input beside the sums", () => {
  it("load it as they store, ahead of the first store", async () => {
    const { source, got, right } = await run(product([70, 96]));
    expect(got).toEqual(right);
    expect(source).toContain("take_words(beside_0[1]");
  });

  it("read it one by one where it lies otherwise", async () => {
    const { source, got, right } = await run(product([96]));
    expect(got).toEqual(right);
    expect(source).not.toContain("take_words");
  });

  it("keep the sign of words of s16, read and written", async () => {
    const stated = defineComputation({
      equation: "sum[m,n] += f32(a[m,k]) * f32(b[k,n])",
      epilogue: "out[m,n] = sat_s16(sum[m,n] + f32(other[m,n]))",
      extents: { m: 70, n: 96, k: 32 },
      tensors: {
        a: { dtype: "f16" },
        b: { dtype: "f16", constant: true },
        sum: { dtype: "f32" },
        other: { dtype: "s16" },
        out: { dtype: "s16" },
      },
    });
    const { source, got, right } = await run(stated);
    expect(source).toContain("take_words(beside_0[1]");
    expect(Math.min(...right)).toBeLessThan(0);
    expect(got).toEqual(right);
  });
});
