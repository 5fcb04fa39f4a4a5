/**
 * @file Folds a factor of each channel, as in batch norms, into the weights before the run.
 *
 *     out[n,k,p,q] += in[..] * w[k,c,r,s]                    out[n,k,p,q] += in[..] * w'[k,c,r,s]        w' = w * f[k]
 *     res[n,k,p,q] = max(out[..] * f[k] + b[k], 0)     ->    res[n,k,p,q] = max(out[..] + b[k], 0)
 */

import { product } from "../abstraction/collections.ts";
import { isInteger } from "../abstraction/dtype.ts";
import { type Access, accessesIn, type Expr, isSame, readsOf, rewrite, walk } from "../abstraction/expression.ts";
import type { Step } from "./network.ts";
import { rebuilt } from "./rebuild.ts";

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
