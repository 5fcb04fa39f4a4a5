/**
 * @file Validates one matching: the result is a mapping, or the rule it breaks, where, and a change that would help.
 *
 *     validate(problem, { m: ["n", "k"], n: ["k"], k: ["c"] })
 *       ->  matched-twice: k feeds both m and n
 *     validate(problem, { m: ["n", "k"], n: [], k: ["c"] })
 *       ->  access-matrix: w depends on k, but the instruction does not index b by m
 *
 * The enumeration rule of AMOS: a mapping is a union of match points.
 *
 * A match point feeds each axis of the instruction by one loop and holds all other loops at their first step. Every
 * operand read must then be indexed by exactly the instruction's axes. Added constants and positive factors are
 * ignored, but `const - x` is not allowed, a window `p + r` with both loops mapped is not a plain index, and a diagonal
 * `x[k,k]` has two. So p and r, or q and s, never feed a mapping together:
 *
 *     conv2d on a matrix product    7 points: (n,k,c) (n,k,r) (n,k,s) (p,k,c) (p,k,s) (q,k,c) (q,k,r)      35 unions
 *
 * Source: AMOS, ISCA 2022, and its released matcher; the axes must be fed by disjoint sets of loops here.
 */

import { createHash } from "node:crypto";
import { bitAt, booleanProduct } from "../../abstraction/binary-matrix.ts";
import { memoised, namesOf, unique, withName } from "../../abstraction/collections.ts";
import { type Axis, extentsOf } from "../../abstraction/computation.ts";
import { internal, suggestion, UsageError } from "../../abstraction/error.ts";
import { accessesIn, axesIn, type Expr, printExpr } from "../../abstraction/expression.ts";
import {
  boundLabel,
  type Mapping,
  type Matching,
  printMatching,
  type Refusal,
  type Rule,
  type Verdict,
  type Witness,
} from "../../abstraction/mapping.ts";
import { type Disagreement, disagreementsWithX, matchingMatrix } from "./access.ts";
import { conditionParts, conditionProblem } from "./conditions.ts";
import { fusedExtent, leavesAlone, loopsOfReadIndices, loopsOfScale, type Problem, wasteOf } from "./problem.ts";
import { findWitness } from "./witness.ts";

/** Which matches are mappings: `gather`, every valid set of loops; `amos`, unions of match points. */
export type EnumerationRule = "amos" | "gather";

interface ValidateOptions {
  readonly rule: EnumerationRule;
  /** Refuse a fused extent smaller than the instruction's instead of padding it. */
  readonly strict: boolean;
}

/** Validates one matching. @throws UsageError when it names an axis or loop that does not exist */
export function validate(problem: Problem, given: Matching, { rule, strict }: ValidateOptions): Verdict {
  const { intrinsic, axes, x, z } = problem;
  const matching = normaliseMatching(problem, given);
  const refuse: Refuse = (broken, because, more = {}) => ({
    ok: false,
    refusal: { rule: broken, because, matching, ...more },
  });
  // 1. Each loop at most once, and kept to kept, summed to summed.
  const kind = kindProblem(problem, matching, refuse);
  if (kind) return kind;

  const fed = Object.values(matching).flat();
  const jumping = fed.find((loop) => loopsOfReadIndices(problem.computation.equation.value).has(loop));
  if (jumping !== undefined)
    return refuse(
      "expression",
      `an index that depends on ${jumping} is read from a tensor: an instruction moves with its loops`,
      hintFor(problem, jumping),
    );
  const scaling = scalingLoop(problem, matching);
  if (scaling !== undefined)
    return refuse(
      "expression",
      `the scale of a sum depends on ${scaling}: it must be the same for all that ${intrinsic.name} sums at once`,
      { hint: "give groups a loop of their own, as g and k of a[m,128*g+k]" },
    );

  // 2. The access matrices, on the mapped loops.
  const y = matchingMatrix(problem.computation, intrinsic, matching);
  const differing = disagreementsWithX(x, y, booleanProduct(z, y));
  if (differing.length > 0) return refuseAccess(problem, matching, differing);

  // 3. Axes left empty although a loop could feed them: one that feeds nothing, or one that feeds its axis together
  //    with others.
  const alone = new Set(axes.filter((a) => matching[a.name]?.length === 1).flatMap((a) => matching[a.name] ?? []));
  for (const axis of axes) {
    const free = (problem.feeders[axis.name] ?? []).filter((l) => !alone.has(l));
    if (matching[axis.name]?.length === 0 && free.length > 0) {
      return refuse("unfed-axis", `nothing feeds axis ${axis.name}, though ${free.join(", ")} could`, {
        hint: `try ${axis.name} <- ${free.join(",")}`,
      });
    }
  }

  // 4. Conditions, and padding of summed axes.
  const condition = conditionProblem(problem, conditionParts(problem, Object.values(matching).flat()));
  if (condition !== undefined) return refuse("condition", condition);
  const padding = paddingProblem(problem, matching, refuse);
  if (padding) return padding;

  // 5. The rule of the enumeration, and extents.
  if (rule === "amos") {
    const because = matchPointProblem(problem, matching);
    if (because !== undefined)
      return refuse("match-point", because, { hint: "the gather rule allows it: the operand is packed" });
  }
  const extent = strict ? extentProblem(problem, matching, refuse) : undefined;
  if (extent) return extent;
  return { ok: true, mapping: mappingBy(problem, matching) };
}

/** The mapping of a match that is known to be valid. */
export function mappingBy(problem: Problem, matching: Matching): Mapping {
  const { computation, intrinsic, binding, digest } = problem;
  const text = printMatching(matching, "; ");
  const id = createHash("sha256").update(`${digest}\n${text}`).digest("hex").slice(0, 12);
  return { id, computation, intrinsic, binding, matching, waste: wasteOf(problem, matching) };
}

/** A loop by which the scale of a sum moves, and which feeds an axis, or is all that could feed the sum. */
function scalingLoop(problem: Problem, matching: Matching): string | undefined {
  const moving = loopsOfScale(problem);
  const summed = namesOf(problem.axes.filter((a) => a.kind === "reduce"));
  const isFed = summed.some((axis) => matching[axis]?.length !== 0);
  return moving.find((loop) => !isFed || Object.values(matching).flat().includes(loop));
}

type Refuse = (broken: Rule, because: string, more?: Partial<Refusal>) => Verdict;

/** Refuses a loop matched twice, or a kept loop matched with a summed axis or vice versa. */
function kindProblem(problem: Problem, matching: Matching, refuse: Refuse): Verdict | undefined {
  const { intrinsic, loops, axes } = problem;
  for (const loop of loops) {
    const fed = namesOf(axes.filter((a) => matching[a.name]?.includes(loop.name)));
    if (fed.length > 1)
      return refuse("matched-twice", `${loop.name} feeds both ${fed.join(" and ")}`, {
        hint: "a loop may feed one axis",
      });
  }
  for (const axis of axes) {
    for (const loopName of matching[axis.name] ?? []) {
      const loop = withName(loops, loopName) ?? internal(`no axis ${loopName}`);
      if (loop.kind !== axis.kind) {
        const is = (a: Axis): string => (a.kind === "reduce" ? "summed" : "kept");
        return refuse(
          "axis-kind",
          `${loop.name} is ${is(loop)}, axis ${axis.name} of ${intrinsic.name} is ${is(axis)}`,
          hintFor(problem, loop.name),
        );
      }
    }
  }
  return undefined;
}

/** Refuses a summed axis that must be padded when no value leaves the result unchanged. */
function paddingProblem(problem: Problem, matching: Matching, refuse: Refuse): Verdict | undefined {
  const { axes, x, z } = problem;
  for (const axis of axes) {
    const fused = fusedExtent(problem, matching, axis.name);
    const padded = x.rows.filter((row) => row !== x.rows.at(-1) && bitAt(z, row, axis.name) === 1);
    if (axis.kind === "reduce" && fused % axis.extent !== 0 && !leavesAlone(problem, padded)) {
      return refuse(
        "padding",
        `${axis.name} would be padded from ${fused} to a multiple of ${axis.extent}, and no operand value leaves the result alone`,
      );
    }
  }
  return undefined;
}

/** Refuses a fused extent smaller than the instruction's. */
function extentProblem(problem: Problem, matching: Matching, refuse: Refuse): Verdict | undefined {
  const { axes, intrinsic } = problem;
  for (const axis of axes) {
    const fused = fusedExtent(problem, matching, axis.name);
    if (fused < axis.extent) {
      const padding = (100 * (1 - fused / axis.extent)).toFixed(0);
      const sources = matching[axis.name]?.join("*") || "no loop";
      return refuse(
        "extent",
        `${sources} is ${fused}, ${intrinsic.name} wants ${axis.extent} of ${axis.name} (padding ${padding} %)`,
        { hint: "without --strict it is padded" },
      );
    }
  }
  return undefined;
}

/**
 * The matching with every axis present and each loop once, in the given order, the last loop fastest. @throws
 * UsageError naming what does not exist
 */
function normaliseMatching({ computation, intrinsic, axes, loops }: Problem, given: Matching): Matching {
  const check = (name: string, known: readonly Axis[], missing: string): void => {
    const names = namesOf(known);
    if (!names.includes(name)) throw new UsageError(`${missing} "${name}"`, suggestion(name, names));
  };
  for (const [axis, fed] of Object.entries(given)) {
    check(axis, axes, `${intrinsic.name} has no axis`);
    for (const loop of fed) check(loop, loops, `${computation.name} has no loop`);
  }
  return Object.fromEntries(axes.map((a) => [a.name, unique(given[a.name] ?? [])]));
}

function hintFor({ feeders }: Problem, loop: string): { hint?: string } {
  const allowed = Object.entries(feeders)
    .filter(([, loops]) => loops.includes(loop))
    .map(([axis]) => axis);
  return { hint: allowed.length > 0 ? `${loop} may feed ${allowed.join(" or ")}` : `${loop} stays an outer loop` };
}

/**
 * Refuses a match whose matrices disagree. The reason named is an operand that gets a wrong element and makes an output
 * wrong; failing that, a loop without effect, or an operand that would be right but hold the same element many times.
 */
function refuseAccess(problem: Problem, matching: Matching, differing: readonly Disagreement[]): Verdict {
  const { intrinsic, computation, binding, x } = problem;
  const extents = extentsOf(computation);
  const refuse = (
    rule: Rule,
    { row, column }: Pick<Disagreement, "row" | "column">,
    say: (label: string, axis: string) => string,
    witness?: Witness,
  ): Verdict => {
    const bound = binding[row];
    const label = bound === undefined ? row : boundLabel(bound);
    const axis = Object.keys(matching).find((a) => matching[a]?.includes(column)) ?? "?";
    const place = { row: label === row ? row : `${label} (${row})`, column };
    const refusal: Refusal = { rule, because: say(label, axis), matching, place, ...hintFor(problem, column) };
    return { ok: false, refusal: witness === undefined ? refusal : { ...refusal, witness } };
  };
  const moving = differing.filter(({ column }) => extents[column] !== 1);
  const astray = moving.find(({ row, column }) => bitAt(x, row, column) === 1);
  const [first] = differing;
  if (first === undefined) internal("the access matrices agree");
  const search = findWitness(problem, matching);
  const wrong = search.found ? { row: search.operand, column: search.loop } : search.whole ? undefined : astray;
  if (wrong)
    return refuse(
      "access-matrix",
      wrong,
      (label, axis) =>
        `${label} depends on ${wrong.column}, but ${intrinsic.name} does not index ${wrong.row} by ${axis}`,
      search.found,
    );
  if (astray)
    return refuse(
      "idle-loop",
      astray,
      (_, axis) => `${astray.column} has no step that changes a result, so feeding it to ${axis} gains nothing`,
    );
  const [copied] = moving;
  if (copied)
    return refuse(
      "copies",
      copied,
      (label, axis) =>
        `${label} does not depend on ${copied.column}, but ${intrinsic.name} indexes ${copied.row} by ${axis}: it would hold each element ${extents[copied.column]} times`,
    );
  return refuse(
    "idle-loop",
    first,
    (_, axis) => `${first.column} has one step, so feeding it to ${axis} would do nothing`,
  );
}

// ---- match points -------------------------------------------------------------------------------------------------------------------------

/** Why a valid gather is not a union of match points; undefined when it is one. */
function matchPointProblem(problem: Problem, matching: Matching): string | undefined {
  const fed = Object.entries(matching).filter(([, loops]) => loops.length > 0);
  for (const [axis, loops] of fed) {
    const others = fed.filter(([name]) => name !== axis);
    for (const loop of loops) {
      const flaws = combinations(others, { [axis]: loop }).map((point) => matchPointFlaw(problem, point));
      if (flaws.includes(undefined)) continue;
      const partners = others.map(([name, l]) => `${name} <- ${l.join(",")}`).join(", ");
      return `no match point feeds ${axis} by ${loop} beside ${partners}: ${flaws[0]}`;
    }
  }
  return undefined;
}

/** Why, at a match point, some operand read is not indexed by exactly the axes that the instruction indexes it by. */
function matchPointFlaw(problem: Problem, point: Readonly<Record<string, string>>): string | undefined {
  const mapped = new Map(Object.entries(point).map(([axis, loop]) => [loop, axis]));
  for (const operand of problem.x.rows.slice(0, -1)) {
    const bound = problem.binding[operand];
    if (bound === undefined) return `${operand} stands for nothing`;
    const wanted = new Set(Object.keys(point).filter((axis) => bitAt(problem.z, operand, axis) === 1));
    for (const { e, text } of distinctIndices(bound)) {
      const loops = relaxedLoops(e, mapped);
      const [loop, second] = loops ?? axesIn(e).filter((name) => mapped.has(name));
      if (loops === undefined) return `${text} is not a plain index of ${loop}`;
      if (second !== undefined) return `${text} is a window over ${loop} and ${second}, not a plain index`;
      if (loop === undefined) continue;
      if (!wanted.delete(mapped.get(loop) ?? "")) return `${boundLabel(bound)} has two indices of ${loop}`;
    }
    const [missing] = wanted;
    if (missing !== undefined) return `${boundLabel(bound)} has no index of ${point[missing]}`;
  }
  return undefined;
}

/**
 * Mapped loops in an index, ignoring added constants and positive factors and divisors; undefined when the index is not
 * plain, because a loop has a negative factor or is under a remainder.
 */
function relaxedLoops(e: Expr, mapped: ReadonlyMap<string, string>): string[] | undefined {
  switch (e.kind) {
    case "number":
      return [];
    case "axis":
      return mapped.has(e.name) ? [e.name] : [];
    case "binary": {
      const left = relaxedLoops(e.left, mapped);
      const right = relaxedLoops(e.right, mapped);
      if (!left || !right) return undefined;
      if (e.op === "%" && left.length > 0) return undefined;
      if (e.op === "-" && right.length > 0) return undefined;
      const isNegative = [e.left, e.right].some((side) => side.kind === "number" && side.value < 0);
      if (e.op === "*" && isNegative && left.length + right.length > 0) return undefined;
      return [...left, ...right];
    }
    case "negate": {
      const inner = relaxedLoops(e.value, mapped);
      return inner?.length === 0 ? inner : undefined;
    }
    default:
      return undefined;
  }
}

/** An index of an operand, and its text in a refusal. */
interface Index {
  readonly e: Expr;
  readonly text: string;
}

/**
 * The distinct indices of an operand's expression, cached for all points: one that several reads share counts once,
 * `x[k,k]` has two.
 */
const distinctIndices = memoised((bound: Expr): readonly Index[] => {
  const byText = new Map<string, Index[]>();
  for (const { index } of accessesIn(bound)) {
    const texts = index.map((e) => ({ e, text: printExpr(e, "index") }));
    for (const { text } of texts) {
      const own = texts.filter((other) => other.text === text);
      if (own.length > (byText.get(text)?.length ?? 0)) byText.set(text, own);
    }
  }
  return [...byText.values()].flat();
});

function combinations(
  rest: readonly (readonly [string, readonly string[]])[],
  chosen: Readonly<Record<string, string>>,
): Readonly<Record<string, string>>[] {
  const [first, ...others] = rest;
  if (!first) return [chosen];
  const [axis, loops] = first;
  return loops.flatMap((loop) => combinations(others, { ...chosen, [axis]: loop }));
}
