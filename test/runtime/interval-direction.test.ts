/** @file Bounds of epilogues that follow their sum in one direction: the same as by intervals, from results at both ends. */

import { expect, it } from "vitest";
import { partsOf } from "../../abstraction/epilogue.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { endsByDirection, intervalsOf } from "../../runtime/reference/interval.ts";
import { compilerHere } from "../support/here.ts";
import { stated } from "../support/subjects.ts";

const options = { compiler: await compilerHere(), workdir: cacheFolder("runtime") };

const COUNT = 200;

function partOf(epilogue: string, count = COUNT) {
  const { epilogue: part } = partsOf(stated(`out[i] += a[i,k] --i ${count} --k 1 --epilogue ${epilogue}`));
  if (!part) throw new Error("no epilogue");
  return part;
}

const random = seededRandom(7);
const drawn = (): Float64Array => Float64Array.from({ length: COUNT }, () => Math.fround(4 * random() - 2));
const x = drawn();
const low = drawn();
const ends = { low, high: low.map((value) => value + 0.25 * random()) };

it.each([
  "res[i] = max(out[i] + x[i], 0)",
  "res[i] = x[i] - out[i]",
  "res[i] = min(max(out[i], 0), 1) - x[i]",
  "res[i] = 1 - max(x[i] - out[i], 0)",
  "res[i] = bf16(out[i])",
  "res[i] = out[i] * x[i]",
  "res[i] = sat_u8(round(x[i] - out[i] * 3))",
])("%s is bounded by its results at both ends", async (epilogue) => {
  const part = partOf(epilogue);
  expect(await endsByDirection(part, { x }, "out", ends, interpret)).toEqual(
    await intervalsOf(part, { x }, "out", ends, options),
  );
});

it.each([
  "res[i] = out[i] * out[i]",
  "res[i] = out[i] - max(out[i], 0)",
  "res[i] = abs(out[i])",
  "res[i] = exp(out[i])",
  "res[i] = max(exp(x[i]), out[i])",
  "res[i] = u8(out[i])",
])("of %s no direction is known", async (epilogue) => {
  expect(await endsByDirection(partOf(epilogue), { x }, "out", ends, interpret)).toBeUndefined();
});

it.each(["sin", "cos", "atan", "asinh"])("the interval of %s holds what lies between its ends", async (fn) => {
  const wide = { low, high: low.map((value, i) => value + 0.02 * i) };
  const part = partOf(`res[i] = ${fn}(out[i])`);
  const found = await intervalsOf(part, {}, "out", wide, options);
  for (const share of [0, 0.3, 0.5, 0.9, 1]) {
    const within = low.map((value, i) => value + share * 0.02 * i);
    const values = interpret(part, { out: within });
    const isInside = (value: number, i: number): boolean =>
      (found.low[i] ?? Number.NaN) <= value && value <= (found.high[i] ?? Number.NaN);
    expect(Array.from(values).every(isInside)).toBe(true);
  }
  if (fn === "sin" || fn === "cos") expect(Math.max(...found.high)).toBeLessThan(1.0001);
});

it("what is known exactly stays so where integers wrap, and every end is a number of its type", async () => {
  const known = { low: Float64Array.of(300.7, -3, 1, 0.1), high: Float64Array.of(300.7, -3, 257, 0.2) };
  const of = async (epilogue: string, ends: typeof known, x?: Float64Array): Promise<number[][]> => {
    const { low, high } = await intervalsOf(partOf(epilogue, 4), x ? { x } : {}, "out", ends, options);
    return [[...low], [...high]];
  };
  expect(await of("res[i] = u8(out[i])", known)).toEqual([
    [44, 253, 0, 0],
    [44, 253, 255, 0],
  ]);
  const zeros = new Float64Array(4);
  const [low, high] = await of("res[i] = x[i] / out[i]", { low: zeros, high: zeros }, Float64Array.of(1, -1, 2, 0));
  expect(low).toEqual([Infinity, -Infinity, Infinity, -Infinity]);
  expect(high).toEqual([Infinity, -Infinity, Infinity, Infinity]);
  for (const end of (await of("res[i] = out[i] * out[i]", known)).flat()) expect(end).toBe(Math.fround(end));
});

it("a bound that is no number leaves it to the intervals", async () => {
  const part = partOf("res[i] = out[i] + x[i]");
  const infinite = Float64Array.from(x, () => Number.NEGATIVE_INFINITY);
  const all = { low: ends.low, high: ends.high.fill(Number.POSITIVE_INFINITY, 0, 1) };
  expect(await endsByDirection(part, { x: infinite }, "out", all, interpret)).toBeUndefined();
});
