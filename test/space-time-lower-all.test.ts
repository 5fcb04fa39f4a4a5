/**
 * @file Every enumerated design of a 1-D convolution, run as lane nests; random ones of other computations stand in
 * drawn-lanes.deep.test.ts.
 */

import { describe, expect, it } from "vitest";
import type { Computation } from "../abstraction/computation.ts";
import { interpret } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import { printNest } from "../abstraction/print-nest.ts";
import type { SpaceTime } from "../abstraction/recurrence.ts";
import { arrayPass, derive } from "../mapper/space-time/derive.ts";
import { designSpace } from "../mapper/space-time/enumerate.ts";
import { lowerDesign } from "../mapper/space-time/lower.ts";
import { convolution1d, FORMS, integerInputs } from "./support/space-time.ts";

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

describe("designs of a 1-D convolution", () => {
  it("with entries up to 2 all equal the convolution: 56 in four forms", () => {
    const computation = convolution1d(16, 5);
    const designs = designsOf(computation, 2, 1);
    expect(designs).toHaveLength(56);
    expect(wrong(computation, designs)).toEqual([]);
  });

  it("of stride 2 equal the convolution", () => {
    const computation = convolution1d(7, 5, 2);
    expect(wrong(computation, designsOf(computation, 2, 1))).toEqual([]);
  });
});
