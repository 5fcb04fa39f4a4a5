/** Kernels of another form of an equation are judged within its bound, and wrong ones are still found. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { spell, trustedCode } from "../../abstraction/source-text.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import type { Reference } from "../../runtime/reference/verify.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { nativeTarget } from "../../targets/index.ts";

const CONV = defineComputation({
  equation: "out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s]; res[n,k,p,q] = max(out[n,k,p,q] + bias[k], 0)",
  extents: { n: 1, k: 32, p: 14, q: 14, c: 64, r: 3, s: 3 },
  tensors: { in: { dtype: "f32", shape: [1, 64, 14, 14] }, w: { dtype: "f32", constant: true }, bias: "f32" },
});

const intrinsic = nativeTarget().isa.includes("avx512f") ? "avx512.fma.f32.broadcast" : "avx2.fma.f32.broadcast";

const kernelOf = (outputs: 2 | 4): Kernel =>
  kernelFor(CONV, {
    kind: "winograd",
    intrinsic,
    schedule: { outputs, images: 1, rows: 2, windows: 4, vectors: 1, threads: 1 },
  });

describe.skipIf(!nativeTarget().isa.includes("fma"))("a convolution by Winograd's transforms", () => {
  let runner: Runner;
  let reference: Reference;
  beforeAll(async () => {
    const made = await createRunner();
    if (made.status === "environment") throw new Error(made.what);
    runner = made.runner;
    reference = await runner.reference(CONV, 1);
  });
  afterAll(() => runner.close());

  it.each([2, 4] as const)("of windows that give %s outputs is right within the bound of its form", async (outputs) => {
    expect(await runner.measure(kernelOf(outputs), reference)).toMatchObject({ status: "ok" });
  });

  it("is wrong by the bound of the equation, whose sums of integers are exact", async () => {
    const { ofForm: _, ...kernel } = kernelOf(4);
    const judged = await runner.measure(kernel, reference);
    expect(judged).toMatchObject({ status: "wrong" });
    expect("log" in judged && judged.log).toContain("on exact inputs");
  });

  it.each([
    ["a factor of a transform", "5.0f", "5.001f"],
    ["a channel left out", "c_outer < 64", "c_outer < 63"],
  ])("is found to be wrong: %s", async (_, right, wrong) => {
    const kernel = kernelOf(4);
    expect(kernel.source).toContain(right);
    const source = spell(trustedCode(kernel.source.replaceAll(right, wrong)), "c++");
    const judged = await runner.measure({ ...kernel, source }, reference);
    expect(judged).toMatchObject({ status: "wrong" });
  });
});
