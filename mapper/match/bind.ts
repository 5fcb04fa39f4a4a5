/**
 * @file Matches the arithmetic of a computation against that of an instruction, node by node.
 *
 *     s32(in[..]) * s32(w[..])    against    s32(a[m,k]) * s32(b[k,n])
 *       ->  { a: in[..], b: w[..] }   and, the product being commutative,   { a: w[..], b: in[..] }  where types allow
 *
 * An operand may stand for any expression of its type, not only for a tensor: `square(x[c,l] - mean[c])` is computed
 * during packing. A product of three or more factors is divided among the operands in every possible way.
 *
 *     f32(a[m,128*g+k]) * f32(b[n,128*g+k]) * s[m,g]    against    f32(a[m,k]) * f32(b[k,n])
 *       ->  { a: a[..], b: b[..] }   and a scale s[m,g], by which a kernel multiplies the sum over each k
 *
 * Factors besides those of an instruction that can begin a sum anew are a scale. No loop of the scale feeds the instruction's sum.
 */

import { affineForm } from "../../abstraction/affine.ts";
import { defined, memoised, memoisedPair, volumeOf } from "../../abstraction/collections.ts";
import { type Computation, extentsOf, identityIn, targetOf, tensorOf } from "../../abstraction/computation.ts";
import { rangeOf, wrap } from "../../abstraction/dtype.ts";
import { areDigits, leavesAlong } from "../../abstraction/elements.ts";
import {
  access,
  accessesIn,
  accessesOf,
  axesIn,
  type Expr,
  operandsOf,
  printExpr,
} from "../../abstraction/expression.ts";
import { type Intrinsic, operandOf } from "../../abstraction/intrinsic.ts";
import type { Binding, Refusal, Rule } from "../../abstraction/mapping.ts";
import { type DTypes, dtypesOf, typeOf } from "../../abstraction/typing.ts";
import { valueRange } from "../../abstraction/value-range.ts";

interface Bindings {
  /** Bindings in the order of the text, then those with commuted operands. */
  readonly bindings: readonly Binding[];
  readonly refusals: readonly Refusal[];
}

/** Every way the instruction's operands can stand for parts of the computation, or the reason why there is none. */
export function bindOperands(computation: Computation, intrinsic: Intrinsic, commute: boolean): Bindings {
  const refuse = (rule: Rule, because: string, hint?: string): Bindings => ({
    bindings: [],
    refusals: [defined({ rule, because, matching: {}, hint })],
  });
  const software = computation.equation;
  const hardware = intrinsic.computation.equation;

  // 1. Computations that are not contractions.
  if (
    accessesOf(software)
      .slice(1)
      .some((a) => a.tensor === software.target.tensor)
  ) {
    return refuse(
      "recurrence",
      `${software.target.tensor} reads itself: its points depend on one another in order`,
      "use a space-time design",
    );
  }
  const unmatched = unmatchedForm(intrinsic);
  if (unmatched !== undefined) return refuse("expression", unmatched.because, unmatched.hint);

  // 2. The targets, then the values.
  const target = targetOf(computation);
  const held = operandOf(intrinsic, hardware.target.tensor);
  if (target.dtype !== held.dtype) {
    return refuse(
      "operand-types",
      `${held.name} of ${intrinsic.name} is ${held.dtype}, ${target.name} is ${target.dtype}`,
      `sum in ${held.dtype}`,
    );
  }
  const combine = combineProblem(computation, intrinsic);
  if (combine !== undefined) return refuse("combine", combine);
  const types = dtypesOf(Object.values(computation.tensors));
  const operands = dtypesOf(intrinsic.operands);
  const matcher = new Matcher(types, operands, intrinsic.name, commute);
  const start: Binding = { [held.name]: access(software.target.tensor, software.target.index) };
  const { core } = scaledParts(computation, intrinsic);
  const found = matcher.match(core, hardware.value, start);
  const different = found.filter((b, i) => found.findIndex((other) => bindingText(other) === bindingText(b)) === i);
  const bindings = different.filter((b) => outsideProblem(computation, intrinsic, b) === undefined);
  if (bindings.length > 0) return { bindings, refusals: [] };
  const [unfit] = different;
  const outside = unfit && outsideProblem(computation, intrinsic, unfit);
  if (outside !== undefined) return refuse("padding", outside);
  const failure = matcher.bestFailure ?? {
    rule: "expression" as const,
    because: `${printExpr(software.value)} is not ${printExpr(hardware.value)}`,
  };
  return refuse(failure.rule, failure.because, failure.hint);
}

/**
 * The factors of an equation that an instruction multiplies, and the others, by which sums of it are scaled: those that are no cast of what the
 * instruction takes, of an instruction that can begin a sum anew. All is the instruction's where none or all of it is a scale, or the scale is a number.
 */
function scaledParts(
  { equation, tensors }: Pick<Computation, "equation" | "tensors">,
  intrinsic: Intrinsic,
): { readonly core: Expr; readonly scale: Expr | undefined } {
  const whole = { core: equation.value, scale: undefined };
  if (intrinsic.begin === undefined || equation.op !== "+=") return whole;
  const types = dtypesOf(Object.values(tensors));
  const taken = intrinsic.operands.slice(1).map((operand) => operand.dtype);
  const isTaken = (e: Expr): boolean => {
    const dtype = e.kind === "cast" ? typeOf(e.value, types) : undefined;
    return dtype !== undefined && taken.includes(dtype);
  };
  const factors = operandsOf(equation.value, "*");
  const core = factors.filter(isTaken);
  const others = factors.filter((e) => !isTaken(e));
  const isRead = others.length > 0 && others.every((e) => accessesIn(e).length > 0);
  return core.length === 0 || !isRead ? whole : { core: join(core, "*"), scale: join(others, "*") };
}

/** What a kernel multiplies sums of the instruction by before it adds them to others; undefined where the instruction computes all. */
export const scaleOf = memoisedPair(
  (computation: Computation, intrinsic: Intrinsic): Expr | undefined => scaledParts(computation, intrinsic).scale,
);

/**
 * Why the form of an instruction cannot be matched against any equation; undefined when each operand is indexed by axes
 * of its own.
 */
function unmatchedForm({
  name,
  computation,
}: Intrinsic): { readonly because: string; readonly hint?: string } | undefined {
  const { equation } = computation;
  const accesses = accessesOf(equation);
  for (const a of accesses) {
    const used = a.index.flatMap((e) => (e.kind === "axis" ? [e.name] : []));
    const twice = used.find((axis, i) => used.indexOf(axis) !== i);
    if (twice !== undefined)
      return {
        because: `${a.tensor} of ${name} is a diagonal, indexed by ${twice} twice: only plain indices are matched`,
      };
    const crooked = a.index.find((e) => e.kind !== "axis");
    if (crooked === undefined) continue;
    const axes = axesIn(crooked);
    const text = printExpr(crooked, "index");
    if (axes.length > 1)
      return {
        because: `${a.tensor} of ${name} is indexed by ${text}, a window over ${axes.join(" and ")}: only plain indices are matched`,
      };
    // An axis with one step adds no position: the lanes are the same in another order, or a subset.
    return {
      because: `${name} moves data between lanes, it is not matched against an equation`,
      hint: "space-time designs use it",
    };
  }
  if (equation.where === undefined) return undefined;
  return {
    because: `${name} computes only where ${printExpr(equation.where)}: only instructions without a condition are matched`,
  };
}

/** `a=in; b=w`: part of a mapping's identity. */
export const bindingText = memoised((binding: Binding): string => {
  const parts = Object.entries(binding).map(([operand, bound]) => `${operand}=${printExpr(bound)}`);
  return parts.join("; ");
});

/** Largest magnitude the sum of a computation can reach, from the ranges of its types; undefined for floats. */
function sumBound(computation: Computation): number | undefined {
  const types = dtypesOf(Object.values(computation.tensors));
  const range = valueRange(computation.equation.value, types);
  if (!range) return undefined;
  // When several kept points join one element, each clamps the result. Only a bound on their total makes their order
  // irrelevant.
  const joined = computation.axes.filter((a) => a.kind === "reduce" || !targetShows(computation, a.name));
  const terms = volumeOf(joined);
  return Math.max(Math.abs(range[0]), Math.abs(range[1])) * terms;
}

/** Whether no two points write the same element. */
function writesOnce(computation: Computation): boolean {
  return computation.axes.every((a) => targetShows(computation, a.name));
}

/**
 * Whether the target's index determines the step of a loop: `k` and `g` in `out[g*16+k]` when k has at most 16 steps.
 */
function targetShows(computation: Computation, loop: string): boolean {
  const extents = extentsOf(computation);
  return computation.equation.target.index.some((e) => {
    const terms = [...(affineForm(e)?.terms ?? [])];
    return areDigits(terms, extents) && terms.some(([name]) => name === loop);
  });
}

/** Plain and saturating sums agree when no sum can leave the type. All other operations must be identical. */
function combineProblem(computation: Computation, intrinsic: Intrinsic): string | undefined {
  const wanted = computation.equation.op;
  const given = intrinsic.computation.equation.op;
  const target = targetOf(computation);
  if (wanted === "=" && given === "=" && !writesOnce(computation))
    return `several points assign one element of ${target.name} and the last wins; ${intrinsic.name} would change their order`;
  if (wanted === given && wanted !== "sat+=") return undefined;
  const additive = (op: string): boolean => op === "+=" || op === "sat+=";
  if (!additive(wanted) || !additive(given))
    return `the equation combines with ${wanted}, ${intrinsic.name} with ${given}`;
  const bound = sumBound(computation);
  const limit = rangeOf(target.dtype)[1];
  if (bound !== undefined && bound <= limit) return undefined;
  const reach = bound === undefined ? "without a known bound" : `of up to ${bound}`;
  if (wanted === "sat+=")
    return `the equation clamps its whole sum once, ${intrinsic.name} ${given === "+=" ? "never clamps" : "clamps after every issue"}; a sum ${reach} may pass ${limit}`;
  return `${intrinsic.name} saturates, the equation wraps; a sum ${reach} may pass ${limit}`;
}

/**
 * A read outside the tensor yields the combine's identity, which an operand of a narrower type may be unable to hold.
 */
function outsideProblem(computation: Computation, intrinsic: Intrinsic, binding: Binding): string | undefined {
  const identity = identityIn(computation);
  const extents = extentsOf(computation);
  for (const [operand, bound] of Object.entries(binding).slice(1)) {
    const { dtype } = operandOf(intrinsic, operand);
    if (wrap(dtype, identity) === identity) continue;
    const outside = accessesIn(bound).find((a) => leavesAlong(a, tensorOf(computation, a.tensor), extents).length > 0);
    if (outside)
      return `reading outside ${outside.tensor} gives ${identity}, which ${operand} of ${intrinsic.name}, ${dtype}, does not hold`;
  }
  return undefined;
}

interface Failure {
  readonly rule: Rule;
  readonly because: string;
  readonly hint?: string;
}

class Matcher {
  /** The failure that came closest to a match: a wrong operand type is closer than a different operation. */
  bestFailure: Failure | undefined;
  private readonly software: DTypes;
  private readonly hardware: DTypes;
  private readonly name: string;
  private readonly commute: boolean;

  constructor(software: DTypes, hardware: DTypes, name: string, commute: boolean) {
    this.software = software;
    this.hardware = hardware;
    this.name = name;
    this.commute = commute;
  }

  match(software: Expr, hardware: Expr, binding: Binding): Binding[] {
    switch (hardware.kind) {
      case "access":
        return this.bind(software, hardware.tensor, binding);
      case "cast": {
        if (software.kind === "cast" && software.dtype === hardware.dtype && software.saturate === hardware.saturate) {
          const literal = this.unfitLiteral(software.value, hardware.value);
          if (literal !== undefined) {
            this.fail("operand-types", literal);
            return [];
          }
          return this.match(software.value, hardware.value, binding);
        }
        const operand = hardware.value.kind === "access" ? hardware.value.tensor : undefined;
        if (operand !== undefined) this.failType(operand, software);
        else this.fail("expression", `${printExpr(software)} is not a cast to ${hardware.dtype}`);
        return [];
      }
      case "binary": {
        if (software.kind !== "binary" || software.op !== hardware.op) {
          this.fail("expression", `${this.name} computes ${printExpr(hardware)}, the equation ${printExpr(software)}`);
          return [];
        }
        const op = hardware.op;
        return this.splits(software, op).flatMap(([left, right]) =>
          this.match(left, hardware.left, binding).flatMap((b) => this.match(right, hardware.right, b)),
        );
      }
      default: {
        if (printExpr(software) === printExpr(hardware)) return [binding];
        this.fail("expression", `${this.name} computes ${printExpr(hardware)}, the equation ${printExpr(software)}`);
        return [];
      }
    }
  }

  private bind(software: Expr, operand: string, binding: Binding): Binding[] {
    const before = binding[operand];
    if (before !== undefined) return printExpr(before) === printExpr(software) ? [binding] : [];
    const dtype = typeOf(software, this.software);
    if (dtype !== undefined && dtype !== this.hardware[operand]) {
      this.failType(operand, software);
      return [];
    }
    return [{ ...binding, [operand]: software }];
  }

  /** A literal under a cast is exact in the equation, but an operand of a narrower type would hold another value. */
  private unfitLiteral(software: Expr, hardware: Expr): string | undefined {
    if (hardware.kind !== "access" || typeOf(software, this.software) !== undefined) return undefined;
    const dtype = this.hardware[hardware.tensor];
    if (dtype === undefined || (software.kind === "number" && wrap(dtype, software.value) === software.value))
      return undefined;
    return `${hardware.tensor} of ${this.name} is ${dtype}, which does not hold ${printExpr(software)}`;
  }

  /**
   * The ways to assign the two sides of an operation, as written first, then commuted where the operation allows it.
   */
  private splits(e: Extract<Expr, { kind: "binary" }>, op: string): (readonly [Expr, Expr])[] {
    if (op !== "*" && op !== "+") return [[e.left, e.right]];
    const parts = operandsOf(e, op);
    const whole = (1 << parts.length) - 1;
    const splits: (readonly [Expr, Expr])[] = [];
    for (let left = 1; left < whole; left++) {
      const pick = (chosen: boolean): Expr[] => parts.filter((_, i) => (((left >> i) & 1) === 1) === chosen);
      splits.push([join(pick(true), op), join(pick(false), op)]);
    }
    return this.commute
      ? splits
      : splits.filter(([left]) => parts[0] !== undefined && operandsOf(left, op)[0] === parts[0]);
  }

  private failType(operand: string, software: Expr): void {
    const inner = software.kind === "cast" ? software.value : software;
    const dtype = typeOf(inner, this.software) ?? "a literal";
    const wanted = this.hardware[operand] ?? "?";
    this.fail(
      "operand-types",
      `${operand} of ${this.name} is ${wanted}, ${printExpr(inner)} is ${dtype}`,
      `give ${wanted} data`,
    );
  }

  private fail(rule: Rule, because: string, hint?: string): void {
    if (this.bestFailure === undefined || (this.bestFailure.rule === "expression" && rule === "operand-types")) {
      this.bestFailure = defined({ rule, because, hint });
    }
  }
}

function join(parts: readonly Expr[], op: "*" | "+"): Expr {
  return parts.reduce((left, right) => ({ kind: "binary", op, left, right }));
}
