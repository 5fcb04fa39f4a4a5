/** @file nvcc takes kernels that make a factor of `wgmma` in registers while products run, without serialising them. */

import { describe, it } from "vitest";
import { expectCompiled, gridContextOf, gridSubject, NVCC, wgmmaSchedule } from "../support/grid-kernels.ts";
import { stated } from "../support/subjects.ts";

const product = stated(
  "y[m,n] += f32(a[m,32*g+2*b+h]) * f32((f16(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - 8) * s[n,g]) --m 2048 --n 14336 --g 128 --b 16 --h 2 --dtype a=f16,w=u8,s=f16,y=f32",
);
const contextOf = (n: number) => gridContextOf(product, `wgmma.m64n${n}k16.f32.f16.rs`, "m <- n; n <- m; k <- g,b,h");
const warps = { m: 2, n: 1 };

describe.skipIf(!NVCC)("weights of wgmma in registers, for nvcc", () => {
  it.each([
    gridSubject("half a step ahead", contextOf(256), wgmmaSchedule(128, 256, 64, { stage: 4, warps, persistent: 132 })),
    gridSubject("in their step", contextOf(128), wgmmaSchedule(128, 128, 64, { fragments: "inline", warps })),
    gridSubject("two rows of fragments", contextOf(128), wgmmaSchedule(256, 128, 64, { stage: 4, warps })),
  ])("compile: $name", (subject) => expectCompiled(subject));
});
