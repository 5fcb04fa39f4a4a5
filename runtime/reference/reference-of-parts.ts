/**
 * @file The reference of a program of several computations: the results that it stores, and the error bound of each.
 *
 *     y0 = x0 - x1      off by its own rounding
 *     y1 = exp(y0)      off by its own rounding, and by as much as exp moves where y0 is off
 *
 * An equation rounds as if what it reads were exact (error-bound.ts); what it reads moves it: how far, if some of
 * the elements are known only approximately, is error propagation.
 *
 *     a[i] * b[i]           |a| * b_off + |b| * a_off + a_off * b_off
 *     exp(a[i])             exp(a + a_off) - exp(a)                            the farther of the two ends
 */

import { unique } from "../../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  outputOf,
  type Tensor,
  tensorOf,
} from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { accessesIn, type BinaryOp, type Expr, number, walk } from "../../abstraction/expression.ts";
import { KEPT, madeBy } from "../../abstraction/program.ts";
import { encodeElements } from "../bytes.ts";
import { binary, call, inDoubles } from "../size.ts";
import { drawInputs } from "./draw-inputs.ts";
import { boundOf, type Evaluate, toleranceOf } from "./error-bound.ts";
import {
  checkedIn,
  evaluatorWith,
  fromMemory,
  inputsOfSizes,
  type Reference,
  type ReferenceOptions,
  type ReferenceSet,
  tells,
  toMemory,
} from "./verify.ts";

/** Integers, and fractions between -1 and 1: larger numbers overflow in functions and squares. */
const SETS = ["exact", "random"] as const;

/** Why the program's results cannot be bounded; undefined where they can. */
export function unboundedIn({ name, program }: Computation): string | undefined {
  const { parts = [] } = program ?? {};
  const made = new Set(parts.map(madeBy));
  const tested = parts.find(({ computation, names }) =>
    [computation.equation, computation.epilogue?.equation]
      .flatMap((equation) => (equation ? [...walk(equation.value)] : []))
      .filter((e) => e.kind === "compare" || (e.kind === "binary" && e.op === "%"))
      .some((e) => accessesIn(e).some((read) => made.has(names[read.tensor] ?? ""))),
  );
  return tested && `${name} tests what it has rounded before`;
}

/** @throws UsageError where wrong results would pass */
export async function referenceOfParts(
  computation: Computation,
  seed: number,
  options: ReferenceOptions,
): Promise<Reference> {
  const because = unboundedIn(computation);
  if (because !== undefined) throw new UsageError(because);
  const output = outputOf(computation);
  const { stored = [] } = computation.program ?? {};
  // Times are taken on inputs of the first sets, which are those of the value that is stored last.
  const tensors = unique([output.name, ...stored]).map((name) => tensorOf(computation, name));
  const sets = new Map(tensors.map((tensor): [Tensor, ReferenceSet[]] => [tensor, []]));
  const made = new Set((computation.program?.parts ?? []).map(madeBy));
  const fixed = Object.fromEntries(
    inputsOf(computation)
      .filter(({ name }) => name === KEPT || made.has(name))
      .map((tensor) => [tensor.name, new Float64Array(elementCount(tensor))]),
  );
  for (const name of SETS) {
    const { signal } = options;
    const inputs = await drawInputs(computation, name, { large: 1, seed, fixed, scale: undefined, signal });
    const known = await valuesOf(computation, inputs, options);
    const held = Object.fromEntries(
      inputsOf(computation).map((tensor) => {
        const memory = toMemory(tensor, inputs[tensor.name] ?? []);
        return [tensor.name, encodeElements(tensor.dtype, memory)];
      }),
    );
    for (const [tensor, own] of sets) {
      const { values, off = values.map(() => 0) } =
        known.get(tensor.name) ?? internal(`nothing makes ${tensor.name}, which is stored`);
      if (!tells(values, off)) continue;
      own.push({
        name,
        ...(tensor !== output && { of: tensor }),
        inputs: held,
        expected: toMemory(tensor, values),
        tolerance: toMemory(tensor, off),
      });
    }
  }
  for (const [{ name }, own] of sets)
    if (own.length === 0)
      throw new UsageError(
        `${computation.name} cannot be verified: rounding of ${name} may differ by as much as the answers do`,
      );
  return { computation, sets: [...sets.values()].flat(), checked: checkedIn(output) };
}

/** What is known of a tensor, row-major. */
interface Known {
  readonly values: Values;
  /** How far each element may be off; left out where all are exact. */
  readonly off?: Values;
}

/** What each computation of a program makes of the program's inputs, by name. */
async function valuesOf(
  computation: Computation,
  inputs: Readonly<Record<string, Float64Array>>,
  options: ReferenceOptions,
): Promise<ReadonlyMap<string, Known>> {
  const evaluate = evaluatorWith(options);
  const known = new Map<string, Known>();
  for (const part of computation.program?.parts ?? []) {
    const { sum, epilogue } = partsOf(part.computation);
    const nameOf = (tensor: string): string => part.names[tensor] ?? `${madeBy(part)}_sum`;
    for (const one of epilogue ? [sum, epilogue] : [sum]) {
      const read = inputsOf(one).map((tensor): [string, Known] => {
        const name = nameOf(tensor.name);
        // Of what the program reads, parts may have other views of the same memory.
        const given = (): Values => fromMemory(tensor, toMemory(tensorOf(computation, name), inputs[name] ?? []));
        return [tensor.name, known.get(name) ?? { values: given() }];
      });
      known.set(nameOf(outputOf(one).name), await computed(one, new Map(read), evaluate));
    }
  }
  return known;
}

/** What an equation makes of what it reads. */
async function computed(one: Computation, read: ReadonlyMap<string, Known>, evaluate: Evaluate): Promise<Known> {
  const { equation, tensors } = one;
  const inputs = Object.fromEntries([...read].map(([name, { values }]) => [name, values]));
  const values = await evaluate(one, inputs);
  const bound = await boundOf(one, evaluate);
  const sizes = bound && (await evaluate(bound.magnitude, inputsOfSizes(bound, inputs)));
  const offs = [...read].flatMap(([name, { off }]) => (off ? [{ name, off, called: `${name}_off` }] : []));
  const moved = deviationOf(equation.value, new Map(offs.map(({ name, called }) => [name, called])));
  if (!bound && !moved) return { values };
  const wide = Object.values(tensors).map((tensor): Tensor => ({ ...tensor, dtype: "f64" }));
  const all = [
    ...wide,
    ...offs.flatMap(({ name, called }) => wide.filter((t) => t.name === name).map((t) => ({ ...t, name: called }))),
  ];
  const op = equation.op === "max=" || equation.op === "min=" ? "max=" : equation.op;
  const handed =
    moved &&
    (await evaluate(
      {
        ...one,
        name: `${one.name} (moved)`,
        equation: { ...equation, op, value: moved },
        tensors: Object.fromEntries(all.map((tensor) => [tensor.name, tensor])),
      },
      { ...inputs, ...Object.fromEntries(offs.map(({ called, off }) => [called, off])) },
    ));
  const off = values.map((value, i) => {
    const own = bound && sizes ? toleranceOf(bound, bound.terms[i] ?? 1, sizes[i] ?? 0, value) : 0;
    return Number.isFinite(value) ? own + (handed?.[i] ?? 0) : 0;
  });
  return { values, off };
}

/**
 * @param inexact by name, tensors whose elements are known to within those of another
 * @returns undefined where it does not move
 */
function deviationOf(e: Expr, inexact: ReadonlyMap<string, string>): Expr | undefined {
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
