/**
 * @file Results that refer to themselves: their legal transforms. Their notation is in test/golden/computations/recurrent.txt, random lowerings are in
 * drawn-lanes.deep.test.ts.
 */

import { describe, expect, it } from "vitest";
import type { RecurrenceSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { isForm, recurrentForms, recurrentUnder } from "../../mapper/space-time/recurrent.ts";
import { formsOf, scheduleOf } from "../support/drawn/recurrent.ts";

const define = (equation: string, dtype: DType): Computation =>
  defineComputation({
    equation,
    extents: Object.fromEntries(
      ["i", "j", "k", "n"].filter((a) => new RegExp(`[[,]${a}`).test(equation)).map((a) => [a, 8]),
    ),
    tensors: Object.fromEntries(
      [...new Set(equation.match(/[a-z](?=\[)/g))].map((name) => [name, name === "a" ? "u16" : dtype]),
    ),
  });

describe("a definition whose result refers to itself", () => {
  it.each([
    [
      "h[i] = 2*h[i-1] + x[i]",
      "f32",
      "along i each element waits for the one before, by (1); lanes take sums, maxima and minima",
    ],
    ["h[i,j] = h[i-1,j] / 2 + x[i]", "s32", "lanes have no integer division"],
    ["h[i,j] = h[i-1,j] + x[i]", "s16", "lanes compute in s32, f32, f64, not in s16"],
    ["h[i,j] = h[i-1,j] + f32(a[j+i])", "f32", "f32(a[j+i]) is of another type; lanes compute in f32 alone"],
    ["h[i,j] = exp(h[i-1,j]) + x[i]", "f32", "exp has no instruction on lanes"],
    ["h[i] = h[i-1] + x[i] where i > 2", "f32", "write select(condition, a, b) instead"],
  ] as const)("%s is refused to lanes", (equation, dtype, because) => {
    const forms = recurrentForms(define(equation, dtype));
    expect("because" in forms ? forms.because : "").toContain(because);
  });

  it("judges a transform by its dependences, and names the vector that forbids it", () => {
    const seam = define("h[n,j] = x[n,j] + min(h[n-1,j-1], h[n-1,j+1])", "f32");
    const [form] = formsOf(seam);
    if (!form) throw new Error("no form");
    const because = (changes: Partial<RecurrenceSchedule>): string => {
      const found = recurrentUnder(seam, { ...scheduleOf(form, 16), ...changes });
      return isForm(found) ? "" : found.because;
    };
    expect(scheduleOf(form, 16).transform.schedule).toEqual([[2, 1]]);
    expect(because({ transform: { loops: ["n", "j"], allocation: [1, 0], schedule: [[1, 1]] } })).toBe(
      "design: the dependence (1,-1) takes 0 steps under s (1,1); what is read must be made a step before",
    );
    expect(because({ threads: 2 })).toContain("2 threads, but every element waits for others, by (1,1) (1,-1)");
    expect(because({ lanes: 128 })).toContain("a register has 16, and an array of this form 64 at most");
  });

  it("refuses a wavefront whose rows do not each run behind the row above", () => {
    // Its one dependence lies along a row, and is kept whatever the skew.
    const rows = define("h[i,j] = max(h[i,j-1] - 1, x[i+j])", "s32");
    const form = formsOf(rows).find((f) => f.form === "wavefront");
    if (!form) throw new Error("no wavefront");
    const schedule = scheduleOf(form, 16);
    const under = (skew: number) =>
      recurrentUnder(rows, { ...schedule, transform: { ...schedule.transform, schedule: [[skew, 1]] } });
    expect(isForm(under(1))).toBe(true);
    for (const skew of [0, -1, 9])
      expect(under(skew)).toMatchObject({
        because: expect.stringContaining("a row runs 1 to 8 steps behind the one above"),
      });
  });
});
