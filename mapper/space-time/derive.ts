/**
 * @file Derives the recurrence of an equation: each operand is passed on along its reuse, each sum becomes a chain, and
 * the boundaries are computed.
 *
 *     out[c] += x[c+q] * w[q]     ->     X[c,q] = select(c == 0 or q == 4, x[c+q], X[c-1,q+1])
 *                                        W[c,q] = select(c == 0, w[q], W[c-1,q])
 *                                        OUT[c,q] = select(q == 0, 0, OUT[c,q-1]) + X[c,q] * W[c,q]
 *                                        out[c] = OUT[c,q] where q == 4
 *
 * A design reverses directions as it needs, and reads broadcast operands directly from the tensor.
 */

import { affineForm, boundsOf, type Extents, exprOf, extentsBy } from "../../abstraction/affine.ts";
import { hasName } from "../../abstraction/collections.ts";
import { type Computation, defineComputation, type TensorSpec, tensorOf } from "../../abstraction/computation.ts";
import { joined, type Truth } from "../../abstraction/condition.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  allOf,
  axis,
  compare,
  compareOp,
  type Equation,
  type Expr,
  identityOf,
  joinedBy,
  minus,
  number,
  printAccess,
  rewrite,
  select,
  substitute,
  substituteAccess,
  substituteEach,
} from "../../abstraction/expression.ts";
import { defineRecurrence, type Recurrence, type SourceLoop } from "../../abstraction/recurrence.ts";
import { type Design, type TimedVariable, timeSide } from "./design.ts";
import { chainFrom, outsideBox } from "./flow.ts";
import { weights } from "./place.ts";
import {
  type ArrayLoopOptions,
  type ArrayProblem,
  type ArraySpace,
  arrayProblem,
  arraySpace,
  extentsOfLoops,
  namedOperands,
  onlyInside,
} from "./problem.ts";
import { scaled, type Vector } from "./vector.ts";

/**
 * The recurrence of a computation on the loops of an array. Other loops run in sequence outside, and tensors are cut to
 * the part that one pass reads.
 * @throws UsageError if the computation has no uniform recurrence on these loops
 */
export function derive(computation: Computation, loops?: readonly string[]): Recurrence {
  return recurrenceOf(arrayPass(computation, loops ? { loops } : {}));
}

/** One pass through the array as a computation of its own, and the loops around it. */
export interface ArrayPass {
  readonly computation: Computation;
  readonly space: ArraySpace;
  readonly problem: ArrayProblem;
}

/** The loops that a systolic array places in space and time, and the dependences among them. */
export function arrayPass(computation: Computation, options: ArrayLoopOptions = {}): ArrayPass {
  const space = arraySpace(computation, options);
  const problem = arrayProblem(computation, space);
  return { computation: onePass(computation, space), space, problem };
}

/**
 * The computation of one pass. Loops outside are fixed, and dimensions that only they index are removed. If a condition
 * or a division needs their value, they are fixed at their middle, where the centre of a star is.
 */
function onePass(computation: Computation, space: ArraySpace): Computation {
  if (space.outside.length === 0 && space.dropped.length === 0) return computation;
  const still = new Map(
    computation.axes
      .filter((a) => !hasName(space.inside, a.name))
      .map((a) => [a.name, number(Math.floor(a.extent / 2))]),
  );
  const { equation } = computation;
  const extents = extentsBy(space.inside);
  const sliced = space.outside.length > 0;
  const accesses = [equation.target, ...accessesIn(equation.value)];
  const slices = new Map(accesses.map((a) => [a, a]));
  if (sliced) for (const a of accesses) slices.set(a, sliceOf(a, accesses, space.inside, still, extents));
  const change = (e: Expr): Expr => {
    if (e.kind !== "access") return e;
    const at = accesses.find((a) => printAccess(a) === printAccess(e));
    return (at && slices.get(at)) ?? e;
  };
  const target = change(equation.target);
  if (target.kind !== "access") internal("a target that is no access");
  const frozen: Equation = {
    target,
    op: equation.op,
    value: rewrite(equation.value, change, "value"),
  };
  const inner: Equation = {
    ...frozen,
    target: substituteAccess(frozen.target, still),
    value: substitute(frozen.value, still, "value"),
  };
  const where = equation.where && decided(substitute(equation.where, still, "index"));
  const specs = Object.fromEntries(
    [...new Set(accesses.map((a) => a.tensor))].map((name): [string, TensorSpec] => {
      const { dtype, dims, constant } = tensorOf(computation, name);
      return [name, { dtype, constant, ...(sliced ? {} : { shape: dims.map((d) => d.extent) }) }];
    }),
  );
  const whole = where === undefined || where === true ? inner : { ...inner, where: where === false ? NEVER : where };
  return defineComputation({ name: computation.name, equation: whole, extents, tensors: specs });
}

const NEVER = compare("==", 0, 1);

/** Evaluates the constant parts of a condition. */
function decided(condition: Expr): Truth {
  if (condition.kind === "logic") return joined(condition.op, decided(condition.left), decided(condition.right));
  if (condition.kind !== "compare") return condition;
  const { op, left, right } = condition;
  return left.kind === "number" && right.kind === "number" ? compareOp(op, left.value, right.value) : condition;
}

/** `in[n,c,p+r-1]` with n, c and tiles of p outside becomes `in[p+r]`: the part of the tensor that one pass reads. */
function sliceOf(
  of: Access,
  accesses: readonly Access[],
  inside: readonly SourceLoop[],
  still: ReadonlyMap<string, Expr>,
  extents: Extents,
): Access {
  const same = accesses.filter((a) => a.tensor === of.tensor).map((a) => substituteEach(a.index, still));
  const own = substituteEach(of.index, still);
  const moves = (d: number): boolean =>
    same.some((index) => inside.some((l) => affineForm(index[d] ?? number(0))?.terms.has(l.name) ?? true));
  const kept = own.map((_, d) => d).filter(moves);
  const index = kept.map((d) => {
    const least = Math.min(...same.map((other) => boundsOf(other[d] ?? number(0), extents)[0]));
    const shifted = minus(own[d] ?? number(0), least);
    const form = affineForm(shifted);
    return form ? exprOf(form) : shifted;
  });
  return access(of.tensor, index.length > 0 ? index : [number(0)]);
}

/**
 * The recurrence of one pass of `arrayPass`.
 * @param design its flows give the directions in which operands move
 * @throws Error when the design is of other loops than the pass
 */
export function recurrenceOf(
  { computation, space }: Pick<ArrayPass, "computation" | "space">,
  design?: Pick<Design, "name" | "flows">,
): Recurrence {
  // A computation with further loops, or a design of other loops, would give a recurrence, but a wrong one.
  const [has, wanted] = [computation.axes, space.inside].map((all) =>
    all
      .map((l) => `${l.name} ${l.extent}`)
      .toSorted()
      .join(),
  );
  if (has !== wanted)
    internal(`the loops of ${computation.name} are ${has}, those of the pass through the array ${wanted}`);
  const lengths = design?.flows.flatMap((f) => f.variables.flatMap((v) => v.dependences.map((d) => d.distance.length)));
  const other = lengths?.find((length) => length !== space.inside.length);
  if (other !== undefined)
    internal(`${design?.name} is a design of ${other} loops, the array has ${space.inside.length}`);
  return new Derivation(computation, design?.flows, space.inside).recurrence();
}

class Derivation {
  private readonly pass: Computation;
  private readonly loops: readonly SourceLoop[];
  private readonly problem: ArrayProblem;
  /** For each operand, the distances at which its variables are read. */
  private readonly distances: readonly (readonly TimedVariable[])[];

  constructor(pass: Computation, flows: Design["flows"] | undefined, loops: readonly SourceLoop[]) {
    this.pass = pass;
    this.loops = loops;
    this.problem = arrayProblem(pass, onlyInside(loops));
    // Without a design, loops run one after another, the innermost fastest.
    const inOrder = weights(extentsOfLoops({ loops }));
    this.distances = flows
      ? flows.map((f) => f.variables.map((v) => v.dependences))
      : timeSide(this.problem, [inOrder]).operands.map((o) => o.variables);
  }

  recurrence(): Recurrence {
    const { equation, name } = this.pass;
    const target = equation.target.tensor;
    const identity = number(identityOf(equation.op, tensorOf(this.pass, target).dtype));
    const { inputs, output, variables, sum, term } = namedOperands(this.pass, identity, (v) => this.at(v));
    const dtypes = Object.fromEntries(Object.values(this.pass.tensors).map((t) => [t.name, t.dtype]));

    // 1. Inputs, each passed on or loaded.
    const definitions: Equation[] = inputs.map((load, i) => {
      const variable = variables[i] ?? load.tensor;
      const tensor = tensorOf(this.pass, load.tensor);
      dtypes[variable] = tensor.dtype;
      const distances = this.distances[i]?.[0] ?? [];
      const value = chainFrom(this.loops, distances, load, (distance) => this.at(variable, distance));
      return { target: this.at(variable), op: "=", value };
    });

    // 2. The sum of terms, level by level. Without a sum the value leaves as it is.
    const levels = this.distances[inputs.length] ?? [];
    const fixed = this.problem.operands.at(-1)?.order === "fixed";
    let held = term;
    let variable = sum;
    if (fixed) definitions.push(this.selfReading(variable, held, target, identity));
    else {
      for (const [level, chain] of levels.entries()) {
        const own = levels.length > 1 ? `${sum}${level + 1}` : sum;
        variable = own;
        const before = chainFrom(this.loops, chain, identity, (distance) => this.at(own, distance));
        definitions.push({
          target: this.at(variable),
          op: "=",
          value: chain.length === 0 ? held : joinedBy(equation.op, before, held),
        });
        dtypes[variable] = tensorOf(this.pass, target).dtype;
        held = this.at(variable);
      }
    }
    dtypes[variable] = tensorOf(this.pass, target).dtype;
    const ends = fixed ? [] : levels.flat().map(({ along }) => outsideBox(this.loops, scaled(along, -1)));
    const result: Equation = { target: output, op: "=", value: this.at(variable) };
    const where = allOf(ends);
    const made = defineRecurrence({
      name,
      loops: this.loops,
      equations: [...definitions, where === undefined ? result : { ...result, where }],
      dtypes,
    });
    return { ...made, tensors: this.pass.tensors };
  }

  /** A user's recurrence: reads of the target become reads of the variable, and the identity beyond the border. */
  private selfReading(variable: string, value: Expr, target: string, identity: Expr): Equation {
    const distances = this.problem.operands.at(-1)?.reuse ?? [];
    let next = 0;
    const inside = rewrite(
      value,
      (e) => {
        if (e.kind !== "access" || e.tensor !== target) return e;
        const distance = distances[next++] ?? [];
        return select(outsideBox(this.loops, distance), identity, this.at(variable, distance));
      },
      "value",
    );
    return { target: this.at(variable), op: "=", value: inside };
  }

  /** `V[c-1,q]` */
  private at(variable: string, distance: Vector = []): Access {
    return access(
      variable,
      this.loops.map((l, i) => minus(axis(l.name), distance[i] ?? 0)),
    );
  }
}
