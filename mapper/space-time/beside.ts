/**
 * @file Unroll-and-jam around lanes: several steps of an outer loop run interleaved, each in separate registers; common subexpressions are computed
 * once.
 *
 *     for p in 0..2                                for lanes lane in 0..16
 *       for lanes lane in 0..16                      W[0,lane] = w[0]
 *         W[0,lane] = w[0]                     ->    Z[0,lane] = Z[0,lane] + x[2*p_block,lane] * W[0,lane]
 *         Z[0,lane] = Z[0,lane] + x[...] * W         Z[1,lane] = Z[1,lane] + x[2*p_block+1,lane] * W[0,lane]
 */

import { extentsBy, pointsOf } from "../../abstraction/affine.ts";
import { byName, namesOf, product } from "../../abstraction/collections.ts";
import { internal } from "../../abstraction/error.ts";
import { type Access, accessesIn, axesIn, type Equation, number, plus, rewrite } from "../../abstraction/expression.ts";
import type { Scalar, Statement, VectorFile } from "../../abstraction/loop-nest.ts";
import type { SourceLoop } from "../../abstraction/recurrence.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";

/** A body of loops around lanes, and the registers it uses. */
export interface OnLanes {
  readonly body: readonly Statement[];
  readonly vectors: readonly VectorFile[];
}

/**
 * Runs steps of some loops together.
 * @param nest contains loops of these names directly around the lanes or what repeats the lanes
 * @param loops outermost first; their steps do not depend on one another
 */
export function sideBySide(nest: OnLanes, loops: readonly SourceLoop[]): OnLanes {
  if (loops.length === 0) return nest;
  return new SideBySide(nest, loops).made();
}

class SideBySide {
  private readonly nest: OnLanes;
  private readonly names: readonly string[];
  private readonly extents: Readonly<Record<string, number>>;
  private readonly files: ReadonlyMap<string, VectorFile>;
  /** For each register file, the loops that its contents depend on. */
  private readonly differs = new Map<string, readonly string[]>();

  constructor(nest: OnLanes, loops: readonly SourceLoop[]) {
    this.nest = nest;
    this.names = namesOf(loops);
    this.extents = extentsBy(loops);
    this.files = byName(nest.vectors);
  }

  made(): OnLanes {
    // 1. The contents of a register depend on the indices and on the reads of its values. Iterated to a fixed point.
    const equations = scalarsIn(this.nest.body).map((s) => s.equation);
    for (let found = true; found; ) {
      found = false;
      for (const e of equations) {
        const file = e.target.tensor;
        if (!this.files.has(file)) continue;
        const by = this.namesOf(e);
        const known = this.differs.get(file) ?? [];
        const all = this.names.filter((name) => known.includes(name) || by.includes(name));
        if (all.length === known.length) continue;
        this.differs.set(file, all);
        found = true;
      }
    }
    // 2. Statements and registers are copied once for each combination of the loops they depend on.
    const vectors = this.nest.vectors.map((v) => ({ ...v, count: v.count * this.copiesOf(v.name) }));
    return { body: this.within(this.nest.body), vectors };
  }

  private within(body: readonly Statement[]): Statement[] {
    return body.flatMap((s): Statement[] => {
      if (s.kind === "scalar") return this.copies(s);
      if (s.kind !== "loop") internal(`a ${s.kind} around lanes`);
      if (this.names.includes(s.axis)) return this.within(s.body);
      return [{ ...s, body: this.within(s.body) }];
    });
  }

  private copies(s: Scalar): Statement[] {
    return [...pointsOf(this.namesOf(s.equation), this.extents)].map((point) => {
      const moved = (a: Access): Access => this.registerAt(a, point);
      const { equation } = s;
      const own: Equation = {
        ...equation,
        target: moved(equation.target),
        value: rewrite(equation.value, (e) => (e.kind === "access" ? moved(e) : e), "value"),
      };
      return Object.entries(point).reduce<Statement>(
        (statement, [name, at]) => substituteAxis(statement, name, number(at)),
        { ...s, equation: own },
      );
    });
  }

  /** The register of a copy. The first copy's registers come first. */
  private registerAt(a: Access, point: Readonly<Record<string, number>>): Access {
    const file = this.files.get(a.tensor);
    const [register, lane] = a.index;
    if (!file || !register || !lane) return a;
    const copy = (this.differs.get(a.tensor) ?? []).reduce(
      (n, name) => n * (this.extents[name] ?? 1) + (point[name] ?? 0),
      0,
    );
    return { ...a, index: [plus(register, copy * file.count), lane] };
  }

  private copiesOf(file: string): number {
    return product((this.differs.get(file) ?? []).map((name) => this.extents[name] ?? 1));
  }

  /** The loops that a statement depends on. */
  private namesOf({ target, value, where }: Equation): readonly string[] {
    const own = new Set([...axesIn(target), ...axesIn(value), ...(where ? axesIn(where) : [])]);
    const read = [target, ...accessesIn(value)].flatMap((a) => this.differs.get(a.tensor) ?? []);
    return this.names.filter((name) => own.has(name) || read.includes(name));
  }
}

function scalarsIn(body: readonly Statement[]): Scalar[] {
  return body.flatMap((s) => (s.kind === "scalar" ? [s] : s.kind === "loop" ? scalarsIn(s.body) : []));
}
