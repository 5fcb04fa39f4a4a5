/**
 * @file Digits of a loop's steps kept in counters: equal to division, and not used where division is cheaper or the
 * step is not 1.
 */

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Extents, evaluateIndex } from "../../abstraction/affine.ts";
import type { Expr } from "../../abstraction/expression.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { axisName, code, lines as linesOf, NOTHING, spell } from "../../abstraction/source-text.ts";
import { Counters } from "../../codegen/cuda/cuda-expressions.ts";

/** The text of a loop over `step` that notes what an index is in every step, with the numbers that are known ahead of it. */
function counted(e: Expr, extent: number, ahead: Extents = {}): { readonly text: string; readonly noted: number[] } {
  const counters = new Counters();
  const step = axisName("step");
  const { begun, lines } = counters.along(
    "step",
    () => {
      const digit = counters.digit(e);
      return digit ? [code`noted.push(${digit});`] : [];
    },
    (from) => code`${Math.trunc(evaluateIndex(from, ahead))}`,
  );
  const declared = [code`${step} = 0`, ...begun].map((d) => code`let ${d};`);
  const loop = linesOf([...declared, code`for (; ${step} < ${extent}; ${step}++) {`, ...lines, code`}`, NOTHING]);
  const text = String(spell(loop, "cuda"));
  const noted: number[] = [];
  new Function("noted", text)(noted);
  return { text, noted };
}

describe("digits of an index, counted along a loop", () => {
  it("equal what division gives in every step", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 40 }),
        fc.constantFrom(3, 5, 6, 7, 9, 12),
        fc.constantFrom(2, 3, 4, 6),
        fc.constantFrom("(step+C)%A", "(step+C)/A", "(step+C)/A%B", "(step+C)/A/B%3", "(step+C)/A/B"),
        (c, a, b, form) => {
          const e = parseExpr(form.replace("C", `${c}`).replace("A", `${a}`).replace("B", `${b}`));
          const wanted = Array.from({ length: 60 }, (_, step) => evaluateIndex(e, { step }));
          expect(counted(e, 60).noted).toEqual(wanted);
        },
      ),
    );
  });

  it("are divided where division is one instruction, or the index steps by more than one", () => {
    for (const text of ["step%4", "step/8", "(2*step)%3", "(step+lane)%3", "step%3+1", "(step-1)%3"])
      expect(counted(parseExpr(text), 8).text, text).not.toContain("noted");
  });

  it("print as this program", () => {
    expect(counted(parseExpr("(step+5)/6%2"), 8).text).toMatchInlineSnapshot(`
      "let step = 0;
      let step_5_in_6 = 5;
      let step_5_in_6_then_2 = 0;
      for (; step < 8; step++) {
      noted.push(step_5_in_6_then_2);
      if (++step_5_in_6 == 6) {
        step_5_in_6 = 0;
        step_5_in_6_then_2 = step_5_in_6_then_2 == 1 ? 0 : step_5_in_6_then_2 + 1;
      }
      }
      "
    `);
  });
});
