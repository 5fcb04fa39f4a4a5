/** @file What many outputs share is computed once, and no result changes; what computations of one form share is compiled once. */

import { expect, it } from "vitest";
import { elementCount, inputsOf, type Tensor, targetOf } from "../../abstraction/computation.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { printEquation } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { drawnSource } from "../../runtime/reference/drawn-source.ts";
import { sharedOnce } from "../../runtime/reference/reference-once.ts";
import { operation, stated } from "../support/subjects.ts";

it.each([
  ["half bytes", operation("matmul-4bit m=4 n=6 k=8 group=4")],
  ["half bytes of one row", operation("matmul-4bit m=1 n=6 k=8 group=4")],
  ["a transposed matrix", stated("c[i,j] += a[i,k] * b[j,k] --i 3 --j 4 --k 5")],
  ["the same beside a tensor of its name", stated("c[i,j] += once0[i,k] * b[j,k] --i 3 --j 4 --k 5")],
  ["a matrix whose rows lie along the outputs", stated("c[i,j] += a[i,k] * b[k,j] --i 3 --j 4 --k 5")],
  ["windows", stated("y[p,q] += x[p+r,2*q+s] * w[r,s] --p 4 --q 4 --r 3 --s 3")],
  ["a border, which is read as 0", stated("y[i,p] += x[2*p+r-1] * w[i,r] --i 3 --p 4 --r 3 --shape x=8")],
])("of %s", (_, computation) => {
  const once = sharedOnce(computation);
  const numbers = (t: Tensor, n: number) =>
    Float64Array.from({ length: elementCount(t) }, (_, i) => (i * (n + 3)) % 11);
  const values = Object.fromEntries(inputsOf(computation).map((t, n) => [t.name, numbers(t, n)]));
  const inputs = new Map<string, Values>(Object.entries(values));
  for (const one of once.made) inputs.set(targetOf(one).name, interpret(one, Object.fromEntries(inputs)));
  expect(interpret(once.computation, Object.fromEntries(inputs))).toEqual(interpret(computation, values));
  const lines = [...once.made, once.computation].map(({ equation }) => printEquation(equation));
  expect(lines.join("\n")).toMatchSnapshot();
});

it("compiles one program for computations that differ in their sizes", () => {
  const programOf = (words: string) => drawnSource(operation(words), new Set());
  const one = programOf("conv2d c=16 k=32 h=14 w=14");
  const other = programOf("conv2d c=64 k=16 h=56 w=28");
  expect(other.source).toBe(one.source);
  expect(other.sizes).not.toEqual(one.sizes);
  expect(programOf("conv2d c=16 k=32 h=14 w=14 r=5 s=5 pad=2").source).not.toBe(one.source);
  expect(programOf("matmul m=4096 n=4096 k=4096").sizes).toEqual([]);
});
