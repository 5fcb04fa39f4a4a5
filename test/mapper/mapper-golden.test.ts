/** @file The worked example of the AMOS paper (figure 3), address by address: a 2x2x2 unit runs a small convolution. */

import { describe, expect, it } from "vitest";
import { fuseRowMajor } from "../../abstraction/affine.ts";
import { printMatrix } from "../../abstraction/binary-matrix.ts";
import { printExpr } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { lowerMapping } from "../../mapper/lower/plain.ts";
import { accessMatrices } from "../../mapper/match/access.ts";
import { physicalMapping } from "../../mapper/match/physical.ts";
import { small } from "../support/random-computation.ts";
import { mappingNamed, smallIntegers, stated } from "../support/subjects.ts";

const toy = small(
  "toy.2x2x2",
  "c[i1,i2] += a[i1,r1] * b[r1,i2] over i1 2, i2 2, r1 2",
  "a f32 unit[2*i1 + r1]",
  "b f32 unit[2*r1 + i2]",
  "c f32 unit[2*i1 + i2]",
);
const conv2d = stated("out[n,k,p,q] += image[n,c,p+r,q+s] * weight[k,c,r,s] --n 1 --k 4 --p 2 --q 2 --c 1 --r 3 --s 3");

describe("the worked example on a 2x2x2 unit", () => {
  const example = mappingNamed(conv2d, toy, "i1 <- n,p,q; i2 <- k; r1 <- c,r,s");
  const { axes, operands, issues, outer } = physicalMapping(example);

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
    expect(primes.xPrime).toEqual(x);
    expect(primes.zPrime).toEqual(z);
  });

  it("is a virtual product of 4x9 by 9x4 with whole rows, in 2x2x5 issues, and numbers its tiles as the paper does", () => {
    const fused = new Map(axes.map((a) => [a.axis, a.fused]));
    const lines = [
      ...axes.map(
        (a) => `${a.axis} = ${printExpr(a.index, "formula")}  of ${a.fused}, padded to ${a.padded}: ${a.tiles} tiles`,
      ),
      ...operands.map(({ operand: { name, dims }, ...o }) => {
        const matrix = dims.map((d) => ({
          index: { kind: "axis", name: d.name } as const,
          extent: fused.get(d.name) ?? 0,
        }));
        const virtual = printExpr(fuseRowMajor(matrix), "formula");
        return `${name}: ${virtual}, from ${printExpr(o.base, "formula")} by ${o.stride}, ${o.tile} a tile of ${o.elements}`;
      }),
      `${issues} issues, ${outer.length} loops around, waste ${example.waste}`,
    ];
    expect(lines.join("\n")).toMatchInlineSnapshot(`
      "i1 = 4*n + 2*p + q  of 4, padded to 4: 2 tiles
      i2 = k  of 4, padded to 4: 2 tiles
      r1 = 9*c + 3*r + s  of 9, padded to 10: 5 tiles
      c: i1*4 + i2, from (4*n + 2*p + q)/2*8 + k/2*4 by 2, 4 a tile of 16
      a: i1*9 + r1, from (4*n + 2*p + q)/2*20 + (9*c + 3*r + s)/2*4 by 2, 4 a tile of 40
      b: r1*4 + i2, from (9*c + 3*r + s)/2*8 + k/2*4 by 2, 4 a tile of 40
      20 issues, 0 loops around, waste 0.09999999999999998"
    `);
  });

  it("lowers to this nest, which computes the convolution", () => {
    const nest = lowerMapping(example);
    expect(`\n${printNest(nest)}`).toMatchInlineSnapshot(`
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
    const inputs = smallIntegers(conv2d);
    expect(interpretNest(nest, conv2d, inputs)).toEqual(interpret(conv2d, inputs));
  });
});

it("a mapping that leaves loops outside has kept loops around everything, summed loops around the issues", () => {
  const partial = mappingNamed(conv2d, toy, "i1 <- q; i2 <- k; r1 <- c,r");
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
