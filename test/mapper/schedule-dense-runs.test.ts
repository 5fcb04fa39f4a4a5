/**
 * @file Fused loops over contiguous memory: the width moved at once is checked against the address of every element.
 */

import { describe, expect, it } from "vitest";
import { evaluateIndex, pointsOf } from "../../abstraction/affine.ts";
import { defineComputation, extentsOf, tensorOf } from "../../abstraction/computation.ts";
import { accessesIn } from "../../abstraction/expression.ts";
import { denseRun } from "../../mapper/schedule/dense-runs.ts";
import type { LoopDimension } from "../../mapper/schedule/dimensions.ts";

const MOST = 8;
const PIXELS = { c: 4, p: 4, q: 4 };

/** What is read, where it lies, the loops that are fused, and the elements that move at once. */
/** What is read of x, extents, how x lies, the loops that are fused, how many elements move at once, and a loop that a tile carries past its end. */
const CASES: readonly (readonly [
  string,
  string,
  Record<string, number>,
  string | undefined,
  string,
  number,
  string?,
])[] = [
  ["a filter", "x[k,c,r,s]", { k: 4, c: 8, r: 3, s: 3 }, undefined, "c r s", 8],
  ["a part of a filter", "x[k,c,r,s]", { k: 4, c: 8, r: 2, s: 2 }, undefined, "r s", 4],
  ["14 x 14 pixels", "x[c,p,q]", { c: 4, p: 14, q: 14 }, undefined, "p q", 4],
  ["7 x 7 pixels", "x[c,p,q]", { c: 4, p: 7, q: 7 }, undefined, "p q", 1],
  ["3 x 2 pixels with room behind them", "x[c,p,q]", { c: 4, p: 3, q: 2 }, "8*c + 2*p + q", "p q", 2],
  ["one loop", "x[c,p,q]", PIXELS, undefined, "q", 1],
  ["rows with room between them", "x[c,p,q]", PIXELS, "32*c + 8*p + q", "p q", 1],
  ["rows apart after every second", "x[c,p,q]", PIXELS, "64*c + 4*p + 8*(p/2) + q", "p q", 1],
  ["loops fused in another order", "x[c,p,q]", PIXELS, undefined, "q p", 1],
  ["what reaches outside", "x[c,p+r-1,q]", { ...PIXELS, r: 2 }, undefined, "p q", 1],
  ["channels an odd number apart", "x[c,p,q]", PIXELS, "17*c + 4*p + q", "p q", 1],
  ["the second plane, an odd number behind", "x[1,p,q]", PIXELS, "17*d0 + 4*p + q", "p q", 1],
  ["one channel, which the instruction pads, innermost", "x[p,q,c]", { c: 1, p: 4, q: 4 }, undefined, "p q", 1],
  ["a filter of one tap", "x[c,p+r,q+s]", { ...PIXELS, r: 1, s: 1 }, undefined, "p q", 8],
  ["a filter of one tap that the instruction pads", "x[c,p+2*r,q]", { ...PIXELS, r: 1 }, undefined, "p q", 1, "r"],
  ["a plane that is kept inside, six elements behind", "x[c,clamp(1),p,q]", { c: 4, p: 2, q: 2 }, undefined, "p q", 2],
  ["memory that begins beside a multiple", "x[c,p,q]", PIXELS, "16*c + 4*p + q + 1", "p q", 1],
];

describe("fused loops over contiguous elements", () => {
  for (const [name, read, extents, storage, fused, width, past = "c"] of CASES)
    it(`${name}: ${width} at once`, () => {
      const kept = Object.keys(extents).join();
      const computation = defineComputation({
        equation: `y[${kept}] += ${read} * b[${kept},z]`,
        extents: { ...extents, z: 1 },
        tensors: {
          x: {
            dtype: "f16",
            ...(storage && { storage }),
            ...(read.includes("-") && { shape: [4, 4, 4] }),
            ...(read.includes("clamp") && { shape: [4, 2, 3, 2] }),
          },
          b: "f16",
        },
      });
      const [access] = accessesIn(computation.equation.value);
      if (!access) throw new Error("nothing is read");
      const tensor = tensorOf(computation, "x");
      const loops = fused.split(" ").map((l) => ({ name: l, extent: extents[l] ?? 1 }));
      const weights = loops.map((_, i) => loops.slice(i + 1).reduce((n, l) => n * l.extent, 1));
      const dimension = { loops, weights } as unknown as LoopDimension; // no more of it is looked at
      const mapped = { extents: extentsOf(computation), fed: new Set(["c", past]), past: new Set([past]) };
      const run = denseRun(access, dimension, tensor, mapped, MOST);
      expect(run).toBe(width);
      if (run === 1) return;
      // 1. Wherever the other loops stand, every piece begins at a multiple of its elements and lies side by side.
      const others = Object.keys(extents).filter((l) => !fused.split(" ").includes(l));
      const names = loops.map((l) => l.name);
      for (const outer of pointsOf(others, extents)) {
        const places = [...pointsOf(names, extents)].map((inner) => {
          const at = access.index.map((e) => evaluateIndex(e, { ...outer, ...inner, z: 0 }));
          return evaluateIndex(tensor.storage, Object.fromEntries(tensor.dims.map((d, i) => [d.name, at[i] ?? 0])));
        });
        for (const [i, place] of places.entries()) expect(place).toBe((places[i - (i % run)] ?? 0) + (i % run));
        for (let i = 0; i < places.length; i += run) expect((places[i] ?? 0) % run).toBe(0);
      }
    });
});
