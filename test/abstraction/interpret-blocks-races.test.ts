/** @file Races in the values that a nest computes. What the interpreter says of them is in test/golden/nests. */

import { describe, expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS, type NestOrder } from "../../abstraction/blocks/run.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { onWarps } from "../support/nest-text.ts";
import { ringMatmul } from "../support/ring-matmul.ts";
import { smallIntegers, stated } from "../support/subjects.ts";

describe("a race", () => {
  it("is refused even where the values are right in every order", () => {
    // Both copies bring the same values, and lanes of one warp run in step here: nothing ever goes wrong.
    const twice = onWarps(
      1,
      [
        "copy i 64, by block   s[i] = x[i]",
        "copy i 64, by block   s[i] = x[i]",
        "for lanes lane in 0..32",
        "  y[lane] = s[63-lane]",
        "  y[32+lane] = s[31-lane]",
      ].join("\n"),
      "shared s: f32[i 64]",
    );
    const reversed = stated("y[i] = x[63-i] --i 64");
    const x = Array.from({ length: 64 }, (_, i) => i);
    const expected = interpret(reversed, { x });
    for (const order of ADVERSE_ORDERS) {
      expect(interpretNest(twice, reversed, { x }, 1, { ...order, races: "ignored" })).toEqual(expected);
      expect(() => interpretNest(twice, reversed, { x }, 1, order)).toThrow(NestFault);
    }
  });

  it("shows as wrong values in an adverse order", () => {
    const right = (options: Parameters<typeof ringMatmul>[0], order: NestOrder): boolean => {
      const { computation, nest } = ringMatmul(options);
      const inputs = smallIntegers(computation);
      const expected = interpret(computation, inputs);
      const got = interpretNest(nest, computation, inputs, 1, { ...order, races: "ignored" });
      return got.every((value, i) => value === expected[i]);
    };
    const seen = (options: Parameters<typeof ringMatmul>[0]): boolean[] =>
      ADVERSE_ORDERS.map((order) => right(options, order));
    expect(seen({})).toEqual([true, true, true, true, true, true]);
    // Without its wait, a copy that comes at once is in time.
    expect(seen({ without: "wait" })).toEqual([true, false, true, false, true, false]);
    // Overrunning the ring, a copy that comes late spares what is still read.
    expect(seen({ ahead: 3 })).toEqual([false, true, false, true, false, true]);
  });
});
