/**
 * @file Test operands of an instruction, and the results of its equation for them.
 *
 *     casesOf(vpdpbusd, random)      random, small, extreme ... the largest u8 times the largest s8, added to the largest s32
 *
 * Integers must agree bit for bit. The hardware may take float sums in any order and precision, so these must agree
 * within (terms + 1) * (eps * sum of |terms| + tiny), with eps and tiny of the type of the sum. tiny is its smallest
 * normal number if the instruction flushes subnormals, else its smallest subnormal. eps of an instruction that adds with
 * fewer bits is what these cut off. On small integers every sum is exact, so results must be equal.
 */

import { mapValues, product } from "../abstraction/collections.ts";
import { elementCount, targetOf } from "../abstraction/computation.ts";
import { cutOff, type DType, epsilonOf, isInteger, rangeOf, wrap } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import type { Values } from "../abstraction/evaluate.ts";
import { interpretInPlace } from "../abstraction/interpret.ts";
import { type Intrinsic, operandTensor } from "../abstraction/intrinsic.ts";
import { pick, type Random, randomInteger } from "../abstraction/random.ts";

export interface ConformanceCase {
  readonly label: string;
  /** The values of all operands before the instruction, including the target, in row-major order. */
  readonly operands: Readonly<Record<string, Values>>;
  /** The target afterwards, according to the interpreter. */
  readonly expected: Values;
  /** The largest difference allowed for each result; undefined if results must be equal. */
  readonly bound: Values | undefined;
}

/** A way to fill the operands of a case. */
interface Recipe {
  readonly label: string;
  /** The value of an operand: input 0, input 1 ... or the target. */
  readonly fill: (dtype: DType, operand: number | "target", random: Random) => number;
  /** Whether every sum is exact, so that no difference is allowed. */
  readonly exact?: boolean;
}

export function casesOf(intrinsic: Intrinsic, random: Random): ConformanceCase[] {
  const { computation } = intrinsic;
  const sums = targetOf(computation).dtype;
  const terms = product(computation.axes.filter((a) => a.kind === "reduce").map((a) => a.extent));
  const moves = computation.equation.op === "=";
  const recipes = isInteger(sums)
    ? INTEGER_RECIPES
    : floatRecipes(intrinsic, sums, terms).filter((r) => r.label !== "subnormals" || intrinsic.subnormals === "kept");
  const epsilon = intrinsic.sumBits === undefined ? epsilonOf(sums) : cutOff(intrinsic.sumBits);
  const tiny = smallestNormal(sums) * (intrinsic.subnormals === "kept" ? epsilonOf(sums) : 1);

  return recipes.map(({ label, fill, exact }) => {
    const operands: Record<string, Values> = {};
    for (const [i, operand] of intrinsic.operands.entries()) {
      const values = new Float64Array(elementCount(operandTensor(intrinsic, operand)));
      operands[operand.name] = values.map(() =>
        wrap(operand.dtype, fill(operand.dtype, i === 0 ? "target" : i - 1, random)),
      );
    }
    const expected = runEquation(intrinsic, operands, (x) => x);
    if (isInteger(sums) || moves || exact) return { label, operands, expected, bound: undefined };
    // The equation on absolute values gives the sum of the terms' absolute values, including the old target.
    const bound = runEquation(intrinsic, operands, Math.abs).map((sum) => (terms + 1) * (epsilon * sum + tiny));
    return { label, operands, expected, bound };
  });
}

function runEquation(
  intrinsic: Intrinsic,
  operands: Readonly<Record<string, Values>>,
  change: (x: number) => number,
): Values {
  const values = mapValues(operands, (v) => v.map(change));
  interpretInPlace(intrinsic.computation, values);
  return values[targetOf(intrinsic.computation).name] ?? internal(`${intrinsic.name} has no result`);
}

/** The target takes the type's extremes together with the inputs, so that sums wrap or saturate in both directions. */
const INTEGER_RECIPES: readonly Recipe[] = [
  { label: "random", fill: anyInteger },
  { label: "random again", fill: anyInteger },
  { label: "small", fill: (dtype, _, random) => Math.max(randomInteger(random, -4, 4), rangeOf(dtype)[0]) },
  { label: "extremes", fill: extremeInteger },
  { label: "extremes again", fill: extremeInteger },
  { label: "zeros", fill: (dtype, operand, random) => (operand === "target" ? anyInteger(dtype, operand, random) : 0) },
  { label: "largest", fill: (dtype) => rangeOf(dtype)[1] },
  { label: "smallest", fill: (dtype, operand) => rangeOf(dtype)[operand === "target" ? 1 : 0] },
  { label: "largest by smallest", fill: (dtype, operand) => rangeOf(dtype)[operand === 0 ? 1 : 0] },
  { label: "smallest by largest", fill: (dtype, operand) => rangeOf(dtype)[operand === 1 ? 1 : 0] },
];

function anyInteger(dtype: DType, _: number | "target", random: Random): number {
  const [min, max] = rangeOf(dtype);
  return randomInteger(random, min, max);
}

function extremeInteger(dtype: DType, _: number | "target", random: Random): number {
  const [min, max] = rangeOf(dtype);
  return pick(random, [min, min + 1, Math.min(127, max), max - 1, max, 0, 1]);
}

function floatRecipes({ operands }: Intrinsic, sums: DType, terms: number): readonly Recipe[] {
  const sign = (random: Random): number => (random() < 0.5 ? -1 : 1);
  // Products of such values, summed with the target, stay within the type of the sum.
  const roof = rangeOf(sums)[1];
  const inputs = operands.slice(1).map(({ dtype }) => dtype);
  const whole = product(inputs.filter(isInteger).map((dtype) => rangeOf(dtype)[1] + 1));
  const most = roof / (2 * (terms + 1) * whole);
  const floats = inputs.filter((dtype) => !isInteger(dtype)).length;
  const large = (dtype: DType, operand: number | "target"): number =>
    operand === "target" ? roof / 4 : Math.min(rangeOf(dtype)[1], floats > 2 ? most ** (1 / floats) : Math.sqrt(most));
  return [
    { label: "small integers", fill: (_, __, random) => randomInteger(random, -4, 4), exact: true },
    { label: "signed zeros", fill: (_, __, random) => pick(random, [0, -0, 1, -1, 0.5]), exact: true },
    { label: "random", fill: (_, __, random) => 2 * random() - 1 },
    {
      label: "magnitudes",
      fill: (_, __, random) => sign(random) * (1 + random()) * 2 ** randomInteger(random, -6, 3),
    },
    { label: "large", fill: (dtype, operand, random) => sign(random) * large(dtype, operand) * (1 - random() / 8) },
    {
      label: "subnormals",
      fill: (dtype, _, random) =>
        sign(random) * (random() < 0.5 ? smallestNormal(dtype) * random() : 1 + Math.floor(4 * random())),
    },
  ];
}

/** 2^(1 - e), for a type whose largest value is just below 2^(e + 1). */
function smallestNormal(dtype: DType): number {
  const [, max] = rangeOf(dtype);
  return 2 ** (1 - Math.round(Math.log2(max / (2 - epsilonOf(dtype)))));
}
