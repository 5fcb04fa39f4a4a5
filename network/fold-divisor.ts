/**
 * @file A division of what is rounded, as QuantizeLinear has it, multiplied into the factors before the run.
 *
 *     round(max(f32(out[..]) * f[k] + b[k], 0) / 0.05)      ->      round(max(f32(out[..]) * f'[k] + b'[k], 0))        f' = f / 0.05
 */

import { accessesIn, type Expr, rewrite } from "../abstraction/expression.ts";
import { numbersFor } from "./numbers.ts";
import type { Step } from "./program.ts";
import { computationWith, specOf } from "./rebuild.ts";
import type { Value } from "./value.ts";

/** The step without the division; the same where it has none, or a term has no factor that is known. */
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
      const without = divided(term.value, term.by, step, scaled);
      if (!without) return e;
      found = true;
      return { ...term.round, args: [without] };
    },
    "value",
  );
  if (!found) return step;
  const tensors = Object.fromEntries(
    Object.entries(computation.tensors).map(([name, tensor]) => [name, specOf(tensor)] as const),
  );
  return {
    ...step,
    computation: computationWith(computation, {
      epilogue: { ...epilogue.equation, value },
      tensors: { ...tensors, [epilogue.sum.name]: specOf(epilogue.sum, false) },
    }),
    reads: { ...reads, ...Object.fromEntries(scaled) },
  };
}

/** `round(value / by)`, by a number above 0. */
function dividedIn(e: Expr): { round: Extract<Expr, { kind: "call" }>; value: Expr; by: number } | undefined {
  if (e.kind !== "call" || e.fn !== "round") return undefined;
  const [arg] = e.args;
  if (arg?.kind !== "binary" || arg.op !== "/" || arg.right.kind !== "number" || !(arg.right.value > 0))
    return undefined;
  return { round: e, value: arg.left, by: arg.right.value };
}

/** The expression over a number, in its factors and terms; undefined where one of them is known only when the network runs. */
function divided(e: Expr, by: number, step: Step, scaled: Map<string, Value>): Expr | undefined {
  const inner = (part: Expr): Expr | undefined => divided(part, by, step, scaled);
  switch (e.kind) {
    case "number":
      return e.value >= 0 ? { ...e, value: Math.fround(e.value / by) } : undefined;
    case "access":
      return scaledTensor(e.tensor, by, step, scaled) ? e : undefined;
    case "call": {
      if (e.fn !== "max" && e.fn !== "min") return undefined;
      const args = e.args.map(inner).filter((part) => part !== undefined);
      return args.length === e.args.length ? { ...e, args } : undefined;
    }
    case "binary": {
      if (e.op === "*") {
        const right = inner(e.right);
        if (right) return { ...e, right };
        const left = inner(e.left);
        return left && { ...e, left };
      }
      if (e.op !== "+" && e.op !== "-") return undefined;
      const [left, right] = [inner(e.left), inner(e.right)];
      return left && right && { ...e, left, right };
    }
    default:
      return undefined;
  }
}

/** Whether a tensor is known, of f32, and read once: it is divided then. */
function scaledTensor(name: string, by: number, { computation, reads }: Step, scaled: Map<string, Value>): boolean {
  const { equation, epilogue } = computation;
  const value = reads[name];
  const times = [equation.value, ...(epilogue ? [epilogue.equation.value] : [])]
    .flatMap((part) => accessesIn(part))
    .filter(({ tensor }) => tensor === name).length;
  if (!value?.constant || value.type !== "f32" || times !== 1 || scaled.has(name)) return false;
  const constant = numbersFor(value.type, value.constant.length, value.name);
  for (let i = 0; i < constant.length; i++) constant[i] = (value.constant[i] ?? 0) / by;
  scaled.set(name, { ...value, name: `${value.name}.scaled`, constant });
  return true;
}
