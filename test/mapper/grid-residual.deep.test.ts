/**
 * @file Results that another input is added to where they are stored: with stores of quads, lanes load that input 16 bytes at once and exchange its
 * words, on the emulated device with the results of the equation.
 */

import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { gridProblem } from "../../mapper/schedule/grid.ts";
import { inHalfOnGpu, openGraph } from "../../session/network/network.ts";
import {
  expectRightEmulated,
  gridContextOf,
  gridKernelOf,
  gridSubject,
  MATMUL,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { onnx } from "../support/networks.ts";
import { smallIntegers, stated } from "../support/subjects.ts";

/** A product in f16 to which an input is added, as a network has it. */
function product(beside: readonly number[]): Computation {
  const added = onnx(`Relu(Add(MatMul(x[70,32], [32,96]{1}), other[${beside}]))`);
  const [step, ...more] = inHalfOnGpu(openGraph(added)).program.steps;
  if (!step || more.length > 0) throw new Error("it is not one step");
  return step.computation;
}

const SCHEDULE = wgmmaSchedule(64, 96, 32, { store: "quads" });

/** The kernel's text. Its results are those of the equation. */
async function sourceOf(computation: Computation, matching = MATMUL): Promise<string> {
  const context = gridContextOf(computation, "wgmma.m64n32k16.f32.f16", matching);
  expect(gridProblem(context, SCHEDULE)).toBeUndefined();
  const subject = gridSubject("a product", context, SCHEDULE);
  await expectRightEmulated([subject]);
  return gridKernelOf(subject).source;
}

describe("stores of quads with an input beside the sums", () => {
  it("load it as they store, ahead of the first store", async () => {
    expect(await sourceOf(product([70, 96]))).toContain("take_words(beside_0[1]");
  });

  it("read it one by one where it lies otherwise", async () => {
    expect(await sourceOf(product([96]))).not.toContain("take_words");
  });

  it("keep the sign of words of s16, read and written", async () => {
    const computation = stated(
      "sum[m,n] += f32(a[m,k]) * f32(b[k,n]) --m 70 --n 96 --k 32 --dtype a=f16,b=f16,other=s16,out=s16 --epilogue out[m,n] = sat_s16(sum[m,n] + f32(other[m,n])) --constant b",
    );
    expect(await sourceOf(computation)).toContain("take_words(beside_0[1]");
    expect(Math.min(...interpret(computation, smallIntegers(computation)))).toBeLessThan(0);
  });
});
