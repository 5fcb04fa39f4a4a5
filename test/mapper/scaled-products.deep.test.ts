/**
 * @file Products of floats of one byte with scales: what maps onto Tensor Cores and is right on the emulated device, and what does not map.
 */

import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { defineComputation } from "../../abstraction/computation.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { expectRightEmulated, gridContextOf } from "../support/grid-kernels.ts";
import { rowNamed } from "../support/subjects.ts";

const SIZES = { m: 40, n: 24, k: 160 };
const FACTORS = { a: "e4m3", b: "e5m2", c: "f32" } as const;

/** A product whose summed axis is innermost in both factors, with an epilogue. */
const product = (epilogue: string, tensors: Parameters<typeof defineComputation>[0]["tensors"]): Computation =>
  defineComputation({
    equation: "c[m,n] += f32(a[m,k]) * f32(b[n,k])",
    epilogue,
    extents: SIZES,
    tensors: { ...FACTORS, ...tensors },
  });

const SCALED: Readonly<Record<string, Computation>> = {
  "one scale for a tensor": product("z[m,n] = bf16(c[m,n] * 0.0625)", { z: "bf16" }),
  "a scale for each row and each column": product("z[m,n] = bf16(c[m,n] * s[m] * t[n])", {
    s: "f32",
    t: "f32",
    z: "bf16",
  }),
  "results of one byte that stop at the largest": product("z[m,n] = sat_e4m3(c[m,n] * s[m])", { s: "f32", z: "e4m3" }),
};
/** Blocks of 32 k and 8 columns: sums of each block of k, scaled, which a second step adds. */
const BLOCKS = defineComputation({
  equation: "c[g,m,u,v] += f32(a[m,32*g+k]) * f32(b[8*u+v,32*g+k])",
  epilogue: "z[g,m,u,v] = c[g,m,u,v] * s[m,g] * t[u,g]",
  extents: { g: 3, m: 40, u: 3, v: 8, k: 32 },
  tensors: { ...FACTORS, s: "f32", t: "f32", z: "f32" },
});

const schedule = {
  tile: {},
  warps: { m: 1, n: 1 },
  stage: 3,
  order: 1,
} as const;

function subjects(name: string, computation: Computation, mapping: string) {
  const onHopper = {
    ...schedule,
    tile: { m: 64, n: 16, k: 32 },
    swizzle: "spans",
    transfer: "async",
    fragments: "across",
    store: "direct",
  } as const;
  const onAda = {
    ...schedule,
    tile: { m: 16, n: 8, k: 32 },
    swizzle: "swizzled",
    transfer: "async",
    fragments: "inline",
    store: "staged",
  } as const;
  return [
    {
      name: `${name} wgmma`,
      schedule: onHopper,
      context: gridContextOf(computation, "wgmma.m64n16k32.f32.e4m3e5m2", mapping),
    },
    { name: `${name} mma`, schedule: onAda, context: gridContextOf(computation, "mma.m16n8k32.f32.e4m3e5m2", mapping) },
  ];
}

describe("products of floats of one byte", () => {
  it("with scales of tensors, rows, columns and blocks of parts are right on the emulated device", () =>
    expectRightEmulated([
      ...Object.entries(SCALED).flatMap(([name, computation]) => subjects(name, computation, "m <- m; n <- n; k <- k")),
      ...subjects("blocks", BLOCKS, "m <- m; n <- u,v; k <- k"),
    ]));

  it("do not map with scales of blocks inside their sums: the instruction multiplies bytes alone", () => {
    const inside = defineComputation({
      equation: "c[m,n] += f32(a[m,k]) * f32(b[n,k]) * s[m,k/32] * t[n/8,k/32]",
      extents: SIZES,
      tensors: {
        ...FACTORS,
        s: { dtype: "f32", shape: [40, 5] },
        t: { dtype: "f32", shape: [3, 5] },
      },
    });
    const { valid, refused } = mappings(inside, rowNamed("wgmma.m64n16k32.f32.e4m3e5m2"));
    expect(valid).toEqual([]);
    expect(refused.map((r) => r.because)).toEqual([
      "b of wgmma.m64n16k32.f32.e4m3e5m2 is e5m2, f32(b[n,k]) * s[m,k/32] * t[n/8,k/32] is f32",
    ]);
  });
});
