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
import {
  type Access,
  accessesIn,
  type Expr,
  integerOp,
  number,
  printExpr,
  substitute,
} from "../abstraction/expression.ts";
import type { Matching, Witness } from "../abstraction/mapping.ts";
import { randomInteger, seededRandom } from "../abstraction/random.ts";
import type { Problem } from "./problem.ts";

/** Points looked at before a loop is taken to have no effect. */
const SEARCH_LIMIT = 20_000;
/** Points of one output element that are compared; where more join it a single point is. */
const SIBLING_LIMIT = 500;
/** Elements are integers up to this size, whose sums and products are exact. */
const LARGEST = 1000;
/** By how much the elements of a point are larger than the others, or smaller. */
const STAND_OUT = [10 * LARGEST, -10 * LARGEST];

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
 * A point whose value, and with it the output element, changes when one operand is given something else;
 * undefined when there is none, or none was found in a large domain.
 */
export function findWitness(problem: Problem, matching: Matching, loop: string): Witness | undefined {
  const { computation, binding } = problem;
  const { target, where } = computation.equation;
  // One step has nothing beyond the first.
  if (extentsOf(computation)[loop] === 1) return undefined;
  const holds = (point: Point): boolean => where === undefined || evaluateIndex(where, point) !== 0;
  const inputs = problem.x.rows.slice(0, -1);
  const wrong = inputs.filter((operand) => misread(problem, matching, operand, loop) !== undefined);
  for (const standOut of STAND_OUT) {
    for (const point of candidates(problem, loop)) {
      if (point[loop] === 0 || !holds(point) || !isInside(problem, target, point)) continue;
      const elements = new Elements(problem, point, standOut);
      for (const operand of wrong) {
        const bound = binding[operand];
        const how = misread(problem, matching, operand, loop);
        const differs = (points: readonly Point[]): boolean => {
          const right = join(
            problem,
            points.map((p) => resultAt(problem, elements, p)),
          );
          const mistaken = join(
            problem,
            points.map((p) => resultAt(problem, elements, p, p[loop] === 0 ? undefined : { operand, how, loop })),
          );
          return right !== mistaken && !(Number.isNaN(right) && Number.isNaN(mistaken));
        };
        if (bound === undefined || !differs([point]) || !differs(siblingsOf(problem, point).filter(holds))) continue;
        return {
          index: target.index.map((e) => evaluateIndex(e, point)),
          point: { ...point },
          operand,
          expected: printRead(bound, point),
          actual: how === "padding" ? "nothing: that place is never filled" : printRead(bound, { ...point, [loop]: 0 }),
        };
      }
    }
  }
  return undefined;
}

/** What the instruction makes of a point; with `astray`, where one operand is given something else. */
function resultAt(
  problem: Problem,
  elements: Elements,
  point: Point,
  astray?: { operand: string; how: ReturnType<typeof misread>; loop: string },
): number {
  const filler = problem.padding?.kind === "number" ? problem.padding.value : identity(problem);
  return valueAt(problem.intrinsic.computation.equation.value, {}, ({ tensor: operand }) => {
    const isAstray = operand === astray?.operand;
    if (isAstray && astray.how === "padding") return filler;
    const from = isAstray ? { ...point, [astray.loop]: 0 } : point;
    return valueAt(problem.binding[operand] ?? number(0), from, (a) => elements.at(a, from));
  });
}

/** The points that join the same output element: a sum or a maximum over them may hide what one of them changes. */
function siblingsOf({ computation }: Problem, point: Point): Point[] {
  const { target } = computation.equation;
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
  const { op } = computation.equation;
  switch (op) {
    case "=":
      return values.at(-1) ?? 0;
    case "+=":
    case "sat+=":
      return values.reduce((sum, x) => sum + x, 0);
    case "max=":
      return Math.max(...values);
    case "min=":
      return Math.min(...values);
    default:
      return op satisfies never;
  }
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

/**
 * The tensors, each element an integer of its own. What one point reads stands out by a constant, so that
 * neither a maximum nor a max(x, 0) hides it.
 */
class Elements {
  private readonly problem: Problem;
  private readonly outstanding: ReadonlySet<string>;
  private readonly standOut: number;

  constructor(problem: Problem, point: Point, standOut: number) {
    this.problem = problem;
    this.standOut = standOut;
    this.outstanding = new Set(accessesIn(problem.computation.equation.value).map((a) => printRead(a, point)));
  }

  /** The element an access reads at a point; outside the tensor, what reading there gives. */
  at(a: Access, point: Point): number {
    if (!isInside(this.problem, a, point)) return identity(this.problem);
    const name = printRead(a, point);
    let hash = 0;
    for (const character of name) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) | 0;
    return randomInteger(seededRandom(hash), -LARGEST, LARGEST) + (this.outstanding.has(name) ? this.standOut : 0);
  }
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
