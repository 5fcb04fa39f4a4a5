/** @file Refused matches: rules, messages, and what would help. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import { defineIntrinsic, type Intrinsic } from "../abstraction/intrinsic.ts";
import { printMatching, type Refusal, type Verdict } from "../abstraction/mapping.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { compute, judge, named, printRefusals, refusalOf, refusals } from "./support/refusals.ts";
import { mappingsOnto, operation } from "./support/subjects.ts";

const wmma = named("wmma.m16n16k16.f32.f16");
const vpdpbusd = named("avx512.vpdpbusd");
const conv2d = operation("conv2d n=2 c=4 h=5 w=5 k=4 r=3 s=1", "f16");

describe("the mapper prints why it refuses", () => {
  it("matches of conv2d with a matrix product", () => {
    expect(refusals(conv2d, wmma, { binding: "fixed" })).toMatchInlineSnapshot(`
      "
      access-matrix | w depends on k, but wmma.m16n16k16.f32.f16 does not index b by m | k may feed n
          [0,1,0,1]: w[1,1,1,0], not w[0,1,1,0]
      access-matrix | in depends on n, but wmma.m16n16k16.f32.f16 does not index a by n | n may feed m
          [1,0,0,1]: in[1,0,0,0], not in[0,0,0,0]
      access-matrix | in depends on p, but wmma.m16n16k16.f32.f16 does not index a by n | p may feed m
          [0,0,1,1]: in[0,0,1,0], not in[0,0,0,0]
      access-matrix | in depends on q, but wmma.m16n16k16.f32.f16 does not index a by n | q may feed m
          [0,0,0,1]: in[0,1,0,0], not in[0,1,0,-1]
      axis-kind | c is summed, axis m of wmma.m16n16k16.f32.f16 is kept | c may feed k
      axis-kind | r is summed, axis m of wmma.m16n16k16.f32.f16 is kept | r may feed k
      axis-kind | s is summed, axis m of wmma.m16n16k16.f32.f16 is kept | s may feed k
      axis-kind | c is summed, axis n of wmma.m16n16k16.f32.f16 is kept | c may feed k
      axis-kind | r is summed, axis n of wmma.m16n16k16.f32.f16 is kept | r may feed k
      axis-kind | s is summed, axis n of wmma.m16n16k16.f32.f16 is kept | s may feed k
      axis-kind | n is kept, axis k of wmma.m16n16k16.f32.f16 is summed | n may feed m
      axis-kind | k is kept, axis k of wmma.m16n16k16.f32.f16 is summed | k may feed n
      axis-kind | p is kept, axis k of wmma.m16n16k16.f32.f16 is summed | p may feed m
      axis-kind | q is kept, axis k of wmma.m16n16k16.f32.f16 is summed | q may feed m"
    `);
  });

  it("matches of conv2d with a matrix product under the rule of AMOS with --strict", () => {
    const { refused } = mappings(conv2d, wmma, { rule: "amos", strict: true });
    const first = (rule: string): Refusal[] => refused.filter((r) => r.rule === rule).slice(0, 2);
    expect(printRefusals([...first("extent"), ...first("match-point")])).toMatchInlineSnapshot(`
      "
      extent | k is 4, wmma.m16n16k16.f32.f16 wants 16 of n (padding 75 %) | without --strict it is padded
      extent | k is 4, wmma.m16n16k16.f32.f16 wants 16 of n (padding 75 %) | without --strict it is padded
      match-point | no match point feeds m by p beside n <- k, k <- r: p+r-1 is a window over p and r, not a plain index | the gather rule allows it: the operand is packed
      match-point | no match point feeds m by q beside n <- k, k <- s: q+s-1 is a window over q and s, not a plain index | the gather rule allows it: the operand is packed"
    `);
  });

  it("a diagonal and a flipped index under the rule of AMOS", () => {
    const types = { x: "f32", y: "f32" } as const;
    const diagonal = compute("c[m,n] += x[k,k] * y[k,n,m]", { m: 4, n: 4, k: 4 }, types);
    const beside = compute("c[m,n] += x[m,k,k+1] * y[k,n]", { m: 4, n: 4, k: 4 }, types);
    const flipped = compute("c[m,n] += x[m,k*-1+3] * y[k,n]", { m: 4, n: 4, k: 4 }, types);
    const matches = (computation: Computation): string => {
      const { valid, refused } = mappings(computation, named("matmul.f32"), { rule: "amos" });
      return `${valid.length} maps${printRefusals(refused.filter((r) => r.rule === "match-point"))}\n`;
    };
    expect([diagonal, beside, flipped].map(matches).join("")).toMatchInlineSnapshot(`
      "0 maps
      match-point | no match point feeds n by m beside k <- k: x has two indices of k | the gather rule allows it: the operand is packed
      match-point | no match point feeds n by m beside k <- k: x has two indices of k | the gather rule allows it: the operand is packed
      match-point | no match point feeds n by n beside k <- k: x has two indices of k | the gather rule allows it: the operand is packed
      0 maps
      match-point | no match point feeds m by m beside n <- n, k <- k: x has two indices of k | the gather rule allows it: the operand is packed
      0 maps
      match-point | no match point feeds m by m beside n <- n, k <- k: k*-1+3 is not a plain index of k | the gather rule allows it: the operand is packed
      "
    `);
    expect(mappings(beside, named("matmul.f32"), { binding: "fixed" }).valid).toHaveLength(1);
  });

  it("f32 data on a dot product of bytes", () => {
    const f32 = operation("conv2d");
    expect(refusals(f32, vpdpbusd)).toMatchInlineSnapshot(`
      "
      operand-types | c of avx512.vpdpbusd is s32, out is f32 | sum in s32"
    `);
  });

  it("s8 by u8 data on an instruction that takes u8 by s8", () => {
    const s8u8 = compute("c[m,n] += s32(a[m,k]) * s32(b[k,n])", { m: 4, n: 4, k: 4 }, { a: "s8", b: "s8" });
    expect(refusals(s8u8, vpdpbusd)).toMatchInlineSnapshot(`
      "
      operand-types | a of avx512.vpdpbusd is u8, a[m,k] is s8 | give u8 data"
    `);
  });

  it("any computation on an instruction that moves data between lanes", () => {
    expect(refusals(conv2d, named("shuffle"))).toMatchInlineSnapshot(`
      "
      expression | shuffle.down.1 moves data between lanes, it is not matched against an equation | space-time designs use it"
    `);
  });

  it("any computation on an instruction with a window, a diagonal or a condition of its own", () => {
    const own = (compute: string, c: string, a: string, b: string): Intrinsic =>
      defineIntrinsic({
        name: "own",
        family: "own",
        isa: "virtual",
        language: "none",
        summary: "An instruction of this test.",
        compute,
        extents: { k: 2, p: 2, z: 2, r: 2 },
        operands: { c: { dtype: "f32", storage: c }, a: { dtype: "f32", storage: a }, b: { dtype: "f32", storage: b } },
        emit: "",
        source: "this test",
      });
    const conv1d = compute(
      "c[k,p] += a[z,p+r] * b[k,z,r]",
      { k: 2, p: 2, z: 2, r: 2 },
      { a: "f32", b: "f32", c: "f32" },
    );
    const window = own("c[k,p] += a[z,p+r] * b[k,z,r]", "v[2*k + p]", "v[3*z + d1]", "v[4*k + 2*z + r]");
    const diagonal = own("c[k,p] += a[z,z] * b[k,p,r]", "v[2*k + p]", "v[2*z + d1]", "v[4*k + 2*p + r]");
    const triangle = own("c[k,p] += a[z,p] * b[k,r] where r <= z", "v[2*k + p]", "v[2*z + p]", "v[2*k + r]");
    expect([window, diagonal, triangle].map((i) => refusals(conv1d, i)).join("")).toMatchInlineSnapshot(`
      "
      expression | a of own is indexed by p+r, a window over p and r: only plain indices are matched | -
      expression | a of own is a diagonal, indexed by z twice: only plain indices are matched | -
      expression | own computes only where r <= z: only instructions without a condition are matched | -"
    `);
  });

  it("a recurrence", () => {
    const scan = compute("y[i] = y[i-1] + x[i]", { i: 8 }, { x: "f32", y: "f32" });
    expect(refusals(scan, named("matmul.f32"))).toMatchInlineSnapshot(`
      "
      recurrence | y reads itself: its points depend on one another in order | use a space-time design"
    `);
  });

  it("a quotient on an instruction that multiplies", () => {
    const quotient = compute("c[m] += a[m] / b[m]", { m: 4 }, { a: "f32", b: "f32" });
    expect(refusals(quotient, named("matmul.f32"))).toMatchInlineSnapshot(`
      "
      expression | matmul.f32 computes a[m,k] * b[k,n], the equation a[m] / b[m] | -"
    `);
  });

  it("a maximum on an instruction that sums", () => {
    const pool = compute("out[p] max= x[p+r]", { p: 4, r: 3 }, { x: "f32" });
    expect(refusals(pool, named("matmul.f32"))).toMatchInlineSnapshot(`
      "
      combine | the equation combines with max=, matmul.f32 with += | -"
    `);
  });

  it("sums that may leave the range of a saturating instruction", () => {
    const bytes = (k: number) =>
      compute("c[i] += s16(a[i,k]) * s16(b[i,k])", { i: 4, k }, { a: "u8", b: "s8", c: "s16" });
    expect(refusals(bytes(2), named("saturating.s16"))).toMatchInlineSnapshot(`
      "
      combine | saturating.s16 saturates, the equation wraps; a sum of up to 65280 may pass 32767 | -"
    `);
    expect(mappingsOnto(bytes(1), named("saturating.s16"))).toHaveLength(1);
  });

  it("no sum that just fits a saturating instruction", () => {
    const clamped = defineIntrinsic({
      name: "clamped.u8",
      family: "small",
      isa: "virtual",
      language: "none",
      summary: "Adds pairs of bytes, clamped.",
      compute: "c[i] sat+= a[i,k]",
      extents: { i: 2, k: 2 },
      operands: {
        a: { dtype: "u8", storage: "r[2*i + k]" },
        c: { dtype: "u8", storage: "r[i]" },
      },
      emit: "",
      source: "this test",
    });
    // 255 is the largest u8.
    const bits = (k: number) => compute("y[i] += x[i,k]", { i: 2, k }, { x: "u8" });
    expect(mappingsOnto(bits(1), clamped).length).toBeGreaterThan(0);
    expect(refusals(bits(2), clamped)).toContain("a sum of up to 510 may pass 255");
  });

  it("a sum that is clamped once, where it may leave the range of s32", () => {
    const clamped = (k: number) =>
      compute("c[n] sat+= s32(a[k]) * s32(b[k,n])", { n: 4, k }, { a: "u8", b: "s8", c: "s32" });
    const unbounded = clamped(70_000);
    expect(refusals(unbounded, vpdpbusd) + refusals(unbounded, named("avx512.vpdpbusds"))).toMatchInlineSnapshot(`
      "
      combine | the equation clamps its whole sum once, avx512.vpdpbusd never clamps; a sum of up to 2284800000 may pass 2147483647 | -
      combine | the equation clamps its whole sum once, avx512.vpdpbusds clamps after every issue; a sum of up to 2284800000 may pass 2147483647 | -"
    `);
    expect(mappingsOnto(clamped(64), vpdpbusd)).toHaveLength(1);
    expect(mappingsOnto(clamped(64), named("avx512.vpdpbusds"))).toHaveLength(1);
  });
});

describe("one matching", () => {
  const matmul = compute("c[m,n] += f32(a[m,k]) * f32(b[k,n])", { m: 4, n: 4, k: 4 }, { a: "f16", b: "f16" });

  it("n,k -> m is refused with the row and the column that disagree, and an output it would get wrong", () => {
    const refusal = refusalOf(judge(conv2d, wmma, { m: ["n", "k"], n: [], k: ["c"] }));
    expect(refusal).toMatchInlineSnapshot(`
      {
        "because": "w depends on k, but wmma.m16n16k16.f32.f16 does not index b by m",
        "hint": "k may feed n",
        "matching": {
          "k": [
            "c",
          ],
          "m": [
            "n",
            "k",
          ],
          "n": [],
        },
        "place": {
          "column": "k",
          "row": "w (b)",
        },
        "rule": "access-matrix",
        "witness": {
          "actual": "w[0,1,1,0]",
          "expected": "w[1,1,1,0]",
          "index": [
            0,
            1,
            0,
            1,
          ],
          "operand": "b",
          "point": {
            "c": 1,
            "k": 1,
            "n": 0,
            "p": 0,
            "q": 1,
            "r": 1,
            "s": 0,
          },
        },
      }
    `);
  });

  it("is refused where a loop feeds two axes", () => {
    const refusal = refusalOf(judge(matmul, wmma, { m: ["m", "n"], n: ["n"], k: ["k"] }));
    expect(printRefusals([refusal])).toMatchInlineSnapshot(`
      "
      matched-twice | n feeds both m and n | a loop may feed one axis"
    `);
  });

  it("is refused where a summed loop feeds a kept axis", () => {
    const refusal = refusalOf(judge(matmul, wmma, { m: ["m"], n: ["n", "k"], k: [] }));
    expect(printRefusals([refusal])).toMatchInlineSnapshot(`
      "
      axis-kind | k is summed, axis n of wmma.m16n16k16.f32.f16 is kept | k may feed k"
    `);
  });

  it("is refused where it leaves an axis empty that a loop could feed", () => {
    const refusal = refusalOf(judge(matmul, wmma, { m: ["m"], n: [], k: ["k"] }));
    expect(printRefusals([refusal])).toMatchInlineSnapshot(`
      "
      unfed-axis | nothing feeds axis n, though n could | try n <- n"
    `);
  });

  it("is refused under strict where the loops do not fill an axis", () => {
    const refusal = refusalOf(judge(matmul, wmma, { m: ["m"], n: ["n"], k: ["k"] }, true));
    expect(printRefusals([refusal])).toMatchInlineSnapshot(`
      "
      extent | m is 4, wmma.m16n16k16.f32.f16 wants 16 of m (padding 75 %) | without --strict it is padded"
    `);
  });

  it("is refused where a condition ties a summed loop to others, and no operand is indexed by all of them", () => {
    const tied = (where: string): Verdict =>
      judge(
        compute(`c[m,n] += f32(a[m,k]) * f32(b[k,n]) where ${where}`, { m: 4, n: 4, k: 4 }, { a: "f16", b: "f16" }),
        wmma,
        { m: ["m"], n: ["n"], k: ["k"] },
      );
    expect(printRefusals([refusalOf(tied("k <= m + n"))])).toMatchInlineSnapshot(`
      "
      condition | the condition ties k, m and n together, and no operand is indexed by all of them | -"
    `);
    // Kept loops alone leave out whole elements, and two loops of one operand what it is packed from.
    for (const where of ["m <= n", "k <= m", "k <= n", "m <= n and k <= m and k <= n"])
      expect(tied(where).ok, where).toBe(true);
  });

  it("that names an unknown loop or axis is the caller's mistake", () => {
    expect(() => judge(matmul, wmma, { m: ["mm"] })).toThrow(UsageError);
    expect(() => judge(matmul, wmma, { i: ["m"] })).toThrow('has no axis "i"');
  });

  it("fuses loops in the order they are given: the last one is fastest", () => {
    const verdict = judge(conv2d, wmma, { k: ["r", "c"], m: ["q", "n", "p"], n: ["k"] });
    expect(verdict.ok && printMatching(verdict.mapping.matching)).toBe("m <- q,n,p   n <- k   k <- r,c");
  });
});

/** Each of these was once accepted, and gave wrong results. */
