/** @file Factors chosen by comparing elements are staged for Tensor Cores like others. */

import { describe } from "vitest";
import { gridContextOf, gridSubject, itEqualsTheEquation, MATMUL, mmaSchedule } from "../support/grid-kernels.ts";
import { stated } from "../support/subjects.ts";

describe("the larger of two elements as a factor", () => {
  const larger = stated(
    "c[m,n] += f32(select(a[m,k] > b[m,k], a[m,k], b[m,k])) * f32(w[k,n]) --m 20 --n 13 --k 40 --dtype f16",
  );
  itEqualsTheEquation([
    gridSubject(
      "larger",
      gridContextOf(larger, "mma.m16n8k16.f32.f16", MATMUL),
      mmaSchedule(16, 8, 16, { swizzle: "padded", transfer: "plain" }),
    ),
  ]);
});
