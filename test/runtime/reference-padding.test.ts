/** @file Reads outside a tensor become reads of a padded one, and no result changes. */

import { expect, it } from "vitest";
import { inputsOf } from "../../abstraction/computation.ts";
import { printEquation } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { code, keyOf } from "../../abstraction/source-text.ts";
import { printValue } from "../../runtime/reference/reference-expressions.ts";
import { padded } from "../../runtime/reference/reference-padding.ts";
import { heldAsNumbers, referenceStruct } from "../../runtime/reference/reference-source.ts";
import { textOf } from "../support/source.ts";
import { stated } from "../support/subjects.ts";

it("padding surrounds a tensor that is read outside with the identity, and shifts the reads", () => {
  const given = stated("y[p,q] += x[p+r-1,q] * w[r] --p 5 --q 4 --r 3 --shape x=5x4");
  const { computation, low } = padded(given);
  expect(printEquation(computation.equation)).toMatchInlineSnapshot(`"y[p,q] += x[p+r-1+1,q] * w[r]"`);
  expect(inputsOf(computation).map((t) => t.dims.map((d) => d.extent))).toEqual([[7, 4], [3]]);
  expect([...low]).toEqual([["x", [-1, 0]]]);
  const values = { x: Float64Array.from({ length: 20 }, (_, i) => i + 1), w: Float64Array.of(2, 3, 5) };
  const wide = { ...values, x: Float64Array.of(0, 0, 0, 0, ...values.x, 0, 0, 0, 0) };
  expect(interpret(computation, wide)).toEqual(interpret(given, values));
});

it("padding with the identity of max= keeps the results of bytes, and leaves floats alone", () => {
  const of = (dtype: string) => stated(`y[p] max= x[p+r-1] --p 5 --r 3 --dtype ${dtype} --shape x=5`);
  const negative = Float64Array.of(-3, -7, -1, -9, -4);
  // An infinite identity is in no range: such reads are tested instead.
  const floats = of("f32");
  expect(padded(floats).computation).toBe(floats);
  const wide = Float64Array.of(-128, ...negative, -128);
  expect(interpret(padded(of("s8")).computation, { x: wide })).toEqual(interpret(of("s8"), { x: negative }));
});

it("a reference of one output at a time does not promise a compiler that outputs are apart", () => {
  const transposed = stated("y[i,j] = x[j,i] --i 4 --j 4");
  const text = (lanes: number): string => textOf(referenceStruct(code`Reference`, transposed, heldAsNumbers, lanes));
  expect(text(1)).not.toContain("ivdep");
  expect(text(8)).toContain("ivdep");
});

it("padding leaves alone tensors read inside only, and borders larger than the tensor", () => {
  const inside = stated("y[i] += x[i] --i 4");
  expect(padded(inside).computation).toBe(inside);
  const wide = stated("y[i] += x[i+j] where i + j < 4 --i 4 --j 400 --shape x=4");
  expect(padded(wide).computation).toBe(wide);
});

it("a condition that compares elements and indices compares the elements in their type", () => {
  const value = parseExpr("select(x[i] < 1 and i < 3, 1, 2)");
  // Only the index is compared with an integer.
  expect(keyOf(printValue(value, { x: "f32" }, "f32")).match(/Int\([^)]*\)/g)).toEqual(["Int(3)"]);
});
