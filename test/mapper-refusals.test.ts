/** @file Refused mappings: rules, messages, witnesses; and the size of the space of mappings. */

import { describe, expect, it } from "vitest";
import { type Computation, type ComputationSpec, defineComputation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import { defineIntrinsic, type Intrinsic } from "../abstraction/intrinsic.ts";
import { type Matching, printMatching, type Refusal, type Verdict } from "../abstraction/mapping.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { bindOperands } from "../mapper/match/bind.ts";
import { type MappingOptions, mappings } from "../mapper/match/enumerate.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { validate } from "../mapper/match/validate.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../operators/index.ts";
import { SMALL_INTRINSICS } from "./support/random-computation.ts";

const wmma = named("wmma.m16n16k16.f32.f16");
const vpdpbusd = named("avx512.vpdpbusd");

function named(name: string): Intrinsic {
  const found = SMALL_INTRINSICS.find((i) => i.name === name) ?? intrinsicsNamed(name)[0];
  if (!found) throw new Error(`no intrinsic ${name}`);
  return found;
}

function compute(
  equation: string,
  extents: ComputationSpec["extents"],
  tensors: ComputationSpec["tensors"],
): Computation {
  return defineComputation({ equation, extents, tensors });
}

/** The verdict on one matching, with operands bound as written. */
function judge(computation: Computation, intrinsic: Intrinsic, matching: Matching, strict = false): Verdict {
  const [binding] = bindOperands(computation, intrinsic, false).bindings;
  if (!binding) throw new Error("nothing binds");
  return validate(defineProblem(computation, intrinsic, binding), matching, { rule: "gather", strict });
}

function refusalOf(verdict: Verdict): Refusal {
  if (verdict.ok) throw new Error(`maps: ${printMatching(verdict.mapping.matching)}`);
  return verdict.refusal;
}

/** One line a refusal, and the witness below it. */
function printRefusals(refused: readonly Refusal[]): string {
  const lines = refused.flatMap(({ rule, because, hint, witness }) => [
    `${rule} | ${because} | ${hint ?? "-"}`,
    ...(witness ? [`    [${witness.index.join(",")}]: ${witness.expected}, not ${witness.actual}`] : []),
  ]);
  return `\n${lines.join("\n")}`;
}

function refusals(computation: Computation, intrinsic: Intrinsic, options: MappingOptions = {}): string {
  return printRefusals(mappings(computation, intrinsic, options).refused);
}

const conv2d = instantiate(operatorNamed("conv2d"), {
  parameters: { n: 2, c: 4, h: 5, w: 5, k: 4, r: 3, s: 1 },
  types: parseDataTypes("f16"),
});

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
    const f32 = instantiate(operatorNamed("conv2d"), { types: parseDataTypes("f32") });
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
    expect(mappings(bytes(1), named("saturating.s16"), { reasons: false }).valid).toHaveLength(1);
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
    expect(mappings(clamped(64), vpdpbusd, { reasons: false }).valid).toHaveLength(1);
    expect(mappings(clamped(64), named("avx512.vpdpbusds"), { reasons: false }).valid).toHaveLength(1);
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
    expect(mappings(whole, named("addup.s32"), { reasons: false }).valid).toHaveLength(1);
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
    expect(mappings(scaled(100), named("holes.s8"), { reasons: false }).valid.length).toBeGreaterThan(0);
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
    expect(mappings(folded("i*2+j"), named("saturating.s16"), { reasons: false }).valid.length).toBeGreaterThan(0);
  });
});

describe("a witness", () => {
  it("is found where most points of the domain read outside", () => {
    const computation = instantiate(operatorNamed("t2d"), {
      parameters: { n: 2, pad: 0 },
      types: parseDataTypes("f16"),
    });
    const { refused } = mappings(computation, wmma);
    expect(refused.filter((r) => r.rule === "idle-loop")).toEqual([]);
    expect(refused.filter((r) => r.rule === "access-matrix" && !r.witness)).toEqual([]);
  });

  it("names the elements that a computed operand reads", () => {
    const variance = instantiate(operatorNamed("var"), { types: parseDataTypes("f16") });
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

describe("the space of mappings", () => {
  const f32 = parseDataTypes("f32");
  const conv = named("virtual.conv");

  /** Every way to give each loop to one axis or to none that is a gather with no axis left out: counted one by one. */
  function exhaustiveCount(computation: Computation, intrinsic: Intrinsic): number {
    const [binding] = bindOperands(computation, intrinsic, false).bindings;
    if (!binding) return 0;
    const problem = defineProblem(computation, intrinsic, binding);
    const axes = intrinsic.computation.axes.map((a) => a.name);
    const loops = computation.axes.map((a) => a.name);
    let count = 0;
    for (let code = 0; code < (axes.length + 1) ** loops.length; code++) {
      const digit = (i: number): number => Math.floor(code / (axes.length + 1) ** i) % (axes.length + 1);
      const matching = Object.fromEntries(axes.map((axis, a) => [axis, loops.filter((_, i) => digit(i) === a)]));
      const isEmpty = Object.values(matching).every((fed) => fed.length === 0);
      if (!isEmpty && validate(problem, matching, { rule: "gather", strict: false }).ok) count++;
    }
    return count;
  }

  it.each([
    ["matmul", "matmul.f32", {}],
    ["conv1d", "matmul.f32", {}],
    ["conv2d", "broadcast.f32", {}],
    ["conv1d", "virtual.conv", {}],
    ["conv2d", "virtual.gemv", {}],
    ["matvec", "virtual.conv", {}],
    ["matvec", "matmul.f32", {}],
  ] as const)("of %s on %s has the size that is known before listing it", (operator, intrinsic, parameters) => {
    const computation = instantiate(operatorNamed(operator), { parameters, types: f32 });
    const set = mappings(computation, named(intrinsic), { binding: "fixed" });
    expect(set.total).toBe(exhaustiveCount(computation, named(intrinsic)));
    expect(set.valid).toHaveLength(set.total);
    expect(new Set(set.valid.map((m) => m.id)).size).toBe(set.total);
  });

  it("feeds as many axes as possible where a computation has fewer loops than axes", () => {
    const outer = compute("c[k,p] += a[p] * b[k]", { k: 3, p: 4 }, { a: "f32", b: "f32" });
    const set = mappings(outer, conv, { binding: "fixed" });
    expect(set.valid.map((m) => printMatching(m.matching))).toMatchInlineSnapshot(`
      [
        "k <- k   p <- p   q <- -   c <- -",
        "k <- k   p <- -   q <- p   c <- -",
      ]
    `);
    expect(set.total).toBe(exhaustiveCount(outer, conv));
  });

  it("is empty where nothing feeds an axis", () => {
    const lanes = compute("c[i] += a[i] * b[i]", { i: 4 }, { a: "f32", b: "f32" });
    const set = mappings(lanes, named("matmul.f32"));
    expect(set.total).toBe(0);
    expect(set.valid).toEqual([]);
    expect(set.refused.length).toBeGreaterThan(0);
  });

  describe("larger than the limit", () => {
    const c3d = instantiate(operatorNamed("conv3d"), { types: f32 });
    const matmulF32 = named("matmul.f32");
    const options = { limit: 200, seed: 3 };

    it("is sampled, and marked as such", () => {
      const whole = mappings(c3d, conv);
      const sampled = mappings(c3d, conv, options);
      expect([whole.sampled, sampled.sampled]).toEqual([false, true]);
      expect(sampled.total).toBe(whole.total);
      expect(whole.valid).toHaveLength(whole.total);
      expect(sampled.valid).toHaveLength(200);
      const ids = new Set(whole.valid.map((m) => m.id));
      expect(sampled.valid.filter((m) => !ids.has(m.id))).toEqual([]);
      expect(new Set(sampled.valid.map((m) => m.id)).size).toBe(200);
    });

    it("gives the same sample for the same seed and another for another seed", () => {
      const ids = (seed: number): string[] => mappings(c3d, conv, { limit: 200, seed }).valid.map((m) => m.id);
      expect(ids(3)).toEqual(ids(3));
      expect(ids(3)).not.toEqual(ids(4));
    });

    it("is listed whole where its size equals the limit", () => {
      const { total } = mappings(c3d, matmulF32);
      expect(mappings(c3d, matmulF32, { limit: total }).sampled).toBe(false);
      expect(mappings(c3d, matmulF32, { limit: total - 1 }).sampled).toBe(true);
    });
  });
});
