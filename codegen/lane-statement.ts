/**
 * @file The facts about a statement on lanes that every language needs: its conditions, the loops around it, and how it
 * updates its target.
 *
 *     tested([lane >= 4, x + lane - 4 >= 0, x + lane < 100])     [lane >= 4, x + lane < 100]
 *     pinnedLane(lane == t+1)                                     t+1
 */

import { boundsOf, type Extents, evaluateIndex, strideIn } from "../abstraction/affine.ts";
import { type Optional, present, upTo } from "../abstraction/collections.ts";
import { settled } from "../abstraction/condition.ts";
import { type DType, isInteger } from "../abstraction/dtype.ts";
import type { Equation } from "../abstraction/equation.ts";
import { internal } from "../abstraction/error.ts";
import {
  type Access,
  axesIn,
  axis,
  comparesElements,
  type Expr,
  minus,
  number,
  plus,
  printAccess,
  printExpr,
  substitute,
  testsElements,
  walk,
} from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest, Statement, VectorFile } from "../abstraction/loop-nest.ts";
import { axisName, block, type Code, code, Name, NOTHING } from "../abstraction/source-text.ts";
import type { DTypes } from "../abstraction/typing.ts";
import { allOf, type CExpressions } from "./c-expressions.ts";
import { extentsIn, type Loop, stepsOf } from "./walk.ts";

/** Whether a condition holds at every step of the loops, or fails at every one; undefined where its bounds decide neither. */
function decided(e: Expr, extents: Extents): boolean | undefined {
  if (e.kind === "logic") {
    const sides = [decided(e.left, extents), decided(e.right, extents)];
    const decisive = e.op === "or";
    if (sides.includes(decisive)) return decisive;
    return sides.includes(undefined) ? undefined : !decisive;
  }
  if (e.kind !== "compare" || comparesElements(e)) return undefined;
  return settled(e.op, ...boundsOf(minus(e.left, e.right), extents));
}

/** Whether a condition holds at every step of the loops. */
export const always = (e: Expr, extents: Extents): boolean => decided(e, extents) === true;

/** Whether a condition fails at every step of the loops. */
export const never = (e: Expr, extents: Extents): boolean => decided(e, extents) === false;

/** The lanes that satisfy the conditions on the lane alone. */
function lanesLeft(conditions: readonly Expr[], lane: string, extents: Extents): number[] {
  const alone = conditions.filter((e) => axesIn(e).join() === lane && !testsElements(e));
  const lanes = upTo(extents[lane] ?? 0);
  return lanes.filter((l) => alone.every((e) => evaluateIndex(e, { [lane]: l }) !== 0));
}

/**
 * The conditions that need a test: without duplicates, and without those that always hold, given the conditions on the
 * lane alone.
 *
 *     lane >= 4, x + lane - 4 >= 0, x + lane < 100, x + lane < 100    ->    lane >= 4, x + lane < 100
 */
export function tested(conditions: readonly Expr[], lane: string, extents: Extents): Expr[] {
  const isAlone = (e: Expr): boolean => axesIn(e).join() === lane && !testsElements(e);
  const left = lanesLeft(conditions, lane, extents);
  const [first = 0, last = first] = [left[0], left.at(-1)];
  const moved = new Map([[lane, plus(axis(lane), first)]]);
  const within = { ...extents, [lane]: last - first + 1 };
  const seen = new Set<string>();
  return conditions.filter((e) => {
    const text = printExpr(e);
    const idle = isAlone(e) ? left.length === extents[lane] : always(substitute(e, moved, "index"), within);
    if (idle || seen.has(text)) return false;
    seen.add(text);
    return true;
  });
}

/** The parallel loops around everything, outermost first, and their body. Other parallel loops run serially. */
export function dealtLoops(body: readonly Statement[]): {
  readonly dealt: readonly Loop[];
  readonly inner: readonly Statement[];
  readonly extents: Extents;
} {
  const dealt: Loop[] = [];
  let inner = body;
  for (;;) {
    const [only] = inner;
    if (inner.length !== 1 || only?.kind !== "loop" || only.mode !== "parallel") break;
    dealt.push(only);
    inner = only.body;
  }
  return { dealt, inner, extents: extentsIn(dealt) };
}

/**
 * The counter of each loop, computed from a number that counts all their steps: `const int m_tile = blockIdx.x / 16;`.
 */
export function dealtIndices(
  loops: readonly Loop[],
  from: Code,
  type: "int" | "long" = "int",
  nameOf: (axis: string) => Name = axisName,
): { readonly name: Name; readonly line: Code }[] {
  return loops.map(({ axis, extent }, i) => {
    const below = stepsOf(loops.slice(i + 1));
    const whole = below === 1 ? from : code`${from} / ${below}`;
    const name = nameOf(axis);
    return { name, line: code`const ${type} ${name} = ${i === 0 ? whole : code`${whole} % ${extent}`};` };
  });
}

/** All loops over lanes. */
export function laneLoops(body: readonly Statement[]): Loop[] {
  return body.flatMap((s) => (s.kind === "loop" && s.mode === "lanes" ? [s] : laneLoops(insideOf(s))));
}

/** The scalar statements of a nest. */
export function equationsIn(body: readonly Statement[]): Equation[] {
  return body.flatMap((s) => (s.kind === "scalar" ? [s.equation] : equationsIn(insideOf(s))));
}

function insideOf(s: Statement): readonly Statement[] {
  if (s.kind === "when") return [...s.body, ...s.otherwise];
  return s.kind === "loop" ? s.body : [];
}

/** Conditions that are the same on every lane, and the others. */
export function split(conditions: readonly Expr[], lane: string): [uniform: Expr[], varying: Expr[]] {
  const varies = (e: Expr): boolean => axesIn(e).includes(lane);
  return [conditions.filter((e) => !varies(e)), conditions.filter(varies)];
}

/** The lane that `lane == n` selects. */
export function pinnedLane(e: Expr, lane: string): Expr | undefined {
  if (e.kind !== "compare" || e.op !== "==") return undefined;
  if (e.left.kind === "axis" && e.left.name === lane && !axesIn(e.right).includes(lane)) return e.right;
  const factor = strideIn(minus(e.left, e.right), lane);
  if (factor !== 1 && factor !== -1) return undefined;
  const rest = substitute(minus(e.left, e.right), new Map([[lane, number(0)]]), "index");
  return factor === 1 ? minus(0, rest) : rest;
}

/**
 * The only lane that satisfies the conditions, alone or together (`lane/8 == 0`, `lane%8 == 3`); "none" if no lane
 * does.
 */
export function onlyLane(conditions: readonly Expr[], lane: string, extents: Extents): Expr | "none" | undefined {
  const named = conditions.map((e) => pinnedLane(e, lane)).find((e) => e !== undefined);
  if (named) return named;
  const [only, ...others] = lanesLeft(conditions, lane, extents);
  if (only === undefined) return "none";
  return others.length > 0 ? undefined : number(only);
}

/** The value combined with the target's previous value, as one expression. */
export function joinedValue({ target, op, value }: Equation): Expr {
  switch (op) {
    case "=":
      return value;
    case "+=":
      return { kind: "binary", op: "+", left: target, right: value };
    case "max=":
    case "min=":
      return { kind: "call", fn: op === "max=" ? "max" : "min", args: [target, value] };
    case "sat+=":
      return internal("lanes do not saturate");
    default:
      return op satisfies never;
  }
}

/** The target's previous value combined with a scalar, as C. */
export function joinScalars(c: CExpressions, op: Equation["op"], held: Code, scalar: Code, dtype: DType): Code {
  switch (op) {
    case "=":
      return scalar;
    case "+=":
      if (dtype === "f16" || dtype === "bf16")
        return code`@to_${dtype}(@from_${dtype}(${held}) + @from_${dtype}(${scalar}))`;
      return c.words.overflowIsUndefined && dtype === "s32"
        ? code`(int32_t)((uint32_t)(${held}) + (uint32_t)(${scalar}))`
        : code`${held} + ${scalar}`;
    case "max=":
      return c.words.called("most", [C_TYPES[dtype]], [held, scalar]);
    case "min=":
      return c.words.called("least", [C_TYPES[dtype]], [held, scalar]);
    case "sat+=":
      return internal("lanes do not saturate");
    default:
      return op satisfies never;
  }
}

/** A register named as `[register, lane]`. */
export interface LaneAccess {
  readonly file: VectorFile;
  readonly register: number;
  readonly lane: Expr;
}

/** The register that an access names; undefined for memory. */
export function registerIn(nest: LoopNest, { tensor, index }: Access): LaneAccess | undefined {
  const file = nest.vectors?.find((v) => v.name === tensor);
  if (!file) return undefined;
  const [register, lane] = index;
  if (register?.kind !== "number" || lane === undefined || register.value < 0 || register.value >= file.count)
    internal(`register of ${printAccess({ kind: "access", tensor, index })} is not known`);
  return { file, register: register.value, lane };
}

/** `Z0`, or `Z0_1` where a vector takes several registers. */
export function registerName(file: string, register: number, part = 0, parts = 1): Name {
  const word = `${file}${register}`;
  return new Name("register", parts === 1 ? word : `${word}_${part}`, `${file} ${register} ${part}`);
}

/** Lines under a condition, as a block if they declare something. */
export function guarded(conditions: readonly Optional<Code>[], lines: readonly Code[], inBlock = false): Code[] {
  const tests = present(conditions);
  const test = tests.length === 0 ? NOTHING : code`if (${allOf(tests)}) `;
  const [only] = lines;
  if (lines.length === 1 && only !== undefined && !inBlock) return [code`${test}${only}`];
  if (tests.length === 0 && !inBlock) return [...lines];
  return block(code`${test}{`, lines);
}

/** The factors of a product, or of a square. */
export function factorsIn(e: Expr): readonly [Expr, Expr] | undefined {
  if (e.kind === "binary" && e.op === "*") return [e.left, e.right];
  return e.kind === "call" && e.fn === "square" && e.args[0] ? [e.args[0], e.args[0]] : undefined;
}

/**
 * Whether lanes compute some product that takes an instruction of its own: in floats one that something is added to, as the fused multiply-add does;
 * in integers any. A sum of bare elements, and a maximum of sums, have none. A factor that is a constant may become an addition or a shift.
 */
export function multiplies(body: readonly Statement[], dtypes: DTypes): boolean {
  return body.some((s) => {
    if (s.kind === "loop") return multiplies(s.body, dtypes);
    if (s.kind === "when") return multiplies(s.body, dtypes) || multiplies(s.otherwise, dtypes);
    if (s.kind !== "scalar") return false;
    const isWhole = isInteger(dtypes[s.equation.target.tensor] ?? "f32");
    return [...walk(joinedValue(s.equation))].some((e) =>
      isWhole
        ? isProduct(e)
        : e.kind === "binary" &&
          (e.op === "+" || e.op === "-") &&
          [e.left, e.right].some((side) => isProduct(taken(side))),
    );
  });
}

const isProduct = (e: Expr): boolean => factorsIn(e)?.every((factor) => factor.kind !== "number") ?? false;

/** What is added where a condition holds: the condition masks the addition. */
const taken = (e: Expr): Expr => (e.kind === "select" ? e.whenTrue : e);
