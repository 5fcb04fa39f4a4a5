/**
 * @file Draws the inputs that kernels are checked with: small integers, arbitrary numbers, or numbers that provoke
 * saturation. The seed determines all of them.
 *
 *     await drawInputs(matmul, "extreme", { large: 1e4, seed: 1, fixed: {} })     { a: [127, -128, ...], b: ... }
 */

import { setImmediate } from "node:timers/promises";
import { type Computation, elementCount, inputsOf, tensorOf } from "../../abstraction/computation.ts";
import { type DType, epsilonOf, isInteger, rangeOf, wrap } from "../../abstraction/dtype.ts";
import {
  accessesIn,
  axesIn,
  comparesElements,
  type Expr,
  number,
  outermostAccessesIn,
  rewriteReads,
  walk,
} from "../../abstraction/expression.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";

/**
 * The inputs that only say which elements are meant, as indices that are read and elements that a `where` compares do,
 * with the least and the largest number drawn: one beyond what is inside.
 */
export function decidingInputs(computation: Computation): ReadonlyMap<string, readonly [number, number]> {
  const { equation, tensors, axes } = computation;
  const ends = new Map<string, readonly [number, number]>();
  const reach = (tensor: string, high: number): void => {
    const [, before] = ends.get(tensor) ?? [-1, 0];
    ends.set(tensor, [-1, Math.max(before, high)]);
  };
  for (const { tensor, index } of accessesIn(equation.value))
    for (const [d, e] of index.entries())
      for (const read of accessesIn(e)) reach(read.tensor, tensors[tensor]?.dims[d]?.extent ?? 0);
  for (const e of equation.where ? walk(equation.where) : []) {
    if (e.kind !== "compare" || !comparesElements(e)) continue;
    const extents = axes.filter((a) => axesIn(withoutReads(e)).includes(a.name)).map((a) => a.extent);
    const numbers = [e.left, e.right].flatMap((side) => (side.kind === "number" ? [side.value] : []));
    for (const read of accessesIn(e)) reach(read.tensor, Math.max(...extents, ...numbers, 0) + 1);
  }
  for (const read of outermostAccessesIn(equation.value)) ends.delete(read.tensor);
  return new Map(
    [...ends].map(([name, [low, high]]) => {
      const [least, most] = rangeOf(tensorOf(computation, name).dtype);
      return [name, [Math.max(low, least), Math.min(high, most)]];
    }),
  );
}

/** Values of {@link decidingInputs}, row-major. The device draws all others, from the whole range of their type. */
export function drawnIndices(computation: Computation, seed: number): Record<string, Float64Array> {
  const random = seededRandom(seed);
  return Object.fromEntries(
    [...decidingInputs(computation)].map(([name, ends]) => {
      const tensor = tensorOf(computation, name);
      return [name, Float64Array.from({ length: elementCount(tensor) }, () => randomInteger(random, ...ends))];
    }),
  );
}

const withoutReads = (e: Expr): Expr => rewriteReads(e, () => number(0));

/** Integers whose sums are exact, arbitrary numbers, or the largest and smallest numbers. */
export type SetName = "exact" | "random" | "extreme";

/**
 * Draws the inputs of a set, in memory order. Many elements take seconds, so it yields to the event loop now and then.
 * @throws the reason of the signal
 */
export async function drawInputs(
  computation: Computation,
  name: SetName,
  { large, seed, fixed, scale = 1, signal }: Drawing,
): Promise<Record<string, Float64Array>> {
  const random = seededRandom(seed * 3 + { exact: 0, random: 1, extreme: 2 }[name]);
  const { time } = computation;
  const compared = new Set(
    [...walk(computation.equation.value)]
      .filter((e) => e.kind === "compare" && comparesElements(e))
      .flatMap((e) => accessesIn(e).map((a) => a.tensor)),
  );
  const divides = [...walk(computation.equation.value)].some(
    (e) => e.kind === "binary" && (e.op === "/" || e.op === "%"),
  );
  const deciding = decidingInputs(computation);
  const drawn: Record<string, Float64Array> = {};
  for (const tensor of inputsOf(computation)) {
    const given = fixed[tensor.name];
    if (given) {
      drawn[tensor.name] = Float64Array.from(given);
      continue;
    }
    const ends = deciding.get(tensor.name);
    // Coefficients of time steps multiply at every step. Large ones would overflow, so fractions are drawn as small as
    // the bound requires.
    const isCoefficient = time !== undefined && tensor.name !== time.first && name !== "exact";
    // Compared elements are drawn from few values. From the whole range, hardly any two would be equal.
    const drawOne = ends
      ? (): number => randomInteger(random, ...ends)
      : compared.has(tensor.name)
        ? (): number => randomInteger(random, 0, LETTERS - 1)
        : DRAW[isCoefficient ? "random" : name][isInteger(tensor.dtype) ? "integer" : "float"](
            tensor.dtype,
            large,
            random,
          );
    drawn[tensor.name] = await drawElements(elementCount(tensor), signal, () => {
      const value = wrap(tensor.dtype, drawOne());
      // Division by nearly zero would give infinities and NaN.
      return (divides && Math.abs(value) < 0.5 ? 1 : value) * (isCoefficient ? scale : 1);
    });
  }
  return drawn;
}

/** Draws `count` elements, yielding to the event loop now and then. @throws the reason of the signal */
export async function drawElements(
  count: number,
  signal: AbortSignal | undefined,
  draw: () => number,
): Promise<Float64Array> {
  const values = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    if (i % DRAWN_AT_ONCE === 0 && i > 0) await turn(signal);
    values[i] = draw();
  }
  return values;
}

export interface Drawing {
  /** The largest value in an extreme set. */
  readonly large: number;
  readonly seed: number;
  readonly fixed: Inputs;
  readonly scale: number | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Elements between two turns of the event loop, in which Ctrl-C is handled: a few hundredths of a second. */
const DRAWN_AT_ONCE = 2 ** 19;

/** Yields to the event loop. @throws the reason of the signal */
export async function turn(signal: AbortSignal | undefined): Promise<void> {
  await setImmediate();
  signal?.throwIfAborted();
}

/** The number of letters in sequences that are compared, as in DNA. */
const LETTERS = 4;

type Draw = (dtype: DType, large: number, random: Random) => () => number;

const DRAW: Readonly<Record<SetName, { readonly integer: Draw; readonly float: Draw }>> = {
  exact: {
    integer: (dtype, _, random) => {
      const [[least], small] = [rangeOf(dtype), smallInteger(dtype, random)];
      return () => Math.max(least, small());
    },
    float: (dtype, _, random) => smallInteger(dtype, random),
  },
  random: {
    integer: (dtype, _, random) => {
      const [min, max] = rangeOf(dtype);
      return () => randomInteger(random, min, max);
    },
    float: (_dtype, _large, random) => () => 2 * random() - 1,
  },
  extreme: {
    integer: (dtype, _, random) => {
      const [min, max] = rangeOf(dtype);
      // Most are the largest or the smallest value. Two such neighbours saturate a sum of two products.
      const drawn = [max, max, max, max, min, min, min, max - 1, min + 1, 1];
      return () => pick(random, drawn);
    },
    float: (dtype, large, random) => {
      const [, most] = rangeOf(dtype);
      const sizes = [large, large, 1, 2 ** -6, 0];
      return () => {
        const size = pick(random, sizes);
        return (random() < 0.5 ? -1 : 1) * Math.min(size * (0.5 + random() / 2), most);
      };
    },
  },
};

/** Sums are exact up to 2048 in f16 and 256 in bf16. */
function smallInteger(dtype: DType, random: Random): () => number {
  const most = epsilonOf(dtype) > 2 ** -12 ? 1 : 3;
  return () => randomInteger(random, -most, most);
}
