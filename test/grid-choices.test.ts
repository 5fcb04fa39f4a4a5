/** @file Factors chosen by comparing elements are staged for Tensor Cores like others. */

import { describe } from "vitest";
import { defineComputation } from "../abstraction/computation.ts";
import { gridContextOf, gridSubject, itEqualsTheEquation, MATMUL, mmaSchedule } from "./support/grid-kernels.ts";

describe("the larger of two elements as a factor", () => {
  const larger = defineComputation({
    equation: "c[m,n] += f32(select(a[m,k] > b[m,k], a[m,k], b[m,k])) * f32(w[k,n])",
    extents: { m: 20, n: 13, k: 40 },
    tensors: { a: "f16", b: "f16", w: "f16", c: "f32" },
  });
  itEqualsTheEquation([
    gridSubject(
      "larger",
      gridContextOf(larger, "mma.m16n8k16.f32.f16", MATMUL),
      mmaSchedule(16, 8, 16, { swizzle: "padded", transfer: "plain" }),
    ),
  ]);
});
