/**
 * @file A counterexample for every match the access matrices refuse: one output element the mapped program would get wrong.
 *
 *     n,k -> m on a matrix product:  w depends on k, b is not indexed by m
 *       out[0,1,0,0] would be given w[0,0,0,0] where the equation reads w[1,0,0,0]
 *
 * The mapped program keeps, for each operand, one element per index of the instruction. Where a tensor depends on a loop
 * the operand does not see, the element of the loop's first step stands for all; where the operand has an index the tensor lacks,
 * only its first step is filled.
 */

import { evaluateIndex, pointsOf } from "../abstraction/affine.ts";
import { bitAt } from "../abstraction/binary-matrix.ts";
import { extentsOf, pointCount, targetOf, tensorOf } from "../abstraction/computation.ts";
import { identityOf } from "../abstraction/equation.ts";
import { type Access, type Expr, integerOp, number, printExpr, substitute } from "../abstraction/expression.ts";
import type { Matching, Witness } from "../abstraction/mapping.ts";
import { randomInteger, seededRandom } from "../abstraction/random.ts";
import type { Problem } from "./problem.ts";

/** Points looked at before a loop is taken to have no effect. */
const SEARCH_LIMIT = 20_000;
/** Points of one maximum that are compared; of a longer one a single point is. */
const SIBLING_LIMIT = 500;

/** What an operand is given at a point once `loop` feeds an axis it should not: another point's element, or padding. */
export function misread(
  problem: Problem,
  matching: Matching,
  operand: string,
  loop: string,
): "first step" | "padding" | undefined {
  const axis = Object.keys(matching).find((a) => matching[a]?.includes(loop));
  if (axis === undefined || operand === problem.x.rows.at(-1)) return undefined;
  const depends = bitAt(problem.x, operand, loop) === 1;
  const indexed = bitAt(problem.z, operand, axis) === 1;
  if (depends === indexed) return undefined;
  return depends ? "first step" : "padding";
}

/**
 * A point whose value changes when one operand is given something else, every tensor element being a number of its own;
 * undefined when there is none, or none was found in a large domain.
 */
export function findWitness(problem: Problem, matching: Matching, loop: string): Witness | undefined {
  const { computation, binding, intrinsic } = problem;
  const { target, where } = computation.equation;
  const inputs = problem.x.rows.slice(0, -1);
  const given = (operand: string, point: Point, salt: number): number =>
    valueAt(binding[operand] ?? number(0), point, (a) => elementAt(problem, a, point, salt));
  const mistaken = (operand: string, point: Point, salt: number): number => {
    if (point[loop] === 0) return given(operand, point, salt);
    if (misread(problem, matching, operand, loop) === "first step")
      return given(operand, { ...point, [loop]: 0 }, salt);
    return problem.padding?.kind === "number" ? problem.padding.value : identity(problem);
  };
  /** The value of a point; with `astray`, of the program that gets this operand wrong. */
  const result = (point: Point, salt: number, astray?: string): number =>
    valueAt(intrinsic.computation.equation.value, {}, ({ tensor }) =>
      tensor === astray ? mistaken(tensor, point, salt) : given(tensor, point, salt),
    );
  const holds = (point: Point): boolean => where === undefined || evaluateIndex(where, point) !== 0;
  const wrong = inputs.filter((operand) => misread(problem, matching, operand, loop) !== undefined);

  for (const point of candidates(problem, loop)) {
    if (point[loop] === 0 || !holds(point) || !isInside(problem, target, point)) continue;
    const siblings = siblingsOf(problem, point).filter(holds);
    const salts = siblings.length > 1 ? MAXIMUM_SALTS : [0];
    for (const operand of wrong) {
      const bound = binding[operand];
      const fold = (salt: number, astray?: string): number =>
        join(
          problem,
          siblings.map((sibling) => result(sibling, salt, astray)),
        );
      if (bound === undefined || salts.every((salt) => same(fold(salt), fold(salt, operand)))) continue;
      return {
        index: target.index.map((e) => evaluateIndex(e, point)),
        point: { ...point },
        operand,
        expected: printRead(bound, point),
        actual:
          misread(problem, matching, operand, loop) === "padding"
            ? "nothing: that place is never filled"
            : printRead(bound, { ...point, [loop]: 0 }),
      };
    }
  }
  return undefined;
}

const same = (a: number, b: number): boolean => a === b || (Number.isNaN(a) && Number.isNaN(b));

/** Sets of generic values to try where a maximum may hide a change. */
const MAXIMUM_SALTS = [0, 1, 2, 3, 4, 5, 6, 7];

/** Under a maximum or minimum the points that join the same output element; under a sum the point itself is enough. */
function siblingsOf({ computation }: Problem, point: Point): Point[] {
  const { op, target } = computation.equation;
  if (op !== "max=" && op !== "min=") return [point];
  const plain = new Set(target.index.map((e) => (e.kind === "axis" ? e.name : undefined)));
  const free = computation.axes.filter((a) => !plain.has(a.name));
  if (free.reduce((product, a) => product * a.extent, 1) > SIBLING_LIMIT) return [point];
  const place = printRead(target, point);
  return [
    ...pointsOf(
      free.map((a) => a.name),
      extentsOf(computation),
    ),
  ]
    .map((steps) => ({ ...point, ...steps }))
    .filter((sibling) => printRead(target, sibling) === place);
}

function join({ computation }: Problem, values: readonly number[]): number {
  return computation.equation.op === "min=" ? Math.min(...values) : Math.max(...values);
}

type Point = Readonly<Record<string, number>>;

/** The points whose steps are all 0 or 1, then the whole domain or, of a large one, a sample; the loop itself runs fastest. */
function* candidates({ computation, loops }: Problem, loop: string): Generator<Point> {
  const axes = [...loops.map((l) => l.name).filter((l) => l !== loop), loop];
  const extents = extentsOf(computation);
  yield* pointsOf(axes, Object.fromEntries(loops.map((l) => [l.name, Math.min(2, l.extent)])));
  if (pointCount(computation) <= SEARCH_LIMIT) {
    yield* pointsOf(axes, extents);
    return;
  }
  const random = seededRandom(1);
  for (let i = 0; i < SEARCH_LIMIT; i++)
    yield Object.fromEntries(loops.map((l) => [l.name, randomInteger(random, 0, l.extent - 1)]));
}

function isInside(problem: Problem, { tensor, index }: Access, point: Point): boolean {
  const { dims } = tensorOf(problem.computation, tensor);
  return index.every((e, d) => {
    const at = evaluateIndex(e, point);
    return at >= 0 && at < (dims[d]?.extent ?? 0);
  });
}

/** A number between -1 and 1 that belongs to one element alone; outside the tensor, what reading there gives. */
function elementAt(problem: Problem, a: Access, point: Point, salt: number): number {
  if (!isInside(problem, a, point)) return identity(problem);
  let hash = salt;
  for (const character of printRead(a, point)) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) | 0;
  return 2 * seededRandom(hash)() - 1;
}

function identity({ computation }: Problem): number {
  return identityOf(computation.equation.op, targetOf(computation).dtype);
}

/** The value of an expression over the reals: types only round it. */
function valueAt(e: Expr, point: Point, read: (a: Access) => number): number {
  const inner = (child: Expr): number => valueAt(child, point, read);
  switch (e.kind) {
    case "access":
      return read(e);
    case "cast":
      return inner(e.value);
    case "negate":
      return -inner(e.value);
    case "binary":
      return e.op === "/" ? inner(e.left) / inner(e.right) : integerOp(e.op, inner(e.left), inner(e.right));
    case "call": {
      const [first = 0, second = 0] = e.args.map(inner);
      const { fn } = e;
      switch (fn) {
        case "min":
          return Math.min(first, second);
        case "max":
          return Math.max(first, second);
        case "square":
          return first * first;
        case "abs":
          return Math.abs(first);
        case "round":
          return first;
        default:
          return fn satisfies never;
      }
    }
    case "select":
      return inner(evaluateIndex(e.condition, point) === 0 ? e.whenFalse : e.whenTrue);
    case "number":
    case "axis":
    case "compare":
    case "logic":
      return evaluateIndex(e, point);
    default:
      return e satisfies never;
  }
}

/** What is read at a point: `w[1,0,0,0]`, `square(x[3,7] - mean[3])`. */
function printRead(bound: Expr, point: Point): string {
  return printExpr(substitute(bound, new Map(Object.entries(point).map(([name, at]) => [name, number(at)]))));
}
