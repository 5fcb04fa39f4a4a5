/**
 * @file Rewrites the values and conditions of a design as functions of lane and step.
 *
 *     SBM, loops (c 16, q 5)      c == 15  ->  lane - t == 15        q == 7  ->  never
 */

import { affineForm, boundsOf, evaluateIndex, gcd, pointsOf } from "../../abstraction/affine.ts";
import { product } from "../../abstraction/collections.ts";
import { conjunctsOf, joined, settled, type Truth } from "../../abstraction/condition.ts";
import {
  type Access,
  allOf,
  axesIn,
  axis,
  changeParts,
  compare,
  type Expr,
  MIRRORED,
  minus,
  number,
  plus,
  printExpr,
  remainder,
} from "../../abstraction/expression.ts";
import { Coordinates, sumOf, type Term, type TimeWindow } from "./coordinates.ts";
import { distanceIn } from "./flow.ts";
import { dot, extentOfRow, leastOfRow, type Vector } from "./vector.ts";

/** The most points that are examined to find the last step. Beyond, all steps are kept. */
const MOST_POINTS = 100_000;

export class Places extends Coordinates {
  /**
   * The steps that are needed, if fewer than all: from the first that holds a point of the box to the last at which a
   * result leaves. Undefined if no step can be omitted, or there are too many points to examine.
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
    if (e.kind !== "logic") throw new Error(`internal: ${printExpr(e)} is not a condition`);
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
    const names = this.source.map((l) => l.name);
    const values = this.loopValues();
    const axes = [this.laneAxis, ...this.timeLoops.map((l) => l.name)];
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
