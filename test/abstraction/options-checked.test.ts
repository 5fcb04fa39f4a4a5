/** @file Values of a caller that a schema refuses: the sentence names where the mistake is. */

import { expect, it } from "vitest";
import { z } from "zod";
import { checkOptions } from "../../abstraction/schema.ts";

const SCHEMA = z.strictObject({
  trials: z.number().optional(),
  budget: z.strictObject({ seconds: z.number() }).optional(),
});

it.each([
  [{ trails: 3 }, 'tune has no option "trails"'],
  [{ trials: "3" }, "tune: trials: expected number, received string"],
  [{ budget: { second: 1, seconds: 1 } }, 'tune: budget has no option "second"'],
  [{ budget: { seconds: "1" } }, "tune: budget.seconds: expected number, received string"],
])("%o is refused in a sentence that names its place", (given, says) => {
  expect(() => checkOptions(SCHEMA, given, "tune")).toThrow(says);
  expect(() => checkOptions(SCHEMA, { trials: 3, budget: { seconds: 1 } }, "tune")).not.toThrow();
});
