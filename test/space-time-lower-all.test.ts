/** @file Every enumerated design of a 1-D convolution, and a random sample of those of 2-D convolutions and products, run as lane nests. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../abstraction/computation.ts";
import { interpret } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import { printNest } from "../abstraction/print-nest.ts";
import type { SpaceTime } from "../abstraction/recurrence.ts";
import { arrayPass, derive } from "../mapper/space-time/derive.ts";
import { designSpace } from "../mapper/space-time/enumerate.ts";
import { lowerDesign } from "../mapper/space-time/lower.ts";
import { convolution1d, convolution2d, FORMS, integerInputs, product } from "./support/space-time.ts";

/** The designs of a computation, each once. */
function designsOf(computation: Computation, bound: number, arrayRows: number): SpaceTime[] {
  const { problem } = arrayPass(computation, { loops: computation.axes.map((a) => a.name) });
  return designSpace(problem, { bound, arrayRows }).pairs.map(({ array, time }) => ({
    allocation: array.rows,
    schedule: time.rows,
  }));
}

/** Designs that give something else than the equation, with the nest that does. */
function wrong(computation: Computation, designs: readonly SpaceTime[], forms = FORMS): string[] {
  const recurrence = derive(
    computation,
    computation.axes.map((a) => a.name),
  );
  const inputs = integerInputs(computation);
  const wanted = interpret(computation, inputs).join();
  return designs.flatMap((design) =>
    forms.flatMap((form) => {
      const nest = lowerDesign(recurrence, design, form);
      const got = interpretNest(nest, computation, inputs).join();
      return got === wanted ? [] : [`${JSON.stringify(design)} ${JSON.stringify(form)}\n${printNest(nest)}`];
    }),
  );
}

/** A sample that is the same at every run: linear congruential, as in Numerical Recipes. */
function sample<T>(items: readonly T[], count: number, seed: number): T[] {
  const left = [...items];
  let state = seed;
  return Array.from({ length: Math.min(count, items.length) }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const [taken] = left.splice(state % left.length, 1);
    if (taken === undefined) throw new Error("an empty sample");
    return taken;
  });
}

describe("designs of a 1-D convolution", () => {
  it("with entries up to 2 all equal it: 56 in four forms", () => {
    const computation = convolution1d(16, 5);
    const designs = designsOf(computation, 2, 1);
    expect(designs).toHaveLength(56);
    expect(wrong(computation, designs)).toEqual([]);
  });

  it("of stride 2 equal it", () => {
    const computation = convolution1d(7, 5, 2);
    expect(wrong(computation, designsOf(computation, 2, 1))).toEqual([]);
  });
});

describe("a random sample of designs", () => {
  // Extents that differ and are small: every design is run four times, lane by lane.
  it.each([
    { name: "2-D convolution on lanes", computation: convolution2d(3, 2, 2), arrayRows: 1 },
    { name: "2-D convolution on a plane", computation: convolution2d(4, 3, 2), arrayRows: 2 },
    { name: "matrix product on lanes", computation: product(3, 3, 2), arrayRows: 1 },
    { name: "matrix product on a plane", computation: product(3, 3, 2), arrayRows: 2 },
  ])("of a $name equals it: 125 of all with entries up to 2", ({ computation, arrayRows }) => {
    const designs = designsOf(computation, 2, arrayRows);
    expect(designs.length).toBeGreaterThan(16_000);
    expect(wrong(computation, sample(designs, 125, 1))).toEqual([]);
  });
});
