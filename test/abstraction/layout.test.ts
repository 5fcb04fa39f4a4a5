/** @file Layout names and the storage formulas they stand for. */

import { describe, expect, it } from "vitest";
import { type Dimension, evaluateIndex, layoutStorage, pointsOf, rowMajor } from "../../abstraction/affine.ts";
import { type ComputationSpec, defineComputation, memoryElements, tensorOf } from "../../abstraction/computation.ts";
import { printExpr } from "../../abstraction/expression.ts";
import { explanationOf } from "../support/message.ts";
import fc from "../support/property.ts";

const image: readonly Dimension[] = [
  { name: "n", extent: 2 },
  { name: "c", extent: 6 },
  { name: "h", extent: 5 },
  { name: "w", extent: 7 },
];
const weights: readonly Dimension[] = ["o", "i", "h", "w"].map((name, d) => ({ name, extent: [8, 6, 3, 3][d] ?? 1 }));
const formula = (layout: string, dims = image): string => printExpr(layoutStorage(layout, dims), "formula");

describe("a layout", () => {
  it("named by its dimensions alone is row-major in their order", () => {
    expect(formula("NCHW")).toMatchInlineSnapshot(`"((n*6 + c)*5 + h)*7 + w"`);
    expect(formula("NHWC")).toMatchInlineSnapshot(`"((n*5 + h)*7 + w)*6 + c"`);
    expect(formula("OIHW", weights)).toMatchInlineSnapshot(`"((o*6 + i)*3 + h)*3 + w"`);
    expect(formula("HWIO", weights)).toMatchInlineSnapshot(`"((h*3 + w)*6 + i)*8 + o"`);
    expect(layoutStorage("NCHW", image)).toEqual(rowMajor(image));
  });

  it("with a block splits a dimension, rounding its outer part up", () => {
    expect(formula("NCHW4c")).toMatchInlineSnapshot(`"(((n*2 + c/4)*5 + h)*7 + w)*4 + c%4"`);
    expect(formula("OIHW4i4o", weights)).toMatchInlineSnapshot(`"((((o/4*2 + i/4)*3 + h)*3 + w)*4 + i%4)*4 + o%4"`);
    expect(formula("CN4n", image.slice(0, 2))).toMatchInlineSnapshot(`"(c + n/4)*4 + n%4"`);
  });

  it("of no dimensions is the single element at place 0", () => {
    expect(printExpr(rowMajor([]))).toBe("0");
  });
});

describe("a layout that is refused", () => {
  const complaint = (layout: string, dims = image): string => explanationOf(() => formula(layout, dims));

  it("is not a layout name", () => {
    expect(complaint("nchw")).toMatchInlineSnapshot(`
      "layout: "nchw" is not a layout name: capitals for dimensions, then blocks such as 16c
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
    expect(complaint("")).toMatchInlineSnapshot(`
      "layout: "" is not a layout name: capitals for dimensions, then blocks such as 16c
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
    expect(complaint("NC-HW")).toMatchInlineSnapshot(`
      "layout: "NC-HW" is not a layout name: capitals for dimensions, then blocks such as 16c
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
  });

  it("names a dimension that is not there, leaves one out, or names one twice", () => {
    expect(complaint("NCDHW")).toMatchInlineSnapshot(`
      "layout: "NCDHW" names a dimension "D" that is not there
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
    expect(complaint("NCH")).toMatchInlineSnapshot(`
      "layout: "NCH" leaves out dimension W
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
    expect(complaint("NCHWC")).toMatchInlineSnapshot(`
      "layout: "NCHWC" names dimension C twice
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
  });

  it("blocks a dimension wrongly", () => {
    expect(complaint("NHW4c")).toMatchInlineSnapshot(`
      "layout: "NHW4c" leaves out dimension C
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
    expect(complaint("N4cCHW")).toMatchInlineSnapshot(`
      "layout: "N4cCHW" puts the block 4c outside its dimension
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
    expect(complaint("NCHW0c")).toMatchInlineSnapshot(`
      "layout: "NCHW0c" has an empty block
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
    expect(complaint("NCHW4c2c")).toMatchInlineSnapshot(`
      "layout: "NCHW4c2c" blocks C twice
        dimensions: N (2), C (6), H (5), W (7); for example NCHW"
    `);
  });
});

describe("memory", () => {
  const names = ["n", "c", "h", "w"];
  const blocked = fc
    .tuple(
      fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 4 }),
      fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 4, maxLength: 4 }),
      fc.infiniteStream(fc.nat()),
    )
    .map(([sizes, blocks, order]) => {
      const dims = sizes.map((extent, d): Dimension => ({ name: names[d] ?? "", extent }));
      const shuffled = <T>(items: T[]): T[] =>
        items
          .map((item) => ({ item, key: order.next().value ?? 0 }))
          .sort((a, b) => a.key - b.key)
          .map(({ item }) => item);
      const outer = shuffled(dims.map((d) => d.name.toUpperCase()));
      const inner = shuffled(dims.map((d, i) => `${blocks[i]}${d.name}`)).slice(0, blocks[0]);
      return { dims, layout: [...outer, ...inner].join("") };
    });

  const copy = (dims: readonly Dimension[], layout: string): ComputationSpec => {
    const index = dims.map((d) => d.name).join(",");
    return {
      equation: `y[${index}] = x[${index}]`,
      extents: Object.fromEntries(dims.map((d) => [d.name, d.extent])),
      tensors: { x: { dtype: "f32", layout } },
    };
  };

  it("holds every element of any layout in a place of its own", () => {
    const property = fc.property(blocked, ({ dims, layout }) => {
      const x = tensorOf(defineComputation(copy(dims, layout)), "x");
      const axes = dims.map((d) => d.name);
      const extents = Object.fromEntries(dims.map((d) => [d.name, d.extent]));
      const places = [...pointsOf(axes, extents)].map((point) => evaluateIndex(x.storage, point));
      expect(new Set(places).size).toBe(places.length);
      expect(Math.min(...places)).toBe(0);
      expect(Math.max(...places)).toBeLessThan(memoryElements(x));
    });
    fc.assert(property, { numRuns: 200 });
  });

  it("counts the holes of a block that is not full", () => {
    expect(memoryElements(tensorOf(defineComputation(copy(image, "NCHW4c")), "x"))).toBe(2 * 8 * 5 * 7);
    expect(memoryElements(tensorOf(defineComputation(copy(image, "NHWC")), "x"))).toBe(2 * 6 * 5 * 7);
  });
});
