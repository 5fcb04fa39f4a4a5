/**
 * @file Coordinates of a lowered design: which lane and step are which point, and what an index or a condition becomes there.
 *
 *     SBM, loops (c 16, q 5)      x[c+q]  ->  x[lane]        c == 15  ->  lane - t == 15        q == 7  ->  never
 *     2-D arrays are lanes in rows: lane = k1*K2 + k2; several rows of time are loops within loops.
 */

import { affineForm, boundsOf, type Extents, evaluateIndex, pointsOf } from "../../abstraction/affine.ts";
import { UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  and,
  axesIn,
  axis,
  binary,
  compare,
  type Expr,
  MIRRORED,
  number,
  printExpr,
  substitute,
} from "../../abstraction/expression.ts";
import type { SourceLoop, SpaceTime } from "../../abstraction/recurrence.ts";
import { distanceIn, type Flows } from "./flow.ts";
import { checkReverse, type Inverse, inverseOf, type ReverseDefinition, rowsOfTime } from "./reverse.ts";
import { checkTransform, destinationNames, sourceLoops } from "./source-loops.ts";
import { digitOf, rowOf, simplified, sumOf, type Term, weights } from "./term.ts";
import { dot, extentOfRow, gcd, leastOfRow, printVector, type Vector } from "./vector.ts";

export interface PlaceOptions {
  readonly lanes?: number;
  readonly source?: readonly string[];
  readonly destination?: readonly string[];
  readonly reverse?: readonly ReverseDefinition[];
  /** Cuts time into serial blocks of so many steps that are written out. */
  readonly round?: number;
  /** Of all steps only these are run. */
  readonly window?: TimeWindow;
}

/** Steps from the first that is needed. */
export interface TimeWindow {
  readonly first: number;
  readonly count: number;
}

export interface TimeLoop {
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

/** Points that are looked at one by one to find the last step; more keep all steps. */
const MOST_POINTS = 100_000;

/** A condition that holds always, never, or where it says. */
export type Condition = Expr | boolean;

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
  /** Source loops by the user's reverse transform, where the inverse is not affine. */
  private readonly given = new Map<string, Expr>();
  private readonly extents: Extents;
  /** The step, a term for each loop of time. */
  private readonly step: readonly Term[];
  private readonly time: Vector;
  /** The step of the point all of whose rows of time are least. */
  private readonly start: number;
  private readonly space: Vector;

  constructor(flows: Flows, spaceTime: SpaceTime, options: PlaceOptions) {
    const { name, loops } = flows;
    this.flows = flows;
    this.source = sourceLoops(flows, options.source);
    this.columns = this.source.map((l) => loops.indexOf(l));
    this.outside = loops.filter((l) => !this.source.includes(l));
    checkTransform(flows, this.source, spaceTime);
    const extents = this.source.map((l) => l.extent);
    const free = (wanted: string): string =>
      freshName(wanted, [...loops.map((l) => l.name), ...Object.keys(flows.tensors)]);

    // 1. Rows of time, and the reverse.
    const { allocation } = spaceTime;
    const times = rowsOfTime(spaceTime, extents);
    const destination = options.destination ?? destinationNames(spaceTime);
    if (options.reverse) checkReverse(name, this.source, spaceTime, destination, options.reverse);
    if (!times && !options.reverse)
      throw new UsageError(
        `${name}: the transform ${[...allocation, ...spaceTime.schedule].map(printVector).join(" ")} has no affine inverse, so its reverse must be given`,
        { hint: "for example: p = t%5, q = t/5, c = k-q" },
      );
    const schedule = times ?? spaceTime.schedule;
    this.inverse = times && inverseOf([...allocation, ...times]);

    // 2. Space: digits of the lane.
    const shape = allocation.map((row) => extentOfRow(row, extents));
    const pes = shape.reduce((product, extent) => product * extent, 1);
    this.lanes = options.lanes ?? pes;
    if (pes > this.lanes)
      throw new UsageError(
        `${name}: the array has ${pes} PEs (${shape.join(" x ")}), and there are ${this.lanes} lanes`,
        {
          hint: "tile a loop, so that the array takes a part at a time",
        },
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
    const all = durations.reduce((product, extent) => product * extent, 1);
    this.steps = options.window?.count ?? all;
    const first = options.window?.first ?? 0;
    this.time = rowOf(schedule, radix);
    this.start = schedule.reduce((sum, row, r) => sum + leastOfRow(row, extents) * (radix[r] ?? 1), 0);
    const [single] = durations.length === 1 || options.window ? [free("t")] : [];
    let stepOf: (r: number) => Expr;
    if (options.round === undefined && options.window) {
      this.timeLoops = [{ name: single ?? "t", extent: this.steps, serial: true }];
      const step = axis(single ?? "t");
      const shifted = binary("+", step, number(first));
      stepOf = (r) => digitOf(shifted, radix[r] ?? 1, r === 0 ? undefined : (durations[r] ?? 1));
      this.step = [{ coefficient: 1, value: step }];
    } else if (options.round === undefined) {
      this.timeLoops = durations.map((extent, r) => ({ name: single ?? free(`t${r + 1}`), extent, serial: true }));
      const axes = this.timeLoops.map((l) => axis(l.name));
      stepOf = (r) => axes[r] ?? number(0);
      this.step = axes.map((value, r) => ({ coefficient: radix[r] ?? 1, value }));
    } else {
      const [block, within] = [free("t_block"), free("t_step")];
      this.timeLoops = [
        { name: block, extent: Math.ceil(this.steps / options.round), serial: true },
        { name: within, extent: options.round, serial: false },
      ];
      const step = binary(
        "+",
        binary("+", binary("*", axis(block), number(options.round)), axis(within)),
        number(first),
      );
      stepOf = (r) => digitOf(step, radix[r] ?? 1, r === 0 ? undefined : (durations[r] ?? 1));
      // Blocks are as long as a round of the registers.
      this.step = [{ coefficient: 1, value: axis(within) }];
    }
    const inTime = schedule.map((row, r): Digit => ({ row, least: leastOfRow(row, extents), value: stepOf(r) }));
    this.digits = [...inSpace, ...inTime];
    this.extents = Object.fromEntries([
      [this.laneAxis, this.lanes],
      ...this.timeLoops.map((l) => [l.name, l.extent]),
      ...this.outside.map((l) => [l.name, l.extent]),
    ]);
    if (!this.inverse) this.takeReverse(destination, options.reverse ?? []);
  }

  /** How many steps a distance takes: s.d. */
  stepsOf(distance: Vector): number {
    return dot(this.time, this.inArray(distance));
  }

  /**
   * The steps that are needed, when they are fewer than all: from the first that holds a point of the box to the last at which some result
   * leaves. Undefined when none can be left out, or there are too many points to look at each.
   */
  windowOf(stores: readonly { readonly where?: Expr }[]): TimeWindow | undefined {
    const extents = this.source.map((l) => l.extent);
    const own = Object.fromEntries(this.source.map((l) => [l.name, l.extent]));
    const first = leastOfRow(this.time, extents) - this.start;
    const most = first + extentOfRow(this.time, extents) - 1;
    const names = this.source.map((l) => l.name);
    const isOwn = (e: Expr): boolean => axesIn(e).every((name) => names.includes(name));
    const tails = this.flows.tails.some((t) => isOwn(t.index));
    let last = most;
    if (tails && extents.reduce((product, extent) => product * extent, 1) <= MOST_POINTS) {
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

  /** What the step leaves divided by a number of registers, some steps ago. */
  turn(registers: number, ago: number): Expr {
    const terms = this.step.map((t) => ({ ...t, coefficient: t.coefficient % registers }));
    const sum = sumOf(terms, (registers - (ago % registers)) % registers);
    return boundsOf(sum, this.extents)[1] < registers ? sum : binary("%", sum, number(registers));
  }

  /** How many lanes further a distance leads: P.d. */
  hopOf(distance: Vector): number {
    return dot(this.space, this.inArray(distance));
  }

  /**
   * How many values of an expression a lane sees in all: one when it is the same at every step, as many as the fastest row of time has
   * when it comes back with every round of that. Undefined when it keeps changing.
   */
  valuesOfLane(e: Expr): number | undefined {
    const axes = axesIn(this.value(e, () => undefined));
    const [fastest, ...slower] = this.timeLoops.toReversed();
    if (!fastest || slower.some((l) => axes.includes(l.name))) return undefined;
    if (!axes.includes(fastest.name)) return 1;
    return slower.length > 0 && axes.includes(this.laneAxis) ? fastest.extent : undefined;
  }

  /** Whether an access is one element for all lanes of a step. */
  isUniform(target: Access): boolean {
    return !axesIn(this.access(target)).includes(this.laneAxis);
  }

  access(a: Access): Access {
    return { ...a, index: a.index.map((e) => this.index(e)) };
  }

  /** An index over loops as one over lanes and steps. */
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
    return binary("/", sumOf([...whole, ...inner], form.constant * denominator + offset), number(denominator));
  }

  /** A condition over loops as one over lanes and steps; `true` where there is none. */
  condition(e: Expr | undefined): Condition {
    if (e === undefined) return true;
    if (e.kind === "compare") {
      const [left, right] = [this.index(e.left), this.index(e.right)];
      return this.decided({ ...e, left, right }) ?? this.byLane({ ...e, left, right });
    }
    if (e.kind !== "logic") throw new Error(`internal: ${printExpr(e)} is not a condition`);
    const [left, right] = [this.condition(e.left), this.condition(e.right)];
    if (e.op === "and") return this.conjunction([left, right]);
    if (left === true || right === true) return true;
    if (left === false) return right;
    return right === false ? left : { ...e, left, right };
  }

  conjunction(all: readonly Condition[]): Condition {
    if (all.some((c) => c === false)) return false;
    const parts = all.flatMap((c) => (typeof c === "boolean" ? [] : conjuncts(c)));
    const texts = parts.map((c) => printExpr(c));
    const [first, ...rest] = parts.filter((_, i) => texts.indexOf(texts[i] ?? "") === i);
    return first ? rest.reduce((sum, c) => and(sum, c), first) : true;
  }

  /** A value over loops as one over lanes and steps; `read` says where a variable is found, undefined for a tensor. */
  value(e: Expr, read: (variable: string, distance: Vector) => Access | undefined): Expr {
    const again = (child: Expr): Expr => this.value(child, read);
    switch (e.kind) {
      case "number":
        return e;
      case "axis":
        return this.index(e);
      case "access":
        return read(e.tensor, distanceIn(e, this.flows.loops.length)) ?? this.access(e);
      case "cast":
      case "negate":
        return { ...e, value: again(e.value) };
      case "binary":
        return { ...e, left: again(e.left), right: again(e.right) };
      case "call":
        return { ...e, args: e.args.map(again) };
      case "select": {
        const condition = this.condition(e.condition);
        if (typeof condition === "boolean") return again(condition ? e.whenTrue : e.whenFalse);
        const [whenTrue, whenFalse] = [again(e.whenTrue), again(e.whenFalse)];
        return printExpr(whenTrue) === printExpr(whenFalse) ? whenTrue : { ...e, condition, whenTrue, whenFalse };
      }
      default:
        throw new Error(`internal: ${printExpr(e)} is not a value`);
    }
  }

  /** Where a lane holds a point at a step: the coordinates are whole and in the box. Loops that `where` pins need no check. */
  holdsPoint(where?: Expr): Condition {
    const pinned = new Set(
      (where === undefined ? [] : conjuncts(where)).map((c) =>
        c.kind === "compare" && c.op === "==" && c.left.kind === "axis" && c.right.kind === "number" ? c.left.name : "",
      ),
    );
    return this.conjunction([...this.wholeNumbers(), ...this.inBox(pinned), ...this.returns()]);
  }

  /** That tiles which stick out stay inside, for an element that the loops index. */
  tailsOf(target: Access): Condition[] {
    const indexing = new Set(axesIn(target));
    return this.flows.tails
      .filter((t) => axesIn(t.index).every((name) => indexing.has(name)))
      .map((t) => this.condition(compare("<", t.index, number(t.extent))));
  }

  private inBox(pinned: ReadonlySet<string> = new Set()): Condition[] {
    return this.source.flatMap((l) => {
      if (pinned.has(l.name)) return [];
      const at = axis(l.name);
      return [this.condition(compare(">=", at, number(0))), this.condition(compare("<", at, number(l.extent)))];
    });
  }

  private wholeNumbers(): Condition[] {
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
      return compare("==", binary("%", sumOf(terms, modulo(offset, modulus)), number(modulus)), number(0));
    });
  }

  /** A reverse transform of a user's may give a point of the box where none runs: its place must lead back. */
  private returns(): Condition[] {
    if (this.inverse) return [];
    const names = this.source.map((l) => l.name);
    const values = this.loopValues();
    const axes = [this.laneAxis, ...this.timeLoops.map((l) => l.name)];
    const equal = this.digits.map(({ row, least, value }) => {
      const back = sumOf(
        names.map((name, i) => ({ coefficient: row[i] ?? 0, value: values.get(name) ?? number(0) })),
        0,
      );
      return compare("==", back, binary("+", value, number(least)));
    });
    const inBox = this.conjunction(this.inBox());
    const wrong = new Set<Expr>();
    for (const at of pointsOf(axes, this.extents)) {
      if (typeof inBox !== "boolean" && evaluateIndex(inBox, at) === 0) continue;
      for (const e of equal) if (evaluateIndex(e, at) === 0) wrong.add(e);
    }
    return [...wrong];
  }

  /** Whether a comparison comes out the same at every lane and step. */
  private decided({ op, left, right }: Extract<Expr, { kind: "compare" }>): boolean | undefined {
    const [min, max] = boundsOf(binary("-", left, right), this.extents);
    switch (op) {
      case "<":
        return max < 0 ? true : min >= 0 ? false : undefined;
      case "<=":
        return max <= 0 ? true : min > 0 ? false : undefined;
      case ">":
        return min > 0 ? true : max <= 0 ? false : undefined;
      case ">=":
        return min >= 0 ? true : max < 0 ? false : undefined;
      case "==":
        return min === 0 && max === 0 ? true : min > 0 || max < 0 ? false : undefined;
      case "!=":
        return min === 0 && max === 0 ? false : min > 0 || max < 0 ? true : undefined;
      default:
        return op satisfies never;
    }
  }

  /** `t-lane < 16` as `lane > t-16`: lanes beside what is the same for all of them. */
  private byLane(e: Extract<Expr, { kind: "compare" }>): Expr {
    const form = affineForm(binary("-", e.left, e.right));
    const coefficient = form?.terms.get(this.laneAxis);
    if (!form || (coefficient !== 1 && coefficient !== -1)) return e;
    const others = [...form.terms].filter(([name]) => name !== this.laneAxis);
    const terms = others.map(([name, c]): Term => ({ coefficient: -coefficient * c, value: axis(name) }));
    const op = coefficient > 0 ? e.op : MIRRORED[e.op];
    return compare(op, axis(this.laneAxis), sumOf(terms, -coefficient * form.constant));
  }

  private loopValues(): ReadonlyMap<string, Expr> {
    return this.inverse ? new Map(this.source.map((l) => [l.name, this.index(axis(l.name))])) : this.given;
  }

  private takeReverse(destination: readonly string[], definitions: readonly ReverseDefinition[]): void {
    const known = new Map(
      destination.map((name, i): [string, Expr] => {
        const digit = this.digits[i];
        return [name, digit ? binary("+", digit.value, number(digit.least)) : number(0)];
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
}

/** The parts that must all hold. */
function conjuncts(e: Expr): Expr[] {
  return e.kind === "logic" && e.op === "and" ? [...conjuncts(e.left), ...conjuncts(e.right)] : [e];
}

function freshName(wanted: string, taken: readonly string[]): string {
  let name = wanted;
  while (taken.includes(name)) name += "_";
  return name;
}

const modulo = (a: number, b: number): number => a - b * Math.floor(a / b);
