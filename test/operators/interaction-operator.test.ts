/** @file The operator `interaction`: what it computes, and in which types. */

import { describe, expect, it } from "vitest";
import { elementCount, inputsOf } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { operation } from "../support/subjects.ts";

describe("the interaction of a recommendation model", () => {
  it("is the first vector, and behind it the products of all pairs in the order of PyTorch's tril_indices", () => {
    const samples = 2;
    const vectors = 4;
    const k = 3;
    const computation = operation(`interaction b=${samples} v=${vectors} k=${k}`);
    expect(computation.tensors["z"]?.dims.map((d) => d.extent)).toEqual([samples, k + 6]);
    const inputs = Object.fromEntries(
      inputsOf(computation).map((t, salt) => [
        t.name,
        Array.from({ length: elementCount(t) }, (_, i) => ((i * 7 + salt * 3 + (i >> 2)) % 9) - 4),
      ]),
    );
    const { d = [], e = [] } = inputs;
    const expected = Array.from({ length: samples }, (_, b) => {
      const first = d.slice(b * k, (b + 1) * k);
      const others = Array.from({ length: vectors - 1 }, (_, v) => {
        const from = (b * (vectors - 1) + v) * k;
        return e.slice(from, from + k);
      });
      const rows = [first, ...others];
      const pairs = rows.flatMap((row, i) =>
        rows.slice(0, i).map((other) => row.reduce((sum, x, n) => sum + x * (other[n] ?? 0), 0)),
      );
      return [...first, ...pairs];
    });
    expect([...interpret(computation, inputs)]).toEqual(expected.flat());
  });

  it("is stored in the type of its inputs, which are read anew in each call", () => {
    const { tensors } = operation("dlrm", "bf16");
    expect(Object.values(tensors).map((t) => [t.name, t.dtype, t.constant])).toEqual([
      ["z", "bf16", false],
      ["e", "bf16", false],
      ["d", "bf16", false],
    ]);
  });
});
