/** @file Mappings that would give wrong results: refused, with an output element that shows it. */

import { describe, expect, it } from "vitest";
import { defineComputation } from "../abstraction/computation.ts";
import { defineIntrinsic } from "../abstraction/intrinsic.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { compute, judge, named, printRefusals, refusalOf, refusals } from "./support/refusals.ts";
import { mappingsOnto, operation } from "./support/subjects.ts";

const wmma = named("wmma.m16n16k16.f32.f16");

describe("the mapper refuses a mapping that would give wrong results", () => {
  it("where the padding of a maximum does not fit the operand's type", () => {
    const maximum = compute("out[i] max= s32(x[i,k])", { i: 2, k: 1 }, { x: "s8" });
    expect(refusals(maximum, named("widemax.s8"))).toMatchInlineSnapshot(`
      "
      padding | k would be padded from 1 to a multiple of 2, and no operand value leaves the result alone | -
      axis-kind | k is summed, axis i of widemax.s8 is kept | k may feed k
      axis-kind | i is kept, axis k of widemax.s8 is summed | i may feed i"
    `);
  });

  it("where a read outside gives a value that the operand's type cannot hold", () => {
    const pool = compute("out[p] max= s32(x[p+r-1])", { p: 2, r: 2 }, { x: "s8" });
    expect(refusals(pool, named("widemax.s8"))).toMatchInlineSnapshot(`
      "
      padding | reading outside x gives -2147483648, which a of widemax.s8, s8, does not hold | -"
    `);
    // One element beyond the end is outside, and the last is not.
    const ends = (size: number) =>
      refusals(
        compute("out[p] max= s32(x[p+r])", { p: 2, r: 2 }, { x: { dtype: "s8", shape: [size] } }),
        named("widemax.s8"),
      );
    expect(ends(2)).toContain("reading outside x");
    expect(ends(3)).not.toContain("reading outside x");
  });

  it("where padding one operand leaves another in the sum", () => {
    const sum = compute("out[i] += x[i,k] + y[i]", { i: 2, k: 1 }, { x: "s32", y: "s32" });
    expect(refusals(sum, named("addup.s32"))).toMatchInlineSnapshot(`
      "
      idle-loop | k has one step, so feeding it to k would do nothing | k stays an outer loop
      padding | k would be padded from 1 to a multiple of 2, and no operand value leaves the result alone | -
      axis-kind | k is summed, axis i of addup.s32 is kept | k may feed k
      axis-kind | i is kept, axis k of addup.s32 is summed | i may feed i"
    `);
    const whole = compute("out[i] += x[i,k] + y[i]", { i: 2, k: 2 }, { x: "s32", y: "s32" });
    expect(mappingsOnto(whole, named("addup.s32"))).toHaveLength(1);
  });

  it("where the condition drops one operand and leaves another in the sum", () => {
    const sum = compute("out[i] += x[i,k] + y[i] where k < 1", { i: 2, k: 2 }, { x: "s32", y: "s32" });
    expect(refusals(sum, named("addup.s32"))).toMatchInlineSnapshot(`
      "
      idle-loop | k has no step that changes a result, so feeding it to k gains nothing | k stays an outer loop
      condition | addup.s32 cannot leave out the points where the condition fails | -
      axis-kind | k is summed, axis i of addup.s32 is kept | k may feed k
      axis-kind | i is kept, axis k of addup.s32 is summed | i may feed i"
    `);
  });

  it("where a literal does not fit the operand's type", () => {
    const scaled = (factor: number) => compute(`out[i] += s32(x[i,k]) * s32(${factor})`, { i: 2, k: 4 }, { x: "s8" });
    expect(refusals(scaled(200), named("holes.s8"))).toMatchInlineSnapshot(`
      "
      operand-types | b of holes.s8 is s8, which does not hold 200 | -"
    `);
    expect(mappingsOnto(scaled(100), named("holes.s8")).length).toBeGreaterThan(0);
  });

  it("where the last of several values assigned to one element wins", () => {
    const assign = defineIntrinsic({
      name: "assign",
      family: "small",
      isa: "virtual",
      language: "none",
      summary: "Moves rows.",
      compute: "c[i] = a[i,k]",
      extents: { i: 2, k: 2 },
      operands: { a: { dtype: "f32", storage: "r[2*i + k]" }, c: { dtype: "f32", storage: "r[i]" } },
      emit: "",
      source: "this test",
    });
    expect(refusals(compute("y[i] = x[i,k]", { i: 2, k: 3 }, { x: "f32" }), assign)).toMatchInlineSnapshot(`
      "
      combine | several points assign one element of y and the last wins; assign would change their order | -"
    `);
  });

  it("where differences wrap before a saturating instruction sums them", () => {
    const intrinsic = defineIntrinsic({
      name: "differences",
      family: "small",
      isa: "virtual",
      language: "none",
      summary: "Sums differences of bytes, clamped.",
      compute: "c[i] sat+= u32(a[i,k]) - u32(b[i,k])",
      extents: { i: 2, k: 2 },
      operands: {
        a: { dtype: "u8", storage: "r[2*i + k]" },
        b: { dtype: "u8", storage: "r[2*i + k]" },
        c: { dtype: "u32", storage: "r[i]" },
      },
      emit: "",
      source: "this test",
    });
    const wraps = compute("y[i] += u32(x[i,k]) - u32(z[i,k])", { i: 2, k: 2 }, { x: "u8", z: "u8" });
    expect(refusals(wraps, intrinsic)).toMatchInlineSnapshot(`
      "
      combine | differences saturates, the equation wraps; a sum of up to 8589934590 may pass 4294967295 | -"
    `);
  });

  it("where clamped sums of several points join one element", () => {
    const folded = (index: string) =>
      compute(`c[${index}] sat+= s16(a[i,j]) * s16(b[i,j])`, { i: 2, j: 2 }, { a: "u8", b: "s8", c: "s16" });
    expect(refusals(folded("i+j"), named("saturating.s16"))).toMatchInlineSnapshot(`
      "
      combine | the equation clamps its whole sum once, saturating.s16 clamps after every issue; a sum of up to 130560 may pass 32767 | -"
    `);
    expect(mappingsOnto(folded("i*2+j"), named("saturating.s16")).length).toBeGreaterThan(0);
  });
});

describe("a witness", () => {
  it("is found where most points of the domain read outside", () => {
    const computation = operation("t2d n=2 pad=0", "f16");
    const { refused } = mappings(computation, wmma);
    expect(refused.filter((r) => r.rule === "idle-loop")).toEqual([]);
    expect(refused.filter((r) => r.rule === "access-matrix" && !r.witness)).toEqual([]);
  });

  it("names the elements that a computed operand reads", () => {
    const variance = operation("var", "f16");
    const [first] = mappings(variance, wmma, { binding: "fixed" }).refused.filter((r) => r.witness);
    expect(first?.witness).toMatchInlineSnapshot(`
      {
        "actual": "square(in[0,1] - mean[0])",
        "expected": "square(in[1,1] - mean[1])",
        "index": [
          1,
        ],
        "operand": "a",
        "point": {
          "c": 1,
          "l": 1,
        },
      }
    `);
  });

  it("is an output where no other point hides the error under a maximum", () => {
    // y stands first and last: only c = 1 can show that x is not filled there.
    const computation = compute("out[n] max= x[n] + y[c]", { n: 2, c: 2 }, { x: "f32", y: "f32" });
    const { refused } = mappings(computation, named("maxplus.f32"), { binding: "fixed" });
    expect(printRefusals(refused)).toMatchInlineSnapshot(`
      "
      copies | x does not depend on c, but maxplus.f32 indexes a by k: it would hold each element 2 times | c stays an outer loop
      access-matrix | x depends on n, but maxplus.f32 does not index a by n | n may feed m
          [1]: x[1], not x[0]
      axis-kind | c is summed, axis m of maxplus.f32 is kept | c stays an outer loop
      axis-kind | c is summed, axis n of maxplus.f32 is kept | c stays an outer loop
      axis-kind | n is kept, axis k of maxplus.f32 is summed | n may feed m"
    `);
  });

  it("is not claimed where every error cancels in the sum", () => {
    // The window of 4 holds all of x at both steps of p: reading p = 0 for p = 1 changes terms of the sum and not the sum.
    const box = defineComputation({
      equation: "out[p] += s32(x[p+r-2]) * s32(3)",
      extents: { p: 2, r: 4 },
      tensors: { x: { dtype: "s8", shape: [2] } },
    });
    const refusal = refusalOf(judge(box, named("holes.s8"), { m: [], n: ["p"], k: [] }));
    expect(refusal.witness).toBeUndefined();
    expect(printRefusals([refusal])).toMatchInlineSnapshot(`
      "
      idle-loop | p has no step that changes a result, so feeding it to n gains nothing | p may feed m"
    `);
  });

  it("shows the loop that is wrong, not one beside it that has one step", () => {
    const product = compute("c[m,g,n] += a[m,k] * b[k,n,g]", { m: 4, g: 1, n: 4, k: 4 }, { a: "f32", b: "f32" });
    const refusal = refusalOf(judge(product, named("matmul.f32"), { m: ["m", "g", "n"], n: [], k: ["k"] }));
    expect(printRefusals([refusal])).toMatchInlineSnapshot(`
      "
      access-matrix | b depends on n, but matmul.f32 does not index b by m | n may feed n
          [0,0,1]: b[1,1,0], not b[1,0,0]"
    `);
  });
});
