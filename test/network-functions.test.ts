/** @file Functions of floats, remainders and shifts at the ends of their domains and far from them. */

import { describe, expect, it } from "vitest";
import { UsageError } from "../abstraction/error.ts";
import { GraphBuilder } from "../network/builder.ts";
import type { Attribute } from "../network/graph.ts";
import { lowerGraph } from "../network/lower.ts";
import { runNetwork } from "../network/run.ts";
import type { ElementType } from "../network/value.ts";

interface Given {
  readonly type?: ElementType;
  readonly attributes?: Readonly<Record<string, Attribute>>;
}

async function made(op: string, inputs: readonly (readonly number[])[], { type = "f32", attributes = {} }: Given = {}) {
  const net = new GraphBuilder("one");
  const names = inputs.map((values, i) => net.input(`x${i}`, [values.length], type));
  net.output(net.node(op, names, attributes));
  const given = Object.fromEntries(inputs.map((values, i) => [`x${i}`, values]));
  const outputs = await runNetwork(lowerGraph(net.graph), given);
  return Array.from(outputs.values().next().value ?? []);
}

const { fround, sinh, cosh, tan, asin, acos, asinh, acosh, atanh } = Math;
const INFINITY = Number.POSITIVE_INFINITY;
const OF_ALL = [0, -0, 1e-20, -1e-6, 0.001, -0.3, 0.5, 1, -1.5, 3, 20, -80, 89, INFINITY, -INFINITY, Number.NaN];
const WITHIN_1 = [0, -0, 1e-20, -1e-6, 0.001, -0.3, 0.5, 0.999, -0.9999999, 1, -1, 1.5, -2, INFINITY, Number.NaN];
const FROM_1 = [1, 1.0000001, 1.001, 1.5, 20, 1e30, INFINITY, 0.999, 0, -2, -INFINITY, Number.NaN];

describe("a function that the notation lacks", () => {
  it.each([
    ["Sinh", sinh, OF_ALL],
    ["Cosh", cosh, OF_ALL],
    ["Tan", tan, OF_ALL],
    ["Asinh", asinh, OF_ALL],
    ["Asin", asin, WITHIN_1],
    ["Acos", acos, WITHIN_1],
    ["Atanh", atanh, WITHIN_1],
    ["Acosh", acosh, FROM_1],
  ] as const)("is as exact as f32 allows: %s", async (op, of, inputs) => {
    const given = inputs.map(fround);
    for (const [i, value] of (await made(op, [given])).entries()) {
      const expected = of(given[i] ?? 0);
      const isSame = Object.is(value, expected) || value === fround(expected);
      if (!isSame) expect(Math.abs(value / expected - 1), `${op}(${given[i]})`).toBeLessThan(8 * 2 ** -24);
    }
  });
});

describe("Mod", () => {
  const dividends = [7, -7, 5.5, -5.5, 1e9, 3];
  const divisors = [3, 3, -2, 2, 7, INFINITY];

  it("of floats has the sign of the dividend, as fmod says", async () => {
    const expected = dividends.map((x, i) => fround(x % (divisors[i] ?? 0)));
    expect(await made("Mod", [dividends, divisors], { attributes: { fmod: 1 } })).toEqual(expected);
    await expect(made("Mod", [dividends, divisors])).rejects.toThrow("floats are supported with fmod=1 only");
  });

  it.each(["s32", "s64"] as const)("of %s by 0 is 0", async (type) => {
    expect(
      await made(
        "Mod",
        [
          [7, -7, 5],
          [0, 3, -3],
        ],
        { type },
      ),
    ).toEqual([0, 2, -1]);
    expect(
      await made(
        "Mod",
        [
          [7, -7, 5],
          [0, 3, -3],
        ],
        { type, attributes: { fmod: 1 } },
      ),
    ).toEqual([0, -1, 2]);
  });
});

describe("BitShift", () => {
  it.each([
    ["u8", 255],
    ["u16", 65_535],
    ["u32", 2 ** 32 - 1],
  ] as const)("of %s shifts out what does not fit", async (type, most) => {
    const bits = Math.log2(most + 1);
    const inputs = [
      [1, 1, most, most, most],
      [0, bits - 1, 1, bits, bits + 1],
    ];
    const left = { type, attributes: { direction: "LEFT" } };
    expect(await made("BitShift", inputs, left)).toEqual([1, 2 ** (bits - 1), most - 1, 0, 0]);
    const right = { type, attributes: { direction: "RIGHT" } };
    expect(await made("BitShift", inputs, right)).toEqual([1, 0, 2 ** (bits - 1) - 1, 0, 0]);
  });

  it("needs a direction, and no sign", async () => {
    await expect(made("BitShift", [[1], [1]], { type: "u8" })).rejects.toThrow(UsageError);
    await expect(made("BitShift", [[1], [1]], { type: "s8", attributes: { direction: "LEFT" } })).rejects.toThrow(
      "s8 is not supported; u8, u16, u32 are",
    );
  });
});
