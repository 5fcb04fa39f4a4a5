/** @file The worked example of the AMOS paper (figure 3), address by address: a 2x2x2 unit runs a small convolution. */

import { describe, expect, it } from "vitest";
import { printMatrix } from "../abstraction/binary-matrix.ts";
import { defineComputation, elementCount, inputsOf } from "../abstraction/computation.ts";
import { printExpr } from "../abstraction/expression.ts";
import { interpret } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import { defineIntrinsic } from "../abstraction/intrinsic.ts";
import { fuseRowMajor } from "../abstraction/layout.ts";
import { type Mapping, printMatching } from "../abstraction/mapping.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { lowerMapping } from "../mapper/lower/plain.ts";
import { accessMatrices, disagreements } from "../mapper/match/access.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { physicalMapping } from "../mapper/match/physical.ts";

const toy = defineIntrinsic({
  name: "toy.2x2x2",
  family: "toy",
  isa: "virtual",
  language: "none",
  summary: "A 2x2x2 matrix product.",
  compute: "c[i1,i2] += a[i1,r1] * b[r1,i2]",
  extents: { i1: 2, i2: 2, r1: 2 },
  operands: {
    a: { dtype: "f32", storage: "unit[2*i1 + r1]" },
    b: { dtype: "f32", storage: "unit[2*r1 + i2]" },
    c: { dtype: "f32", storage: "unit[2*i1 + i2]" },
  },
  emit: "toy({c}, {a}, {b});",
  source: "AMOS (ISCA 2022), figure 3",
});

/** n1 k4 p2 q2 c1 r3 s3. */
const conv2d = defineComputation({
  name: "conv2d",
  equation: "out[n,k,p,q] += image[n,c,p+r,q+s] * weight[k,c,r,s]",
  extents: { n: 1, k: 4, p: 2, q: 2, c: 1, r: 3, s: 3 },
  tensors: { image: "f32", weight: "f32" },
});

/** n,p,q -> i1    k -> i2    c,r,s -> r1 */
const example = theMapping("i1 <- n,p,q   i2 <- k   r1 <- c,r,s");

function theMapping(matching: string): Mapping {
  const found = mappings(conv2d, toy, { rule: "amos" }).valid.find((m) => printMatching(m.matching) === matching);
  if (!found) throw new Error(`no mapping ${matching}`);
  return found;
}

describe("the worked example on a 2x2x2 unit", () => {
  const physical = physicalMapping(example);
  const operand = (name: string) => physical.operands.find((o) => o.operand.name === name);

  it("has the access matrices of the paper, and they agree", () => {
    const { x, y, z, ...primes } = accessMatrices(conv2d, toy, example.binding, example.matching);
    expect(`\n${[x, y, z].map(printMatrix).join("\n\n")}`).toMatchInlineSnapshot(`
      "
         n k p q c r s
      a  1 0 1 1 1 1 1
      b  0 1 0 0 1 1 1
      c  1 1 1 1 0 0 0

          n k p q c r s
      i1  1 0 1 1 0 0 0
      i2  0 1 0 0 0 0 0
      r1  0 0 0 0 1 1 1

         i1 i2 r1
      a   1  0  1
      b   0  1  1
      c   1  1  0"
    `);
    expect(disagreements({ x, y, z, ...primes })).toEqual([]);
    expect(primes.xPrime).toEqual(x);
    expect(primes.zPrime).toEqual(z);
  });

  it("fuses loops row-major: the virtual mapping is a product of 4x9 by 9x4", () => {
    expect(physical.axes.map((a) => `${a.axis} = ${printExpr(a.index, "formula")}  of ${a.fused}`)).toEqual([
      "i1 = 4*n + 2*p + q  of 4",
      "i2 = k  of 4",
      "r1 = 9*c + 3*r + s  of 9",
    ]);
  });

  it("has the virtual strides 9, 4 and 4: rows of whole matrices, base 0", () => {
    const fused = new Map(physical.axes.map((a) => [a.axis, a.fused]));
    const strides = physical.operands.map(({ operand: { name, dims } }) => {
      const matrix = fuseRowMajor(
        dims.map((d) => ({ index: { kind: "axis", name: d.name }, extent: fused.get(d.name) ?? 0 })),
      );
      return `${name}: ${printExpr(matrix, "formula")}`;
    });
    expect(strides).toEqual(["c: i1*4 + i2", "a: i1*9 + r1", "b: r1*4 + i2"]);
  });

  it("numbers the tiles as the paper does", () => {
    expect(Object.fromEntries(physical.operands.map((o) => [o.operand.name, printExpr(o.base, "formula")]))).toEqual({
      a: "(4*n + 2*p + q)/2*20 + (9*c + 3*r + s)/2*4",
      b: "(9*c + 3*r + s)/2*8 + k/2*4",
      c: "(4*n + 2*p + q)/2*8 + k/2*4",
    });
  });

  it("steps 2 elements from row to row in every tile of 4", () => {
    expect(physical.operands.map(({ stride, tile }) => ({ stride, tile }))).toEqual(
      Array.from({ length: 3 }, () => ({ stride: 2, tile: 4 })),
    );
  });

  it("takes 2x2x5 issues, the sum of 9 padded to 10", () => {
    expect(physical.axes.map((a) => a.tiles)).toEqual([2, 2, 5]);
    expect(physical.axes.map((a) => [a.fused, a.padded])).toEqual([
      [4, 4],
      [4, 4],
      [9, 10],
    ]);
    expect(physical.issues).toBe(20);
    expect(example.waste).toBeCloseTo(1 / 10);
    expect(physical.outer).toEqual([]);
  });

  it("keeps every tile: 2x5 of a, 5x2 of b, 2x2 of c", () => {
    expect([operand("a")?.elements, operand("b")?.elements, operand("c")?.elements]).toEqual([40, 40, 16]);
  });

  it("lowers to this nest", () => {
    expect(`\n${printNest(lowerMapping(example))}`).toMatchInlineSnapshot(`
      "
      workspace c_tiles: f32[16]
      workspace a_tiles: f32[40]
      workspace b_tiles: f32[40]
      for element in 0..16
        c_tiles[element] = 0
      for i1_outer in 0..2
        for i1_inner in 0..2
          for r1_outer in 0..5
            for r1_inner in 0..2
              a_tiles[i1_outer*20+r1_outer*4+(2*i1_inner+r1_inner)] = select(r1_outer*2+r1_inner < 9, image[(i1_outer*2+i1_inner)/4,(r1_outer*2+r1_inner)/9,(i1_outer*2+i1_inner)/2%2+(r1_outer*2+r1_inner)/3%3,(i1_outer*2+i1_inner)%2+(r1_outer*2+r1_inner)%3], 0)
      for r1_outer in 0..5
        for r1_inner in 0..2
          for i2_outer in 0..2
            for i2_inner in 0..2
              b_tiles[r1_outer*8+i2_outer*4+(2*r1_inner+i2_inner)] = select(r1_outer*2+r1_inner < 9, weight[i2_outer*2+i2_inner,(r1_outer*2+r1_inner)/9,(r1_outer*2+r1_inner)/3%3,(r1_outer*2+r1_inner)%3], 0)
      for i1_tile in 0..2
        for i2_tile in 0..2
          for r1_tile in 0..5
            c_tiles[i1_tile*8 + i2_tile*4 ..] <- toy.2x2x2(a_tiles[i1_tile*20 + r1_tile*4 ..], b_tiles[r1_tile*8 + i2_tile*4 ..])
      for i1_outer in 0..2
        for i1_inner in 0..2
          for i2_outer in 0..2
            for i2_inner in 0..2
              out[(i1_outer*2+i1_inner)/4,i2_outer*2+i2_inner,(i1_outer*2+i1_inner)/2%2,(i1_outer*2+i1_inner)%2] += c_tiles[i1_outer*8+i2_outer*4+(2*i1_inner+i2_inner)]"
    `);
  });

  it("computes the convolution", () => {
    const inputs = Object.fromEntries(
      inputsOf(conv2d).map((t) => [
        t.name,
        Float64Array.from({ length: elementCount(t) }, (_, i) => ((i * 7) % 11) - 5),
      ]),
    );
    expect(interpretNest(lowerMapping(example), conv2d, inputs)).toEqual(interpret(conv2d, inputs));
  });
});

describe("a mapping that leaves loops outside", () => {
  const partial = theMapping("i1 <- q   i2 <- k   r1 <- c,r");

  it("lowers to this nest: kept loops around everything, summed loops around the issues", () => {
    expect(`\n${printNest(lowerMapping(partial))}`).toMatchInlineSnapshot(`
      "
      workspace c_tiles: f32[8]
      workspace a_tiles: f32[8]
      workspace b_tiles: f32[16]
      for n in 0..1
        for p in 0..2
          for element in 0..8
            c_tiles[element] = 0
          for s in 0..3
            for i1_outer in 0..1
              for i1_inner in 0..2
                for r1_outer in 0..2
                  for r1_inner in 0..2
                    a_tiles[i1_outer*8+r1_outer*4+(2*i1_inner+r1_inner)] = select(r1_outer*2+r1_inner < 3, image[n,(r1_outer*2+r1_inner)/3,p+(r1_outer*2+r1_inner)%3,i1_outer*2+i1_inner+s], 0)
            for r1_outer in 0..2
              for r1_inner in 0..2
                for i2_outer in 0..2
                  for i2_inner in 0..2
                    b_tiles[r1_outer*8+i2_outer*4+(2*r1_inner+i2_inner)] = select(r1_outer*2+r1_inner < 3, weight[i2_outer*2+i2_inner,(r1_outer*2+r1_inner)/3,(r1_outer*2+r1_inner)%3,s], 0)
            for i1_tile in 0..1
              for i2_tile in 0..2
                for r1_tile in 0..2
                  c_tiles[i1_tile*8 + i2_tile*4 ..] <- toy.2x2x2(a_tiles[i1_tile*8 + r1_tile*4 ..], b_tiles[r1_tile*8 + i2_tile*4 ..])
          for i1_outer in 0..1
            for i1_inner in 0..2
              for i2_outer in 0..2
                for i2_inner in 0..2
                  out[n,i2_outer*2+i2_inner,p,i1_outer*2+i1_inner] += c_tiles[i1_outer*8+i2_outer*4+(2*i1_inner+i2_inner)]"
    `);
  });
});
