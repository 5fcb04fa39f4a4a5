/**
 * @file Folds the divisor of a rounded value, as in QuantizeLinear, into the factors of the step before the run.
 *
 *     round(max(f32(out[..]) * f[k] + b[k], 0) / 0.05)      ->      round(max(f32(out[..]) * f'[k] + b'[k], 0))        f' = f / 0.05
 */

import { isDefined } from "../abstraction/collections.ts";
import { type Expr, readsOf, rewrite } from "../abstraction/expression.ts";
import type { Step } from "./network.ts";
import { rebuilt } from "./rebuild.ts";
import type { Value } from "./value.ts";

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
