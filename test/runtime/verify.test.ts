/** @file What a kernel's results are compared with: when a set of inputs tells right from wrong, and how it lies in memory. */

import { describe, expect, it } from "vitest";
import { defineComputation, inputsOf, type Tensor } from "../../abstraction/computation.ts";
import { rangeOf } from "../../abstraction/dtype.ts";
import { drawElements } from "../../runtime/reference/draw-inputs.ts";
import { isDrawnByProgram } from "../../runtime/reference/drawn-reference.ts";
import { checkedIn, fromMemory, referenceFor, tellsApart, toMemory } from "../../runtime/reference/verify.ts";
import { compilerHere } from "../support/here.ts";
import { stated } from "../support/subjects.ts";

describe("results of time steps", () => {
  it.each([
    ["within less than half of their spread", -1, 3, 2, 1.9, true],
    ["within half of it, where the farthest may be confused", -1, 3, 2, 2, false],
    ["of no spread that must be exact", 3, 3, 2, 0, true],
    ["of no spread that need not", 3, 3, 2, 0.1, false],
    ["that are one number, within less than half of it", -4, -4, 1, 1.9, true],
    ["that are one number, within half of it", -4, -4, 1, 2, false],
  ])("show a wrong one: %s", (_, least, most, answers, within, expected) => {
    expect(tellsApart(least, most, answers, within)).toBe(expected);
  });
});

describe("a tensor whose layout has holes", () => {
  const [x] = inputsOf(
    defineComputation({
      equation: "y[i,j] = x[i,j]",
      extents: { i: 2, j: 3 },
      tensors: { x: { dtype: "f32", storage: "4*i + j" } },
    }),
  ) as [Tensor];

  it("has its elements in their places and in every hole what is asked for, so that a kernel which reads one is caught", () => {
    let next = 100;
    expect([...toMemory(x, [1, 2, 3, 4, 5, 6], () => next++)]).toEqual([1, 2, 3, 103, 4, 5, 6]);
    expect([...fromMemory(x, [1, 2, 3, 103, 4, 5, 6])]).toEqual([1, 2, 3, 4, 5, 6]);
    expect([...(checkedIn(x) ?? [])]).toEqual([1, 1, 1, 0, 1, 1, 1]);
  });
});

it("a device computes steps in time of planes that lie row-major alone", () => {
  const heat = (u: string, first: string) =>
    defineComputation({
      equation: "u[t,i,j] = 0.5*u[t-1,i,j] + 0.25*u[t-1,i-1,j] + 0.25*u[t-1,i,j+1]",
      extents: { t: 4, i: 4096, j: 4096 },
      tensors: { u: { dtype: "f32", layout: u }, u_0: { dtype: "f32", layout: first } },
    });
  const all = ["IJ", "JI"].flatMap((u) => ["IJ", "JI"].map((first) => [u, first] as const));
  expect(all.filter(([u, first]) => isDrawnByProgram(heat(u, first)))).toEqual([["IJ", "IJ"]]);
});

it.each(["u8", "s8"] as const)("results of type %s cover its range when sums are scaled and shifted", async (type) => {
  const computation = stated(
    `sum[i,j] += s32(a[i,k]) * s32(b[k,j]); y[i,j] = sat_${type}(round(f32(sum[i,j]) * scale[j] + bias[j])) --i 16 --j 32 --k 8 --dtype a=u8,b=s8,y=${type},scale=f32,bias=f32`,
  );
  const reference = await referenceFor(computation, 1, { compiler: await compilerHere(), workdir: "unused" });
  const [least, most] = rangeOf(type);
  const near = (most - least) / 8;
  for (const { name, expected } of reference.sets) {
    const found = [Math.min(...expected), Math.max(...expected)];
    expect(Math.abs((found[0] ?? 0) - least), name).toBeLessThan(near);
    expect(Math.abs((found[1] ?? 0) - most), name).toBeLessThan(near);
    expect(new Set(expected).size, name).toBeGreaterThan(60);
  }
});

it("drawing elements yields to the event loop every 524288 elements, where it may be stopped, and not before", async () => {
  const stopped = AbortSignal.abort(new Error("enough"));
  expect([...(await drawElements(3, stopped, () => 7))]).toEqual([7, 7, 7]);
  expect(await drawElements(2 ** 19, stopped, () => 7)).toHaveLength(2 ** 19);
  await expect(drawElements(2 ** 19 + 1, stopped, () => 7)).rejects.toThrow("enough");
});

it("a device computes what must be exact only from sums, differences and products of integers", () => {
  const product = (value: string) => stated(`c[i,j] += ${value} --i 1024 --j 1024 --k 256 --dtype s8 --sum s32`);
  expect(isDrawnByProgram(product("s32(a[i,k]) * s32(b[k,j])"))).toBe(true);
  expect(isDrawnByProgram(product("s32(f32(a[i,k]) * f32(b[k,j]))"))).toBe(false);
});
