/**
 * @file Folds what a step multiplies or divides its sums by into its constants before the run.
 *
 * 1. A factor of each channel, as in batch norms, into the weights:
 *
 *     out[n,k,p,q] += in[..] * w[k,c,r,s]                    out[n,k,p,q] += in[..] * w'[k,c,r,s]        w' = w * f[k]
 *     res[n,k,p,q] = max(out[..] * f[k] + b[k], 0)     ->    res[n,k,p,q] = max(out[..] + b[k], 0)
 *
 * 2. The divisor of a rounded value, as in QuantizeLinear, into the factors of the step:
 *
 *     round(max(f32(out[..]) * f[k] + b[k], 0) / 0.05)      ->      round(max(f32(out[..]) * f'[k] + b'[k], 0))        f' = f / 0.05
 */

import { isDefined, product } from "../abstraction/collections.ts";
import { isInteger } from "../abstraction/dtype.ts";
import { type Access, accessesIn, type Expr, isSame, readsOf, rewrite, walk } from "../abstraction/expression.ts";
import { rebuilt } from "../abstraction/rebuild.ts";
import type { Step } from "./network.ts";
import type { Value } from "./value.ts";

// ---- factors ------------------------------------------------------------------------------------------------------------------------

/** The step with the factor folded into its weights; unchanged when it has none or the weights are not known. */
export function scaledWeights(step: Step): Step {
  const { computation, reads } = step;
  const { epilogue, equation } = computation;
  if (!epilogue || equation.op !== "+=" || isInteger(epilogue.sum.dtype)) return step;
  const found = factorOf(epilogue.equation.value, epilogue.sum.name);
  if (!found) return step;
  const { factor, sum } = found;
  const [along] = factor.index;
  const place = sum.index.findIndex((e) => along && isSame(e, along));
  const target = equation.target.index[place];
  const scale = reads[factor.tensor];
  const isReadAgain = readsOf(epilogue.equation.value, factor.tensor).length > found.occurrences;
  if (!target || !scale?.constant || factor.index.length !== 1 || isReadAgain) return step;
  const weights = accessesIn(equation.value).find((a) => {
    const value = reads[a.tensor];
    return value?.constant !== undefined && value.type === scale.type && a.index.some((e) => isSame(e, target));
  });
  const value = weights && reads[weights.tensor];
  if (!weights || !value?.constant || readsOf(equation.value, weights.tensor).length > 1) return step;
  const dimension = weights.index.findIndex((e) => isSame(e, target));
  const inner = product(value.shape.slice(dimension + 1));
  const size = value.shape[dimension] ?? 1;
  const factors = scale.constant;
  const scaled = value.constant.map((x, i) => x * (factors[Math.floor(i / inner) % size] ?? 0));
  const finish = {
    ...epilogue.equation,
    value: rewrite(
      epilogue.equation.value,
      (e) => (e === found.product || isSame(e, found.product) ? sum : e),
      "value",
    ),
  };
  const { [factor.tensor]: _, ...others } = reads;
  return {
    ...step,
    computation: rebuilt(computation, { epilogue: finish }),
    reads: { ...others, [weights.tensor]: { ...value, name: `${value.name}.scaled`, constant: scaled } },
  };
}

interface Factored {
  readonly product: Expr;
  /** How often the product is there: after a hard swish twice. */
  readonly occurrences: number;
  readonly sum: Access;
  readonly factor: Access;
}

/** The factor: a product of the sum with an element of one tensor, where the sum is read nowhere else. */
function factorOf(value: Expr, sum: string): Factored | undefined {
  let found: { product: Expr; sum: Access; factor: Access } | undefined;
  rewrite(
    value,
    (e) => {
      if (e.kind !== "binary" || e.op !== "*" || e.left.kind !== "access" || e.right.kind !== "access") return e;
      const [own, other] = e.left.tensor === sum ? [e.left, e.right] : [e.right, e.left];
      if (own.tensor === sum && other.tensor !== sum) found = { product: e, sum: own, factor: other };
      return e;
    },
    "value",
  );
  if (!found) return undefined;
  const { product } = found;
  const occurrences = [...walk(value)].filter((e) => isSame(e, product)).length;
  const isEverywhere = readsOf(value, sum).length === occurrences;
  return isEverywhere ? { ...found, occurrences } : undefined;
}

// ---- divisors -----------------------------------------------------------------------------------------------------------------------

/** The step without the division; unchanged when it has none, or when a term has no known factor. */
export function withoutDivision(step: Step): Step {
  const { computation, reads } = step;
  const { epilogue } = computation;
  if (!epilogue) return step;
  const scaled = new Map<string, Value>();
  let found = false;
  const value = rewrite(
    epilogue.equation.value,
    (e) => {
      const term = dividedIn(e);
      if (!term) return e;
      const without = divided(term.value, term.by, step);
      if (!without) return e;
      found = true;
      for (const [name, tensor] of without.scaled) scaled.set(name, tensor);
      return { ...term.round, args: [without.expr] };
    },
    "value",
  );
  if (!found) return step;
  return {
    ...step,
    computation: rebuilt(computation, { epilogue: { ...epilogue.equation, value } }),
    reads: { ...reads, ...Object.fromEntries(scaled) },
  };
}

/** `round(value / by)` with a constant `by` above 0. */
function dividedIn(e: Expr): { round: Extract<Expr, { kind: "call" }>; value: Expr; by: number } | undefined {
  if (e.kind !== "call" || e.fn !== "round") return undefined;
  const [arg] = e.args;
  if (arg?.kind !== "binary" || arg.op !== "/" || arg.right.kind !== "number" || !(arg.right.value > 0))
    return undefined;
  return { round: e, value: arg.left, by: arg.right.value };
}

/** An expression divided by a number, and the tensors whose elements are divided. */
interface Divided {
  readonly expr: Expr;
  readonly scaled: ReadonlyMap<string, Value>;
}

/** Divides an expression through its factors and terms; undefined when one of them is known only at run time. */
function divided(e: Expr, by: number, step: Step): Divided | undefined {
  const inner = (part: Expr): Divided | undefined => divided(part, by, step);
  switch (e.kind) {
    case "number":
      return e.value >= 0 ? { expr: { ...e, value: Math.fround(e.value / by) }, scaled: new Map() } : undefined;
    case "access": {
      const value = scaledTensor(e.tensor, by, step);
      return value && { expr: e, scaled: new Map([[e.tensor, value]]) };
    }
    case "call": {
      if (e.fn !== "max" && e.fn !== "min") return undefined;
      const args = e.args.map(inner).filter(isDefined);
      if (args.length !== e.args.length) return undefined;
      return { expr: { ...e, args: args.map(({ expr }) => expr) }, scaled: together(args) };
    }
    case "binary": {
      const left = inner(e.left);
      const right = inner(e.right);
      // A product is divided in one factor, a sum in every term.
      if (e.op === "*" && right) return { ...right, expr: { ...e, right: right.expr } };
      if (e.op === "*") return left && { ...left, expr: { ...e, left: left.expr } };
      if ((e.op !== "+" && e.op !== "-") || !left || !right) return undefined;
      return { expr: { ...e, left: left.expr, right: right.expr }, scaled: together([left, right]) };
    }
    default:
      return undefined;
  }
}

const together = (parts: readonly Divided[]): ReadonlyMap<string, Value> =>
  new Map(parts.flatMap(({ scaled }) => [...scaled]));

/** A tensor divided by a number, if it is a known f32 tensor that is read once. */
function scaledTensor(name: string, by: number, { computation, reads }: Step): Value | undefined {
  const { equation, epilogue } = computation;
  const value = reads[name];
  const times = [equation, ...(epilogue ? [epilogue.equation] : [])].flatMap((part) =>
    readsOf(part.value, name),
  ).length;
  if (!value?.constant || value.type !== "f32" || times !== 1) return undefined;
  return { ...value, name: `${value.name}.scaled`, constant: value.constant.map((x) => x / by) };
}
