/**
 * @file Rewrites the values and conditions of a design as functions of lane and step.
 *
 *     SBM, loops (c 16, q 5)      c == 15  ->  lane - t == 15        q == 7  ->  never
 *
 * Coordinates of a lowered design: which lane and step execute which point, and how an index is expressed in
 * them.
 *
 *     SBM, loops (c 16, q 5)      x[c+q]  ->  x[lane]        z[c]  ->  z[lane-t]
 *     2-D arrays are lanes in rows: lane = k1*K2 + k2; several rows of time are loops within loops.
 *
 * Sums of terms in the order they are printed: additions before subtractions, digits of a mixed radix.
 *
 *     sumOf([-1 t, 1 lane], 3)  =  lane - t + 3        digitOf(lane, 4, 3)  =  lane/4 % 3
 *
 * The loops that an array uses, and whether a transform of them is valid.
 *
 *     sourceLoops(flows, ["c_in", "q"])     those of the columns, in their order; the others run outside
 */

import {
  affineForm,
  boundsOf,
  type Extents,
  evaluateIndex,
  extentsBy,
  gcd,
  pointsOf,
} from "../../abstraction/affine.ts";
import { namesOf, product, upTo, withName } from "../../abstraction/collections.ts";
import { conjunctsOf, joined, settled, type Truth } from "../../abstraction/condition.ts";
import { internal, suggestion, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  allOf,
  axesIn,
  axis,
  changeParts,
  compare,
  type Expr,
  MIRRORED,
  minus,
  number,
  over,
  plus,
  printExpr,
  remainder,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { freshName } from "../../abstraction/loop-nest.ts";
import type { SourceLoop, SpaceTime } from "../../abstraction/recurrence.ts";
import { distanceIn, type Flows } from "./flow.ts";
import { checkReverse, type Inverse, inverseOf, type ReverseDefinition, rowsOfTime } from "./reverse.ts";
import { refusalOf } from "./validity.ts";
import { dot, extentOfRow, leastOfRow, printVector, type Vector } from "./vector.ts";

// ---- coordinates -------------------------------------------------------------------------------------------------------------------------

/** The weight of each digit; the last digit varies fastest. */
export function weights(extents: readonly number[]): number[] {
  return extents.map((_, r) => product(extents.slice(r + 1)));
}

/** Several rows as one row of mixed radix. */
function rowOf(rows: readonly Vector[], radix: readonly number[]): number[] {
  return (rows[0] ?? []).map((_, i) => rows.reduce((sum, row, r) => sum + (row[i] ?? 0) * (radix[r] ?? 0), 0));
}

function digitOf(e: Expr, weight: number, extent: number | undefined): Expr {
  const quotient = over(e, weight);
  return extent === undefined ? quotient : remainder(quotient, extent);
}

interface Term {
  readonly coefficient: number;
  readonly value: Expr;
}

/** `lane - t + 3`: added terms before subtracted ones. */
function sumOf(terms: readonly Term[], constant: number): Expr {
  const added = terms.filter((t) => t.coefficient > 0);
  const taken = terms.filter((t) => t.coefficient < 0);
  const first = added.length === 0 && constant > 0 ? number(constant) : number(0);
  let sum: Expr = first;
  for (const { coefficient, value } of added) sum = plus(sum, times(coefficient, value));
  for (const { coefficient, value } of taken) sum = minus(sum, times(-coefficient, value));
  return first.kind === "number" && first.value !== 0 ? sum : plus(sum, constant);
}

/** An affine index in canonical order; other expressions unchanged. */
export function simplified(e: Expr): Expr {
  const form = affineForm(e);
  if (!form) return e;
  return sumOf(
    [...form.terms].map(([name, coefficient]) => ({ coefficient, value: axis(name) })),
    form.constant,
  );
}

interface PlaceOptions {
  readonly lanes?: number;
  readonly source?: readonly string[];
  readonly destination?: readonly string[];
  readonly reverse?: readonly ReverseDefinition[];
  /** Cuts time into serial blocks of this many unrolled steps. */
  readonly round?: number;
  /** Runs only these steps. */
  readonly window?: TimeWindow;
}

/** A range of steps. */
interface TimeWindow {
  readonly first: number;
  readonly count: number;
}

interface TimeLoop {
  readonly name: string;
  readonly extent: number;
  readonly serial: boolean;
}

/** A row of the transform: `least + digit` is its value. */
interface Digit {
  readonly row: Vector;
  readonly least: number;
  readonly value: Expr;
}

/** The loops of time, the step that they count, and the value of each row of time at that step. */
interface Time {
  readonly loops: readonly TimeLoop[];
  readonly step: readonly Term[];
  readonly digit: (row: number) => Expr;
}

/** One loop for each row of time, one for a part of it, or blocks of unrolled steps. */
function timeOf(
  durations: readonly number[],
  steps: number,
  { window, round }: PlaceOptions,
  free: (wanted: string) => string,
): Time {
  const radix = weights(durations);
  const digit = (step: Expr) => (row: number) =>
    digitOf(step, radix[row] ?? 1, row === 0 ? undefined : (durations[row] ?? 1));
  const first = number(window?.first ?? 0);
  if (round !== undefined) {
    const block = free("t_block");
    const within = free("t_step");
    const step = plus(plus(times(axis(block), round), axis(within)), first);
    return {
      loops: [
        { name: block, extent: Math.ceil(steps / round), serial: true },
        { name: within, extent: round, serial: false },
      ],
      // Blocks are as long as the registers take to repeat.
      step: [{ coefficient: 1, value: axis(within) }],
      digit: digit(step),
    };
  }
  if (window) {
    const name = free("t");
    return {
      loops: [{ name, extent: steps, serial: true }],
      step: [{ coefficient: 1, value: axis(name) }],
      digit: digit(plus(axis(name), first)),
    };
  }
  const loops = durations.map((extent, r) => ({
    name: free(durations.length === 1 ? "t" : `t${r + 1}`),
    extent,
    serial: true,
  }));
  const axes = loops.map((l) => axis(l.name));
  return {
    loops,
    step: axes.map((value, r) => ({ coefficient: radix[r] ?? 1, value })),
    digit: (row) => axes[row] ?? number(0),
  };
}

// ---- loops of the array -------------------------------------------------------------------------------------------------------------------

function sourceLoops({ name, loops }: Flows, wanted: readonly string[] | undefined): readonly SourceLoop[] {
  if (wanted === undefined) return loops;
  return wanted.map((loop, i) => {
    const found = withName(loops, loop);
    if (!found) throw new UsageError(`${name}: no loop "${loop}" to be mapped`, suggestion(loop, namesOf(loops)));
    if (wanted.indexOf(loop) !== i) throw new UsageError(`${name}: loop ${loop} is mapped twice`);
    return found;
  });
}

/** @throws UsageError naming what is wrong with the transform */
function checkTransform(all: Flows, source: readonly SourceLoop[], spaceTime: SpaceTime): void {
  const { name, flows, outcomes, variables, loops } = all;
  const columns = source.map((l) => loops.indexOf(l));
  const operands = [
    ...flows.flatMap((f) => (f.kind === "fixed" ? [{ name: f.name, e: f.value }] : [])),
    ...outcomes.map((o) => ({ name: "", e: o.kind === "sum" ? o.term : o.value })),
  ].flatMap(({ name: owner, e }) =>
    accessesIn(e)
      .filter((a) => Object.hasOwn(variables, a.tensor) && a.index.length > 0)
      .map((a) => {
        const distance = distanceIn(a, loops.length);
        const carried = loops.find((l, i) => !source.includes(l) && distance[i] !== 0);
        if (carried)
          throw new UsageError(
            `${name}: the dependence ${printVector(distance)} on ${a.tensor} is carried by loop ${carried.name}, which runs outside the array`,
          );
        const role: "input" | "output" = a.tensor === owner ? "output" : "input";
        const reuse = [columns.map((column) => distance[column] ?? 0)];
        return { name: a.tensor, role, reuse, order: "fixed" as const };
      }),
  );
  const refusal = refusalOf({ name, loops: source, operands, outputs: 1 }, spaceTime);
  if (refusal)
    throw new UsageError(`${name}: ${refusal.because}`, refusal.hint === undefined ? {} : { hint: refusal.hint });
}

/** `k` and `t`, numbered where there are several. */
function destinationNames({ allocation, schedule }: SpaceTime): string[] {
  const numbered = (letter: string, count: number): string[] =>
    upTo(count).map((i) => (count === 1 ? letter : `${letter}${i + 1}`));
  return [...numbered("k", allocation.length), ...numbered("t", schedule.length)];
}

/** The most points that are examined to find the last step. Beyond, all steps are kept. */
const MOST_POINTS = 100_000;

export class Places {
  readonly laneAxis: string;
  readonly lanes: number;
  readonly steps: number;
  readonly timeLoops: readonly TimeLoop[];
  /** Loops around the array, outermost first. */
  readonly outside: readonly SourceLoop[];
  /** Loops of the array, a column each. */
  readonly source: readonly SourceLoop[];
  private readonly flows: Flows;
  private readonly columns: readonly number[];
  private readonly digits: readonly Digit[];
  private readonly inverse: Inverse | undefined;
  private readonly extents: Extents;
  /** The step, with one term for each loop of time. */
  private readonly step: readonly Term[];
  private readonly time: Vector;
  /** The step at which every row of time has its smallest value. */
  private readonly start: number;
  private readonly space: Vector;
  /** Source loops by the user's reverse transform, used if the inverse is not affine. */
  private readonly given = new Map<string, Expr>();

  constructor(flows: Flows, spaceTime: SpaceTime, options: PlaceOptions) {
    const { name, loops } = flows;
    this.flows = flows;
    this.source = sourceLoops(flows, options.source);
    this.columns = this.source.map((l) => loops.indexOf(l));
    this.outside = loops.filter((l) => !this.source.includes(l));
    checkTransform(flows, this.source, spaceTime);
    const extents = this.source.map((l) => l.extent);
    const taken = new Set([...namesOf(loops), ...Object.keys(flows.tensors)]);
    const free = (wanted: string): string => freshName(wanted, taken);

    // 1. Rows of time, and the reverse.
    const { allocation } = spaceTime;
    const times = rowsOfTime(spaceTime, extents);
    const destination = options.destination ?? destinationNames(spaceTime);
    if (options.reverse) checkReverse(name, this.source, spaceTime, destination, options.reverse);
    if (!times && !options.reverse)
      throw new UsageError(
        `${name}: the transform ${[...allocation, ...spaceTime.schedule].map(printVector).join(" ")} has no affine inverse, so its reverse must be given`,
        "for example: p = t%5, q = t/5, c = k-q",
      );
    const schedule = times ?? spaceTime.schedule;
    this.inverse = times && inverseOf([...allocation, ...times]);

    // 2. Space: digits of the lane.
    const shape = allocation.map((row) => extentOfRow(row, extents));
    const pes = product(shape);
    this.lanes = options.lanes ?? pes;
    if (pes > this.lanes)
      throw new UsageError(
        `${name}: the array has ${pes} PEs (${shape.join(" x ")}), and there are ${this.lanes} lanes`,
        "tile a loop, so that the array takes a part at a time",
      );
    this.laneAxis = free("lane");
    const space = weights(shape);
    this.space = rowOf(allocation, space);
    const inSpace = allocation.map(
      (row, r): Digit => ({
        row,
        least: leastOfRow(row, extents),
        value: digitOf(axis(this.laneAxis), space[r] ?? 1, r === 0 ? undefined : (shape[r] ?? 1)),
      }),
    );

    // 3. Time: a loop for each row, or blocks of steps.
    const durations = schedule.map((row) => extentOfRow(row, extents));
    const radix = weights(durations);
    const all = product(durations);
    this.steps = options.window?.count ?? all;
    this.time = rowOf(schedule, radix);
    this.start = schedule.reduce((sum, row, r) => sum + leastOfRow(row, extents) * (radix[r] ?? 1), 0);
    const time = timeOf(durations, this.steps, options, free);
    this.timeLoops = time.loops;
    this.step = time.step;
    const inTime = schedule.map((row, r): Digit => ({ row, least: leastOfRow(row, extents), value: time.digit(r) }));
    this.digits = [...inSpace, ...inTime];
    this.extents = Object.fromEntries([
      [this.laneAxis, this.lanes],
      ...this.timeLoops.map((l) => [l.name, l.extent]),
      ...this.outside.map((l) => [l.name, l.extent]),
    ]);
    if (!this.inverse) this.takeReverse(destination, options.reverse ?? []);
  }

  /** The number of steps that a distance takes: s.d. */
  stepsOf(distance: Vector): number {
    return dot(this.time, this.inArray(distance));
  }

  /** The register index of a value some steps ago: the step modulo the number of registers. */
  turn(registers: number, ago: number): Expr {
    const terms = this.step.map((t) => ({ ...t, coefficient: t.coefficient % registers }));
    const sum = sumOf(terms, (registers - (ago % registers)) % registers);
    return boundsOf(sum, this.extents)[1] < registers ? sum : remainder(sum, registers);
  }

  /** The number of lanes that a distance moves: P.d. */
  hopOf(distance: Vector): number {
    return dot(this.space, this.inArray(distance));
  }

  access(a: Access): Access {
    return { ...a, index: a.index.map((e) => this.index(e)) };
  }

  /** Rewrites an index over loops as one over lanes and steps. */
  index(e: Expr): Expr {
    const form = affineForm(e);
    if (!form || !this.inverse) return simplified(substitute(e, this.loopValues(), "index"));
    const { numerators, denominator } = this.inverse;
    const coefficients = this.source.map((l) => form.terms.get(l.name) ?? 0);
    const parts = this.digits.map((_, j) =>
      dot(
        coefficients,
        numerators.map((row) => row[j] ?? 0),
      ),
    );
    const offset = this.digits.reduce((sum, d, j) => sum + (parts[j] ?? 0) * d.least, 0);
    const outer = this.outside.map((l): Term => ({ coefficient: form.terms.get(l.name) ?? 0, value: axis(l.name) }));
    if ([offset, ...parts].every((x) => x % denominator === 0)) {
      const inner = this.digits.map((d, j): Term => ({ coefficient: (parts[j] ?? 0) / denominator, value: d.value }));
      return sumOf([...outer, ...inner], form.constant + offset / denominator);
    }
    const inner = this.digits.map((d, j): Term => ({ coefficient: parts[j] ?? 0, value: d.value }));
    const whole = outer.map((t) => ({ ...t, coefficient: t.coefficient * denominator }));
    return over(sumOf([...whole, ...inner], form.constant * denominator + offset), denominator);
  }

  private loopValues(): ReadonlyMap<string, Expr> {
    return this.inverse ? new Map(this.source.map((l) => [l.name, this.index(axis(l.name))])) : this.given;
  }

  private takeReverse(destination: readonly string[], definitions: readonly ReverseDefinition[]): void {
    const known = new Map(
      destination.map((name, i): [string, Expr] => {
        const digit = this.digits[i];
        return [name, digit ? plus(digit.value, digit.least) : number(0)];
      }),
    );
    for (const { loop, value } of definitions) {
      const at = simplified(substitute(value, known, "index"));
      known.set(loop, at);
      this.given.set(loop, at);
    }
  }

  private inArray(distance: Vector): number[] {
    return this.columns.map((column) => distance[column] ?? 0);
  }
  /**
   * The steps that are needed, if fewer than all: from the first that holds a point of the box to the last at which a
   * result leaves. Undefined if no step can be omitted, or there are too many points to examine.
   */
  windowOf(stores: readonly { readonly where?: Expr }[]): TimeWindow | undefined {
    const extents = this.source.map((l) => l.extent);
    const own = extentsBy(this.source);
    const first = leastOfRow(this.time, extents) - this.start;
    const most = first + extentOfRow(this.time, extents) - 1;
    const names = namesOf(this.source);
    const isOwn = (e: Expr): boolean => axesIn(e).every((name) => names.includes(name));
    const tails = this.flows.tails.some((t) => isOwn(t.index));
    let last = most;
    if (tails && product(extents) <= MOST_POINTS) {
      last = first;
      const conditions = stores.map((s) => (s.where !== undefined && isOwn(s.where) ? s.where : undefined));
      for (const at of pointsOf(names, own))
        if (conditions.some((c) => c === undefined || evaluateIndex(c, at) !== 0))
          last = Math.max(
            last,
            dot(
              this.time,
              names.map((name) => at[name] ?? 0),
            ) - this.start,
          );
    }
    const count = last - first + 1;
    return count < this.steps ? { first, count } : undefined;
  }

  /**
   * The number of distinct values that the expression takes on one lane: one if it is the same at every step, or the
   * extent of the fastest row of time if it repeats with each round of that row. Undefined otherwise.
   */
  valuesOfLane(e: Expr): number | undefined {
    const axes = axesIn(this.value(e, () => undefined));
    const [fastest, ...slower] = this.timeLoops.toReversed();
    if (!fastest || slower.some((l) => axes.includes(l.name))) return undefined;
    if (!axes.includes(fastest.name)) return 1;
    return slower.length > 0 && axes.includes(this.laneAxis) ? fastest.extent : undefined;
  }

  /** Whether an expression is constant on a lane during a round of the fastest row of time. */
  staysForRound(e: Expr): boolean {
    const [fastest, ...slower] = this.timeLoops.toReversed();
    return fastest !== undefined && slower.length > 0 && !axesIn(this.value(e, () => undefined)).includes(fastest.name);
  }

  /** Holds at the first step of the fastest row of time. */
  beginsRound(): Truth {
    const fastest = this.timeLoops.at(-1);
    return fastest ? compare("==", axis(fastest.name), 0) : true;
  }

  /** Whether all lanes of a step access the same element. */
  isUniform(target: Access): boolean {
    return !axesIn(this.access(target)).includes(this.laneAxis);
  }

  /** Rewrites a condition over loops as one over lanes and steps; `true` without a condition. */
  condition(e: Expr | undefined): Truth {
    if (e === undefined) return true;
    if (e.kind === "compare") {
      const left = this.index(e.left);
      const right = this.index(e.right);
      return this.decided({ ...e, left, right }) ?? this.byLane({ ...e, left, right });
    }
    if (e.kind !== "logic") internal(`${printExpr(e)} is not a condition`);
    const left = this.condition(e.left);
    const right = this.condition(e.right);
    return e.op === "and" ? this.conjunction([left, right]) : joined("or", left, right);
  }

  conjunction(all: readonly Truth[]): Truth {
    if (all.some((c) => c === false)) return false;
    const parts = all.flatMap((c) => (typeof c === "boolean" ? [] : conjunctsOf(c)));
    return allOf([...new Map(parts.map((c) => [printExpr(c), c])).values()]) ?? true;
  }

  /**
   * Rewrites a value over loops as one over lanes and steps.
   * @param read the register of a variable; undefined for a tensor
   */
  value(e: Expr, read: (variable: string, distance: Vector) => Access | undefined): Expr {
    const again = (child: Expr): Expr => this.value(child, read);
    switch (e.kind) {
      case "axis":
        return this.index(e);
      case "access":
        return read(e.tensor, distanceIn(e, this.flows.loops.length)) ?? this.access(e);
      case "select": {
        const condition = this.condition(e.condition);
        if (typeof condition === "boolean") return again(condition ? e.whenTrue : e.whenFalse);
        const whenTrue = again(e.whenTrue);
        const whenFalse = again(e.whenFalse);
        return printExpr(whenTrue) === printExpr(whenFalse) ? whenTrue : { ...e, condition, whenTrue, whenFalse };
      }
      default:
        return changeParts(e, again);
    }
  }

  /**
   * The condition that a lane holds a point at a step: its coordinates are integers inside the box. Loops that `where`
   * fixes need no check.
   */
  holdsPoint(where?: Expr): Truth {
    const pinned = new Set(
      (where === undefined ? [] : conjunctsOf(where)).map((c) =>
        c.kind === "compare" && c.op === "==" && c.left.kind === "axis" && c.right.kind === "number" ? c.left.name : "",
      ),
    );
    return this.conjunction([...this.wholeNumbers(), ...this.inBox(pinned), ...this.returns()]);
  }

  /** Conditions that an element of a partial tile is inside, for the loops that index it. */
  tailsOf(target: Access): Truth[] {
    const indexing = new Set(axesIn(target));
    return this.flows.tails
      .filter((t) => axesIn(t.index).every((name) => indexing.has(name)))
      .map((t) => this.condition(compare("<", t.index, t.extent)));
  }

  private inBox(pinned: ReadonlySet<string> = new Set()): Truth[] {
    return this.source.flatMap((l) => {
      if (pinned.has(l.name)) return [];
      const at = axis(l.name);
      return [this.condition(compare(">=", at, 0)), this.condition(compare("<", at, l.extent))];
    });
  }

  private wholeNumbers(): Truth[] {
    if (!this.inverse) return [];
    const { numerators, denominator } = this.inverse;
    return numerators.map((row) => {
      const divisor = row.reduce(gcd, denominator);
      const modulus = denominator / divisor;
      if (modulus === 1) return true;
      const offset = this.digits.reduce((sum, d, j) => sum + ((row[j] ?? 0) / divisor) * d.least, 0);
      const terms = this.digits.map(
        (d, j): Term => ({ coefficient: modulo((row[j] ?? 0) / divisor, modulus), value: d.value }),
      );
      return compare("==", remainder(sumOf(terms, modulo(offset, modulus)), modulus), 0);
    });
  }

  /**
   * A user's reverse transform may yield a point of the box where none runs. So the point must map back to the same
   * place.
   */
  private returns(): Truth[] {
    if (this.inverse) return [];
    const names = namesOf(this.source);
    const values = this.loopValues();
    const axes = [this.laneAxis, ...namesOf(this.timeLoops)];
    const equal = this.digits.map(({ row, least, value }) => {
      const back = sumOf(
        names.map((name, i) => ({ coefficient: row[i] ?? 0, value: values.get(name) ?? number(0) })),
        0,
      );
      return compare("==", back, plus(value, least));
    });
    const inBox = this.conjunction(this.inBox());
    const wrong = new Set<Expr>();
    for (const at of pointsOf(axes, this.extents)) {
      if (typeof inBox !== "boolean" && evaluateIndex(inBox, at) === 0) continue;
      for (const e of equal) if (evaluateIndex(e, at) === 0) wrong.add(e);
    }
    return [...wrong];
  }

  /** The result of a comparison that is the same at every lane and step. */
  private decided({ op, left, right }: Extract<Expr, { kind: "compare" }>): boolean | undefined {
    return settled(op, ...boundsOf(minus(left, right), this.extents));
  }

  /** `t-lane < 16` as `lane > t-16`: isolates the lane on one side. */
  private byLane(e: Extract<Expr, { kind: "compare" }>): Expr {
    const form = affineForm(minus(e.left, e.right));
    const coefficient = form?.terms.get(this.laneAxis);
    if (!form || (coefficient !== 1 && coefficient !== -1)) return e;
    const others = [...form.terms].filter(([name]) => name !== this.laneAxis);
    const terms = others.map(([name, c]): Term => ({ coefficient: -coefficient * c, value: axis(name) }));
    const op = coefficient > 0 ? e.op : MIRRORED[e.op];
    return compare(op, axis(this.laneAxis), sumOf(terms, -coefficient * form.constant));
  }
}

const modulo = (a: number, b: number): number => a - b * Math.floor(a / b);
