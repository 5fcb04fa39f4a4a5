/**
 * @file The loop structure of plain loops: a row of neighbouring elements innermost, kept loops divided among threads outermost, summed loops
 * between.
 *
 *     y[n,c,p,q] max= x[n,c,p*2+r-1,q*2+s-1]       for parallel rest: n = rest/56/64, c = rest/56%64, p = rest%56; for r, s; for q
 */

import { affineForm, boundsOf } from "../../abstraction/affine.ts";
import { type Computation, extentsOf, targetOf, tensorOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  type Access,
  axesIn,
  axis,
  binary,
  compare,
  type Expr,
  number,
  substitute,
} from "../../abstraction/expression.ts";
import { loop, loops, type Statement } from "../../abstraction/loop-nest.ts";
import { type Run, rowAmong, runsOf } from "./loop-runs.ts";
import type { FreshNames } from "./names.ts";

/** Elements of a row. The sums of a row stay in the nearest cache; a row without sums is as long as pays for its loop. */
const SUMS = { most: 128, usual: 64 } as const;
const COPIED = { most: 1024, usual: 512 } as const;
/** Partial sums of a summed row: four vectors of 64 bytes hide the time of an addition. */
const PARTIAL_BYTES = 256;

/** How a run is walked as a row: its counter within a block, and the block's. */
export interface Row {
  readonly run: Run;
  readonly counter: string;
  readonly block: string;
  /** Steps of a block; the last block may have fewer. */
  readonly steps: number;
  readonly blocks: number;
}

/** Where a read lies inside of its tensor: for a whole row, and from one step of it to another. */
export interface Cut {
  readonly from: readonly Expr[];
  readonly to: readonly Expr[];
  readonly conditions: readonly Expr[];
}

export class RowLoops {
  readonly row: Row | undefined;
  /** What each loop of the computation is in the loops of the nest. */
  readonly places = new Map<string, Expr>();
  private readonly computation: Computation;
  private readonly names: FreshNames;
  private readonly kept: readonly Run[];
  private readonly summed: readonly Run[];
  private readonly rest: string;
  private readonly dealt: number;

  /** @param sums whether several points join an element */
  constructor(computation: Computation, names: FreshNames, sums: boolean) {
    this.computation = computation;
    this.names = names;
    const runs = runsOf(computation);
    const run = rowAmong(runs, computation);
    this.row = run && this.rowOf(run, sums ? SUMS : COPIED, PARTIAL_BYTES / bytesOf(targetOf(computation).dtype));
    this.kept = runs.filter((r) => r.kind === "spatial" && r !== run);
    this.summed = runs.filter((r) => r.kind === "reduce" && r !== run);
    this.rest = this.names.fresh("rest");
    this.dealt = this.placeKept(this.rest);
    for (const own of this.summed) this.place(own, axis(this.counterOf(own)));
    if (this.row) this.placeRow(this.row);
  }

  /** Kept loops, and blocks of a kept row: dealt to threads. */
  overKept(body: readonly Statement[]): Statement {
    return loop(this.rest, this.dealt, body, "parallel");
  }

  overSummed(body: readonly Statement[]): readonly Statement[] {
    return loops(
      this.summed.map((run) => ({ name: this.counterOf(run), extent: run.extent })),
      body,
    );
  }

  overRow(body: readonly Statement[], { from, to }: Pick<Cut, "from" | "to"> = { from: [], to: [] }): Statement[] {
    const { row } = this;
    if (!row) return [...body];
    const over = loop(row.counter, row.steps, body);
    // Where the last block of a kept row ends before others do.
    const isCut = row.run.kind === "spatial" && row.blocks * row.steps !== row.run.extent;
    const before = binary("*", this.places.get(row.block) ?? number(0), number(row.steps));
    const ends = isCut ? [binary("-", number(row.run.extent), before), ...to] : to;
    return [from.length + ends.length > 0 ? { ...over, range: { from, to: ends } } : over];
  }

  /** Whether an index or a condition is another at each step of the row. */
  growsAlongRow(e: Expr): boolean {
    const own = this.row?.run.axes ?? [];
    return axesIn(e).some((name) => own.some((a) => a.name === name));
  }

  /** Where a read lies inside; undefined where that is no matter of a row's ends. */
  cutAt(read: Access): Cut | undefined {
    const { dims } = tensorOf(this.computation, read.tensor);
    const extents = extentsOf(this.computation);
    const cut = { from: [] as Expr[], to: [] as Expr[], conditions: [] as Expr[] };
    for (const [d, e] of read.index.entries()) {
      const extent = dims[d]?.extent ?? 0;
      const [min, max] = boundsOf(e, extents);
      if (min >= 0 && max < extent) continue;
      const form = this.alongRow(e);
      if (!form) return undefined;
      const { factor, others } = form;
      if (min < 0 && factor === 0) cut.conditions.push(compare(">=", others, number(0)));
      if (min < 0 && factor > 0) cut.from.push(upwards(binary("-", number(0), others), factor));
      if (max >= extent && factor === 0) cut.conditions.push(compare("<", others, number(extent)));
      if (max >= extent && factor > 0) cut.to.push(upwards(binary("-", number(extent), others), factor));
    }
    return cut;
  }

  /** An index as `factor * row + others`; undefined where it grows with the row in another way. */
  private alongRow(e: Expr): { readonly factor: number; readonly others: Expr } | undefined {
    if (!this.growsAlongRow(e)) return { factor: 0, others: substitute(e, this.places, "index") };
    const [only, more] = this.row?.run.axes ?? [];
    const form = affineForm(e);
    const factor = (only && form?.terms.get(only.name)) ?? 0;
    if (!this.row || !only || more || !form || factor <= 0) return undefined;
    const { block, steps } = this.row;
    const begin = binary("*", this.places.get(block) ?? number(0), number(steps));
    return { factor, others: substitute(e, new Map([...this.places, [only.name, begin]]), "index") };
  }

  private rowOf(run: Run, { most, usual }: { readonly most: number; readonly usual: number }, partials: number): Row {
    const { extent, kind } = run;
    const kept = extent <= most ? extent : (divisor(extent, most) ?? usual);
    const steps = kind === "reduce" ? Math.min(partials, extent) : kept;
    const blocks = Math.ceil(extent / steps);
    return {
      ...{ run, steps, blocks },
      counter: blocks === 1 ? this.counterOf(run) : this.names.fresh("row"),
      block: this.names.fresh("row_block"),
    };
  }

  private counterOf({ axes }: Run): string {
    const name = axes.map((a) => a.name).join("_");
    return axes.length === 1 ? name : this.names.fresh(name);
  }

  /** Kept loops, and the blocks of a kept row, are digits of one number, which is dealt to threads. @returns how many there are */
  private placeKept(rest: string): number {
    const { row } = this;
    const blocks = row?.run.kind === "spatial" ? row.blocks : 1;
    const all = this.kept.reduce((points, run) => points * run.extent, blocks);
    const digit = (below: number, extent: number): Expr => {
      const high = binary("/", axis(rest), number(below));
      return below * extent === all ? high : binary("%", high, number(extent));
    };
    let below = blocks;
    for (const run of this.kept.toReversed()) {
      this.place(run, digit(below, run.extent));
      below *= run.extent;
    }
    if (row?.run.kind === "spatial" && blocks > 1) this.places.set(row.block, digit(1, blocks));
    return all;
  }

  private placeRow({ run, counter, block, steps, blocks }: Row): void {
    const from = blocks === 1 ? number(0) : (this.places.get(block) ?? axis(block));
    this.place(run, binary("+", binary("*", from, number(steps)), axis(counter)));
  }

  /** The loops of a run as digits of its counter. */
  private place(run: Run, at: Expr): void {
    let below = 1;
    for (const a of run.axes.toReversed()) {
      const high = binary("/", at, number(below));
      below *= a.extent;
      this.places.set(a.name, below === run.extent ? high : binary("%", high, number(a.extent)));
    }
  }
}

/** The least whole number that is not below `e / by`. */
const upwards = (e: Expr, by: number): Expr => binary("/", binary("+", e, number(by - 1)), number(by));

/** The largest divisor that is a row, not a short one. */
function divisor(extent: number, most: number): number | undefined {
  for (let d = most; d >= most / 4; d--) if (extent % d === 0) return d;
  return undefined;
}
