/**
 * @file Finds a counterexample for a match that the access matrices refuse: one output element that the mapped program
 * computes wrong.
 *
 *     n,k -> m on a matrix product:  w depends on k, b is not indexed by m
 *       out[0,1,0,0] would be given w[0,0,0,0] where the equation reads w[1,0,0,0]
 *
 * The mapped program keeps, for each operand, one element per index of the instruction. Where a tensor depends on a
 * mapped loop that the operand is not indexed by, the element of the loop's first step is used for all steps. Both
 * programs are run on that output element, with rounding and wrapping as the types require and over all points that
 * join it, and a real difference is shown.
 */

import { pointsOf } from "../../abstraction/affine.ts";
import { bitAt } from "../../abstraction/binary-matrix.ts";
import { namesOf } from "../../abstraction/collections.ts";
import { extentsOf, inputsOf, pointCount, targetOf } from "../../abstraction/computation.ts";
import { type DType, isInteger, rangeOf, wrap } from "../../abstraction/dtype.ts";
import {
  type Buffer,
  compileIndex,
  compilePlace,
  compileValue,
  type Environment,
  type Evaluate,
  foldOf,
  joinOf,
  Scope,
} from "../../abstraction/evaluate.ts";
import {
  access,
  accessesIn,
  type Expr,
  identityOf,
  number,
  printExpr,
  rewrite,
  substitute,
} from "../../abstraction/expression.ts";
import { operandOf } from "../../abstraction/intrinsic.ts";
import type { Matching, Witness } from "../../abstraction/mapping.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { scaleOf } from "./bind.ts";
import type { Problem } from "./problem.ts";

/** An operand that gets the element of another step. */
export interface Astray {
  readonly operand: string;
  /** Mapped loops that its tensor depends on but the operand is not indexed by. */
  readonly loops: readonly string[];
}

/** The result of a search for a counterexample. */
type WitnessSearch =
  | { readonly found: Witness; readonly operand: string; readonly loop: string }
  /** None was found; `whole` when every output element was compared. */
  | { readonly found: undefined; readonly whole: boolean };

/**
 * The operands of a match that get wrong elements, and the loops responsible. A loop with one step cannot be
 * responsible.
 */
export function astrayOperands(problem: Problem, matching: Matching): readonly Astray[] {
  const { x, z, computation } = problem;
  const extents = extentsOf(computation);
  const fed = Object.entries(matching).flatMap(([axis, loops]) => loops.map((loop) => ({ axis, loop })));
  return x.rows.slice(0, -1).flatMap((operand): Astray[] => {
    const loops = fed
      .filter(({ axis, loop }) => bitAt(x, operand, loop) === 1 && bitAt(z, operand, axis) === 0)
      .flatMap(({ loop }) => ((extents[loop] ?? 1) > 1 ? [loop] : []));
    return loops.length === 0 ? [] : [{ operand, loops }];
  });
}

/** Points examined for each set of inputs before giving up. */
const SEARCH_LIMIT = 20_000;
/** Largest number of points evaluated for one refusal: some tenths of a second. */
const EVALUATIONS = 500_000;
/** One set of inputs. */
interface Draw {
  readonly seed: number;
  /**
   * Smallest value of the random elements. Integer reads outside the tensor under a maximum wrap round when less is
   * added to them.
   */
  readonly from: number;
  /** Under a maximum only extreme values show. What a point reads in one of the programs is made large or small. */
  readonly standing: { readonly in: "equation" | "program"; readonly to: 1 | -1 } | undefined;
}

/** Elements differ by up to this much: sums of some thousand products are then exact in every type but f16. */
const SPREAD = 16;

const DRAWS: readonly Draw[] = [-SPREAD / 2, 0].flatMap((from) => [
  { seed: 1, from, standing: undefined },
  ...(["equation", "program"] as const).flatMap((program) =>
    ([1, -1] as const).map((to): Draw => ({ seed: 2, from, standing: { in: program, to } })),
  ),
  { seed: 3, from, standing: undefined },
]);

/** Looks for an output element that the mapped program of a refused match would get wrong. */
export function findWitness(problem: Problem, matching: Matching): WitnessSearch {
  const astray = astrayOperands(problem, matching);
  if (astray.length === 0) return { found: undefined, whole: true };
  const programs = new Programs(problem, astray);
  let whole = pointCount(problem.computation) <= SEARCH_LIMIT;
  // A counterexample that reads inside the tensors is clearer than one that reads outside.
  for (const insideOnly of [true, false])
    for (const draw of DRAWS)
      for (const point of candidates(problem, astray)) {
        if (!programs.isPoint(point)) continue;
        const wrong = programs.readAstray(point, draw, insideOnly);
        if (wrong === undefined) continue;
        if (programs.evaluations > EVALUATIONS) {
          whole = false;
          break;
        }
        if (programs.differsAt(point)) return { found: witnessAt(problem, wrong, point), ...wrong.place };
      }
  return { found: undefined, whole };
}

interface WrongRead {
  readonly place: { readonly operand: string; readonly loop: string };
  /** The operand's expression, and the point whose element it gets. */
  readonly bound: Expr;
  readonly given: Point;
}

function witnessAt({ computation }: Problem, { place, bound, given }: WrongRead, point: Point): Witness {
  const index = computation.equation.target.index.map((e) => at(e, point));
  return {
    index: index.map((e) => (e.kind === "number" ? e.value : 0)),
    point: { ...point },
    operand: place.operand,
    expected: printExpr(at(bound, point)),
    actual: printExpr(at(bound, given)),
  };
}

type Point = Readonly<Record<string, number>>;

/** An expression with the steps of a point substituted: `w[1,0,0,0]`, `square(x[3,7] - mean[3])`. */
function at(e: Expr, point: Point): Expr {
  return substitute(e, new Map(Object.entries(point).map(([name, step]) => [name, number(step)])));
}

/**
 * The points with all steps 0 or 1, then the whole domain, or a sample of a large one; the responsible loops run
 * fastest.
 */
function* candidates({ computation, loops }: Problem, astray: readonly Astray[]): Generator<Point> {
  const leading = new Set(astray.flatMap((a) => a.loops));
  const names = namesOf(loops);
  const axes = [...names.filter((l) => !leading.has(l)), ...names.filter((l) => leading.has(l))];
  yield* pointsOf(axes, Object.fromEntries(loops.map((l) => [l.name, Math.min(2, l.extent)])));
  if (pointCount(computation) <= SEARCH_LIMIT) {
    yield* pointsOf(axes, extentsOf(computation));
    return;
  }
  const random = seededRandom(1);
  for (let i = 0; i < SEARCH_LIMIT; i++)
    yield Object.fromEntries(loops.map((l) => [l.name, randomInteger(random, 0, l.extent - 1)]));
}

/**
 * An operand of the instruction: its expression, the element it gets, and the loops held at their first step for it.
 */
interface Given {
  readonly name: string;
  readonly dtype: DType;
  readonly bound: Expr;
  readonly value: Evaluate;
  /** Its reads and their places in memory; -1 outside. */
  readonly reads: readonly { readonly tensor: string; readonly place: Evaluate }[];
  readonly held: Float64Array;
  readonly loops: readonly string[];
  readonly slots: readonly number[];
}

/** The equation and the mapped program of one match, evaluated element by element. */
class Programs {
  /** Points evaluated so far. */
  evaluations = 0;
  private readonly problem: Problem;
  private readonly scope: Scope;
  private readonly env: Environment;
  /** Current loop values; some may be held at their first step. */
  private readonly steps: Environment;
  private readonly right: Evaluate;
  private readonly issue: Evaluate;
  private readonly issueEnv: Environment;
  /** What the program multiplies its sums by. */
  private readonly scale: Evaluate | undefined;
  private readonly operands: readonly Given[];
  private readonly loops: readonly { readonly name: string; readonly slot: number }[];
  private readonly place: Evaluate;
  private readonly holds: Evaluate | undefined;
  /** Axes that the output element does not determine. */
  private readonly free: Readonly<Record<"spatial" | "reduce", readonly { slot: number; extent: number }[]>>;
  private draw: Draw = { seed: 0, from: 0, standing: undefined };
  private readonly standing = new Set<string>();
  private readonly computed = new Map<number, boolean>();

  constructor(problem: Problem, astray: readonly Astray[]) {
    const { computation, intrinsic, binding } = problem;
    const { target, op, value, where } = computation.equation;
    const { dtype } = targetOf(computation);
    const numbers = new Map(inputsOf(computation).map((t, i) => [t.name, i]));
    const buffers = new Map(
      [targetOf(computation), ...inputsOf(computation)].map(({ name, dims, dtype }): [string, Buffer] => {
        const range = isInteger(dtype) ? rangeOf(dtype) : FLOATS;
        const tensor = numbers.get(name) ?? 0;
        const element = (place: number): number => this.element(name, tensor, range, place);
        return [name, { values: NONE, shape: dims.map((d) => d.extent), dtype, element }];
      }),
    );
    this.problem = problem;
    this.scope = new Scope(buffers, identityOf(op, dtype));
    for (const a of computation.axes) this.scope.slot(a.name);
    this.loops = problem.loops.map(({ name }) => ({ name, slot: this.scope.slot(name) }));
    this.env = this.scope.environment();
    this.steps = this.scope.environment();
    this.right = compileValue(value, this.scope, dtype);
    this.place = compilePlace(target, this.scope);
    this.holds = where && compileIndex(where, this.scope);
    this.operands = problem.x.rows.slice(0, -1).map((name): Given => {
      const bound = binding[name] ?? number(0);
      const operand = operandOf(intrinsic, name);
      const loops = astray.find((a) => a.operand === name)?.loops ?? [];
      return {
        name,
        dtype: operand.dtype,
        bound,
        value: compileValue(bound, this.scope, operand.dtype),
        reads: accessesIn(bound).map((a) => ({ tensor: a.tensor, place: compilePlace(a, this.scope) })),
        held: new Float64Array(1),
        loops,
        slots: loops.map((l) => this.scope.slot(l)),
      };
    });
    const held = new Map(
      this.operands.map(({ name, dtype, held }): [string, Buffer] => [name, { values: held, shape: [], dtype }]),
    );
    const issued = new Scope(held, this.scope.identity);
    const bare = rewrite(intrinsic.computation.equation.value, (e) => (e.kind === "access" ? access(e.tensor, []) : e));
    this.issue = compileValue(bare, issued, dtype);
    this.issueEnv = issued.environment();
    const scale = scaleOf(computation, intrinsic);
    this.scale = scale && compileValue(scale, this.scope, dtype);
    const shown = new Set(target.index.map((e) => (e.kind === "axis" ? e.name : undefined)));
    const free = (kind: "spatial" | "reduce"): { slot: number; extent: number }[] =>
      computation.axes
        .filter((a) => a.kind === kind && !shown.has(a.name))
        .map((a) => ({ slot: this.scope.slot(a.name), extent: a.extent }));
    this.free = { spatial: free("spatial"), reduce: free("reduce") };
  }

  /** Whether a point takes part: the condition holds there and it joins an element of the output. */
  isPoint(point: Point): boolean {
    this.stand(point);
    return (this.holds === undefined || this.holds(this.env) !== 0) && this.place(this.env) >= 0;
  }

  /**
   * An operand that gets another value at a point than the equation reads, so that the point's contribution differs;
   * undefined when there is none.
   * @param insideOnly require both programs to read inside the tensors
   */
  readAstray(point: Point, draw: Draw, insideOnly: boolean): WrongRead | undefined {
    if (draw !== this.draw || draw.standing) this.computed.clear();
    this.draw = draw;
    this.standing.clear();
    this.stand(point);
    if (draw.standing) this.raise(draw.standing.in === "program");
    if (insideOnly && !(this.readsInside(false) && this.readsInside(true))) return undefined;
    if (same(this.right(this.env), this.mistaken())) return undefined;
    for (const { name, dtype, bound, value, loops, slots } of this.operands) {
      const loop = loops.find((l) => (point[l] ?? 0) > 0);
      if (loop === undefined) continue;
      const expected = wrap(dtype, value(this.env));
      const actual = this.astray(slots, () => wrap(dtype, value(this.env)));
      if (same(expected, actual)) continue;
      const given = { ...point, ...Object.fromEntries(loops.map((l) => [l, 0])) };
      return { place: { operand: name, loop }, bound, given };
    }
    return undefined;
  }

  /** Makes the values read at the current point extreme: those read by the equation, or by the mapped program. */
  private raise(mistaken: boolean): void {
    for (const { reads, slots } of this.operands)
      for (const { tensor, place } of reads)
        this.standing.add(`${tensor} ${this.astray(mistaken ? slots : [], () => place(this.env))}`);
  }

  private readsInside(mistaken: boolean): boolean {
    return this.operands.every(({ reads, slots }) =>
      reads.every(({ place }) => this.astray(mistaken ? slots : [], () => place(this.env)) >= 0),
    );
  }

  /** Whether the two programs compute the element that a point joins differently. */
  differsAt(point: Point): boolean {
    this.stand(point);
    const element = this.place(this.env);
    const known = this.computed.get(element);
    if (known !== undefined) return known;
    const differs = !same(...this.elementAt(point));
    this.computed.set(element, differs);
    return differs;
  }

  /**
   * One element of the output by both programs, computed like interpret.ts does: a fold over summed axes contributes
   * once for every kept point.
   */
  private elementAt(point: Point): [right: number, mistaken: number] {
    const { computation } = this.problem;
    const { op } = computation.equation;
    const { dtype } = targetOf(computation);
    const fold = foldOf(op, dtype);
    const join = joinOf(op, dtype);
    this.stand(point);
    const element = this.place(this.env);
    const { identity } = this.scope;
    const result: [number, number] = [identity, identity];
    overSteps(this.env, this.free.spatial, () => {
      if (this.place(this.env) !== element) return;
      let right = identity;
      let mistaken = identity;
      let any = false;
      overSteps(this.env, this.free.reduce, () => {
        this.evaluations += 2;
        if (this.holds !== undefined && this.holds(this.env) === 0) return;
        right = any ? fold(right, this.right(this.env)) : this.right(this.env);
        mistaken = any ? fold(mistaken, this.mistaken()) : this.mistaken();
        any = true;
      });
      if (!any) return;
      result[0] = join(result[0], right);
      result[1] = join(result[1], mistaken);
    });
    return result;
  }

  /** The instruction's result for the operands it gets at the current point. */
  private mistaken(): number {
    for (const { value, dtype, held, slots } of this.operands)
      held[0] = this.astray(slots, () => wrap(dtype, value(this.env)));
    return this.issue(this.issueEnv) * (this.scale?.(this.env) ?? 1);
  }

  /** Evaluates something with some loops at their first step. */
  private astray(slots: readonly number[], what: () => number): number {
    const { env, steps } = this;
    for (const slot of slots) {
      steps[slot] = env[slot] ?? 0;
      env[slot] = 0;
    }
    const found = what();
    for (const slot of slots) env[slot] = steps[slot] ?? 0;
    return found;
  }

  private stand(point: Point): void {
    for (const { name, slot } of this.loops) this.env[slot] = point[name] ?? 0;
  }

  /**
   * A small integer that its type holds, always the same for the same element. An element made extreme is at the end of
   * that range.
   */
  private element(tensor: string, tensorNumber: number, range: readonly [number, number], place: number): number {
    const [least, most] = range;
    const { standing, seed } = this.draw;
    if (standing && this.standing.has(`${tensor} ${place}`))
      return standing.to > 0 ? Math.min(most, STANDING) : Math.max(least, -STANDING);
    const low = Math.max(least, this.draw.from);
    return low + (scrambled(place, tensorNumber, seed) % (Math.min(most - low, SPREAD) + 1));
  }
}

/** A number of 32 bits that looks random: the finaliser of MurmurHash3 (Austin Appleby, public domain). */
function scrambled(place: number, tensorNumber: number, seed: number): number {
  let h = Math.imul(place + 1, 0x9e37_79b1) ^ Math.imul(tensorNumber + 1, 0x85eb_ca6b) ^ seed;
  h = Math.imul(h ^ (h >>> 16), 0x85eb_ca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2_ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

const NONE = new Float64Array(0);
/** The value of extreme elements; smaller for floats, so that f16 holds their products. */
const STANDING = 100;
const FLOATS = [-30, 30] as const;

const same = (a: number, b: number): boolean => a === b || (Number.isNaN(a) && Number.isNaN(b));

/** Runs a body at every step of some axes, the last fastest. */
function overSteps(
  env: Environment,
  axes: readonly { slot: number; extent: number }[],
  body: () => void,
  level = 0,
): void {
  const here = axes[level];
  if (here === undefined) {
    body();
    return;
  }
  for (let i = 0; i < here.extent; i++) {
    env[here.slot] = i;
    overSteps(env, axes, body, level + 1);
  }
}
