/**
 * @file Decides the direction in which values travel in a design, and what each PE computes. Chains are reversed if time would run backwards.
 *
 *     s.d > 0     passed on:  V[z] = select(z-d outside, load, V[z-d])
 *     s.d = 0     an input is broadcast: every PE loads it; a sum is formed across the PEs of one step
 *
 * Reductions over several loops are chained, innermost first. A chain breaks where moving to the next loop would take no
 * step; a second variable then continues from its result.
 */

import { affineForm, evaluateIndex, pointsOf } from "../../abstraction/affine.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  allOf,
  axesIn,
  axis,
  compare,
  type Expr,
  identityOf,
  number,
  printAccess,
  select,
} from "../../abstraction/expression.ts";
import { freshName } from "../../abstraction/loop-nest.ts";
import { chained, lengthAlong } from "./design.ts";
import { chainFrom, distanceIn, type Flows, joinedBy, type Outcome, outsideBox, type SumOp } from "./flow.ts";
import type { Places } from "./place.ts";
import { extentsOfLoops } from "./problem.ts";
import { nullSpace, printVector, scaled, type Vector } from "./vector.ts";

export interface PlannedRead {
  readonly variable: string;
  readonly steps: number;
}

/** A value over the loops; reads of variables are indexed by distance. */
interface PlannedValue {
  readonly expression: Expr;
  readonly reads: readonly PlannedRead[];
}

export interface PlannedVariable {
  readonly name: string;
  readonly dtype: DType;
  /**
   * Number of registers that hold a lane's whole working set, loaded once; 0 if values are streamed. Several are indexed
   * by the fastest row of the schedule.
   */
  readonly resident: number;
  /** Whether it is loaded when the fastest row of time begins, and kept during that round. */
  readonly anew: boolean;
  /** Values assigned in order at every step. */
  readonly values: readonly PlannedValue[];
}

interface PlannedStore {
  readonly target: Access;
  readonly value: PlannedValue;
  readonly where?: Expr;
  /** Set if all lanes contribute to one element. */
  readonly reduces?: SumOp;
}

export interface Plan {
  readonly variables: readonly PlannedVariable[];
  readonly stores: readonly PlannedStore[];
}

/** @param mostResident registers that one variable may fill ahead of the steps; 0 keeps every chain as it is */
export function plan(flows: Flows, places: Places, mostResident: number): Plan {
  const wiring = new Wiring(flows, places);
  for (const f of flows.flows) {
    const dtype = flows.variables[f.name] ?? "f32";
    const resident = f.kind === "fixed" ? undefined : places.valuesOfLane(f.load);
    if (f.kind === "fixed") wiring.add(f.name, dtype, [f.value]);
    else if (resident !== undefined && resident <= mostResident) wiring.add(f.name, dtype, [f.load], resident);
    else if (mostResident > 1 && places.staysForRound(f.load)) wiring.add(f.name, dtype, [f.load], 0, true);
    else wiring.add(f.name, dtype, [wiring.passedOn(f.name, f.load, f.directions)]);
  }
  for (const o of flows.outcomes) {
    if (o.kind === "sum") wiring.sum(o);
    else wiring.store(o.target, o.value, o.where);
  }
  return { variables: wiring.variables, stores: wiring.stores };
}

class Wiring implements Plan {
  readonly variables: PlannedVariable[] = [];
  readonly stores: PlannedStore[] = [];
  private readonly flows: Flows;
  private readonly places: Places;
  private readonly names: Set<string>;

  constructor(flows: Flows, places: Places) {
    this.flows = flows;
    this.places = places;
    this.names = new Set(Object.keys(flows.variables));
  }

  add(name: string, dtype: DType, values: readonly Expr[], resident = 0, anew = false): void {
    this.names.add(name);
    this.variables.push({ name, dtype, resident, anew, values: values.map((e) => this.value(e)) });
  }

  store(target: Access, value: Expr, where: Expr | undefined, reduces?: SumOp): void {
    const rest = { ...(where === undefined ? {} : { where }), ...(reduces === undefined ? {} : { reduces }) };
    this.stores.push({ target, value: this.value(value), ...rest });
  }

  passedOn(name: string, load: Expr, directions: readonly Vector[]): Expr {
    const chains = directions
      .filter((d) => this.isInside(d))
      .map((d) => this.forward(d))
      .filter((d) => this.places.stepsOf(d) > 0);
    const along = chains.map((d) => ({ distance: d, along: d }));
    return chainFrom(this.flows.loops, along, load, (d) => read(name, d));
  }

  sum(outcome: Extract<Outcome, { kind: "sum" }>): void {
    const { name, target, op } = outcome;
    const dtype = this.flows.variables[name] ?? "f32";
    const identity = number(identityOf(op, dtype));
    const directions = this.directionsOf(outcome).map((d) => this.forward(d));
    const steps = (d: Vector): number => this.places.stepsOf(d);
    const timed = directions.filter((d) => steps(d) > 0).toSorted((a, b) => steps(a) - steps(b));
    const still = directions.filter((d) => steps(d) === 0);

    // 1. Build chains, extending each while the next loop advances time.
    const { loops } = this.flows;
    const levels = chained(timed, steps, extentsOfLoops({ loops }));
    let held = this.guarded(outcome, identity);
    const count = levels.length + (still.length > 0 ? 1 : 0);
    const nameOf = (level: number): string => this.free(count > 1 ? `${name}${level + 1}` : name, name);
    for (const [l, level] of levels.entries()) {
      const variable = nameOf(l);
      const before = chainFrom(loops, level, identity, (distance) => read(variable, distance));
      this.add(variable, dtype, [joinedBy(op, before, held)]);
      held = read(variable);
    }
    const ends = (all: readonly Vector[]): Expr | undefined =>
      (levels.length === 1 && still.length === 0 ? this.lastPoint(all) : undefined) ??
      allOf(all.map((d) => outsideBox(loops, scaled(d, -1))));

    // 2. Sums within one step: a reduction if all lanes share the element, else prefixes whose reach doubles (Kogge and
    //    Stone).
    if (still.length > 0 && this.places.isUniform(target)) {
      if (levels.length === 0) {
        const variable = nameOf(0);
        this.add(variable, dtype, [held]);
        held = read(variable);
      }
      this.store(target, held, ends(timed), op);
      return;
    }
    if (still.length > 0) {
      const variable = nameOf(levels.length);
      const values = [held];
      for (const d of still)
        for (let reach = 1; reach < lengthAlong(d, extentsOfLoops({ loops })); reach *= 2) {
          const further = scaled(d, reach);
          const before = select(outsideBox(loops, further), identity, read(variable, further));
          values.push(joinedBy(op, read(variable), before));
        }
      this.add(variable, dtype, values);
      held = read(variable);
    }
    if (levels.length === 0 && still.length === 0) {
      const variable = nameOf(0);
      this.add(variable, dtype, [held]);
      held = read(variable);
    }
    this.store(target, held, ends([...timed, ...still]));
  }

  /**
   * The last point of a chain whose loops have partial tiles, which is before the last step of the box. Undefined
   * without partial tiles.
   */
  private lastPoint(directions: readonly Vector[]): Expr | undefined {
    const { loops, tails } = this.flows;
    const summed = loops.filter((_, i) => directions.some((d) => d[i] !== 0));
    const names = summed.map((l) => l.name);
    const own = tails.filter((t) => axesIn(t.index).every((name) => names.includes(name)));
    if (own.length === 0 || summed.length !== directions.length) return undefined;
    let last: { readonly step: number; readonly at: Readonly<Record<string, number>> } | undefined;
    for (const at of pointsOf(names, Object.fromEntries(summed.map((l) => [l.name, l.extent])))) {
      if (own.some((t) => evaluateIndex(t.index, at) >= t.extent)) continue;
      const step = this.places.stepsOf(loops.map((l) => at[l.name] ?? 0));
      if (!last || step > last.step) last = { step, at };
    }
    return last && allOf(names.map((name) => compare("==", axis(name), last?.at[name] ?? 0)));
  }

  /** The vectors inside the array along which a sum runs. */
  private directionsOf({ target, directions, name }: Extract<Outcome, { kind: "sum" }>): Vector[] {
    const { loops } = this.flows;
    const { source } = this.places;
    const rows = target.index.map((e) => {
      const form = affineForm(e);
      if (!form)
        throw new UsageError(`${this.flows.name}: ${printAccess(target)} is not affine, so no sum can be followed`);
      return source.map((l) => form.terms.get(l.name) ?? 0);
    });
    const basis = nullSpace(rows, source.length).map((d) =>
      loops.map((l) => {
        const at = source.indexOf(l);
        return at < 0 ? 0 : (d[at] ?? 0);
      }),
    );
    if (basis.length === 1) {
      const written = directions.filter((d) => this.isInside(d));
      return written.length === 1 ? written : basis;
    }
    if (basis.some((d) => d.filter((x) => x !== 0).length > 1))
      throw new UsageError(
        `${this.flows.name}: ${name} is summed along ${basis.map(printVector).join(" and ")}; several directions must be loops`,
      );
    return basis;
  }

  /** The term that a point adds; the identity beyond the end of a partial tile. */
  private guarded({ target, term }: Extract<Outcome, { kind: "sum" }>, identity: Expr): Expr {
    const indexing = new Set(axesIn(target));
    const tails = this.flows.tails.filter((t) => !axesIn(t.index).every((loop) => indexing.has(loop)));
    const inside = allOf(tails.map((t) => compare("<", t.index, t.extent)));
    return inside === undefined ? term : select(inside, term, identity);
  }

  /** The direction or its opposite, so that time does not run backwards. */
  private forward(d: Vector): Vector {
    return this.places.stepsOf(d) < 0 ? scaled(d, -1) : d;
  }

  /** Whether a step along a direction stays in the array and in the box. */
  private isInside(d: Vector): boolean {
    return this.flows.loops.every(
      (l, i) => d[i] === 0 || (this.places.source.includes(l) && Math.abs(d[i] ?? 0) < l.extent),
    );
  }

  private value(expression: Expr): PlannedValue {
    const reads = accessesIn(expression)
      .filter((a) => this.names.has(a.tensor))
      .map((a) => ({
        variable: a.tensor,
        steps: this.places.stepsOf(distanceIn(a, this.flows.loops.length)),
      }));
    return { expression, reads };
  }

  /** An unused name. A sum keeps the name of its variable. */
  private free(wanted: string, own: string): string {
    const taken = new Set([
      ...this.variables.map((v) => v.name),
      ...Object.keys(this.flows.variables).filter((v) => v !== own),
      ...Object.keys(this.flows.tensors),
      ...this.flows.loops.map((l) => l.name),
    ]);
    return freshName(wanted, taken);
  }
}

const read = (variable: string, distance: Vector = []): Access => access(variable, distance.map(number));
