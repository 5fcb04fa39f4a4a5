/**
 * @file Error propagation: how far a value may move if some of the elements that it reads are known only approximately.
 *
 *     a[i] * b[i]           |a| * b_off + |b| * a_off + a_off * b_off
 *     exp(a[i])             exp(a + a_off) - exp(a)                            the farther of the two ends
 */

import { isInteger } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { accessesIn, type BinaryOp, type Expr, number } from "../../abstraction/expression.ts";
import { binary, call, inDoubles } from "../size.ts";

/**
 * @param inexact by name, tensors whose elements are known to within those of another
 * @returns undefined where it does not move
 */
export function deviationOf(e: Expr, inexact: ReadonlyMap<string, string>): Expr | undefined {
  const of = (part: Expr): Expr | undefined => deviationOf(part, inexact);
  if (!accessesIn(e).some(({ tensor }) => inexact.has(tensor))) return undefined;
  switch (e.kind) {
    case "access":
      return { ...e, tensor: inexact.get(e.tensor) ?? e.tensor };
    case "cast":
      return isInteger(e.dtype) ? farthest(e, [e.value], (value) => ({ ...e, value }), of) : of(e.value);
    case "negate":
      return of(e.value);
    case "binary":
      return ofBinary(e.op, e.left, e.right, of);
    case "call": {
      const [first = internal(`${e.fn} without arguments`), second] = e.args;
      if (e.fn === "abs" || e.fn === "sin" || e.fn === "cos") return of(first);
      if (e.fn === "min" || e.fn === "max") return larger(of(first), second && of(second));
      if (e.fn === "square") return ofBinary("*", first, first, of);
      return farthest(e, e.args, (...args) => ({ ...e, args }), of);
    }
    case "select": {
      const whenTrue = of(e.whenTrue) ?? number(0);
      return { ...e, whenTrue, whenFalse: of(e.whenFalse) ?? number(0) };
    }
    case "number":
    case "axis":
    case "border":
    case "compare":
    case "logic":
      return internal("what has no elements does not move");
    default:
      return e satisfies never;
  }
}

type Of = (e: Expr) => Expr | undefined;

function ofBinary(op: BinaryOp, left: Expr, right: Expr, of: Of): Expr | undefined {
  const [first, second] = [of(left) ?? number(0), of(right) ?? number(0)];
  const size = (e: Expr): Expr => call("abs", inDoubles(e));
  switch (op) {
    case "+":
    case "-":
      return binary("+", first, second);
    case "*": {
      const each = binary("+", binary("*", size(left), second), binary("*", size(right), first));
      return binary("+", each, binary("*", first, second));
    }
    case "/": {
      const quotient = binary("/", size(left), size(right));
      const least = call("max", binary("-", size(right), second), number(0));
      return binary("/", binary("+", first, binary("*", quotient, second)), least);
    }
    default:
      internal(`nothing bounds how far ${op} moves`);
  }
}

/** Of a function that is monotone in each argument: the farther of its values at the corners. */
function farthest(there: Expr, args: readonly Expr[], at: (...args: Expr[]) => Expr, of: Of): Expr {
  const isRoot = there.kind === "call" && (there.fn === "log" || there.fn === "sqrt");
  const corners = args.reduce<Expr[][]>(
    (all, arg) => {
      const off = of(arg);
      const middle = inDoubles(arg);
      if (!off) return all.map((before) => [...before, middle]);
      const low = binary("-", middle, off);
      const ends = [isRoot ? call("max", low, number(0)) : low, binary("+", middle, off)];
      return all.flatMap((before) => ends.map((end) => [...before, end]));
    },
    [[]],
  );
  const value = inDoubles(there);
  const wide = (e: Expr): Expr => ({ kind: "cast", dtype: "f64", saturate: false, value: e });
  return corners
    .map((corner) => call("abs", binary("-", wide(at(...corner)), value)))
    .reduce((a, b) => call("max", a, b));
}

const larger = (a: Expr | undefined, b: Expr | undefined): Expr | undefined => (a && b ? call("max", a, b) : (a ?? b));
