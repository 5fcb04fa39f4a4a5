/** @file How much a step in time may enlarge a difference, and the steps of which that is not known. */

import { expect, it } from "vitest";
import { growthOf } from "../../runtime/reference/step-growth.ts";
import { stated } from "../support/subjects.ts";

function growth(value: string): { factor: number; offset: number } | undefined {
  const { time } = stated(`u[t,i] = ${value} --t 4 --i 8`);
  if (!time) throw new Error("no steps in time");
  const whole = growthOf(time, 0)?.whole;
  return whole && { factor: whole.factor, offset: whole.offset };
}

it.each([
  ["u[t-1,i]", 1, 0],
  ["2 * u[t-1,i]", 16, 0],
  ["u[t-1,i] - 3 * u[t-1,i-1]", 256, 0],
  ["-2 * u[t-1,i]", 16, 0],
  ["abs(2 * u[t-1,i])", 16, 0],
  ["max(u[t-1,i], 3 * u[t-1,i-1])", 81, 0],
  ["min(2 * u[t-1,i], u[t-1,i-1])", 16, 0],
])("of %s is bounded", (value, factor, offset) => {
  expect(growth(value)).toEqual({ factor, offset });
});

it.each(["exp(u[t-1,i])", "max(u[t-1,i], exp(u[t-1,i-1]))", "u[t-1,i] * u[t-1,i]", "f32(i) * u[t-1,i]"])(
  "of %s is unknown",
  (value) => {
    expect(growth(value)).toBeUndefined();
  },
);
