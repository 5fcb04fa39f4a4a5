/**
 * @file The structure of plain loops: kept loops outermost and divided among threads, then summed loops, then a row of
 * neighbouring elements innermost.
 *
 *     y[n,c,p,q] max= x[n,c,p*2+r-1,q*2+s-1]       for parallel rest: n = rest/56/64, c = rest/56%64, p = rest%56; for r, s; for q
 *
 * Loops that are contiguous in every tensor, and the choice of the loop that becomes the row.
 *
 *     y[n,c,p,q] = x[n,c,p,q] + b[c]       runs  n   c   p,q         the row is p,q: side by side in y and x, one element of b
 */

import { addressOf, affineForm, boundsOf, splitRowMajor } from "../../abstraction/affine.ts";
import { hasName, namesOf, sortedBy, volumeOf } from "../../abstraction/collections.ts";
import {
  type Axis,
  type Computation,
  extentsOf,
  keptIn,
  summedIn,
  type Tensor,
  targetOf,
  tensorOf,
} from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import {
  type Access,
  accessesOf,
  axesIn,
  axis,
  compare,
  type Equation,
  type Expr,
  minus,
  number,
  over,
  plus,
  rewrite,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { FreshNames, loop, loops, type Statement } from "../../abstraction/loop-nest.ts";
import { PARTIAL_BYTES } from "./partial-sums.ts";

/** Elements in a row. The sums of a row must stay in L1. A row without sums is long enough to amortise its loop. */
const SUMS = { most: 128, usual: 64 } as const;
const COPIED = { most: 1024, usual: 512 } as const;

/** A run that is walked as a row: the counter within a block of the row, and the counter of the blocks. */
export interface Row {
  readonly run: Run;
  readonly counter: string;
  readonly block: string;
  /** Steps in a block; the last block may have fewer. */
  readonly steps: number;
  readonly blocks: number;
}

/**
 * The condition for a read to be inside its tensor: lower and upper ends for the steps of the row, and conditions on
 * the whole row.
 */
export interface Cut {
  readonly from: readonly Expr[];
  readonly to: readonly Expr[];
  readonly conditions: readonly Expr[];
}

export class RowLoops {
  readonly row: Row | undefined;
  /** The value of each loop of the computation in terms of the loops of the nest. */
  readonly places = new Map<string, Expr>();
  protected readonly computation: Computation;
  protected readonly names: FreshNames;
  private readonly kept: readonly Run[];
  private readonly summed: readonly Run[];
  private readonly rest: string;
  private readonly dealt: number;

  /** @param sums whether several points contribute to one element */
  constructor(computation: Computation, sums: boolean) {
    this.computation = computation;
    this.names = new FreshNames(computation);
    const runs = runsOf(computation);
    const run = rowAmong(runs, computation);
    this.row = run && this.rowOf(run, sums ? SUMS : COPIED, PARTIAL_BYTES / bytesOf(targetOf(computation).dtype));
    this.kept = keptIn(runs).filter((r) => r !== run);
    this.summed = summedIn(runs).filter((r) => r !== run);
    this.rest = this.names.fresh("rest");
    this.dealt = this.placeKept(this.rest);
    for (const own of this.summed) this.place(own, axis(this.counterOf(own)));
    if (this.row) this.placeRow(this.row);
  }

  /** The parallel loop over kept loops and over the blocks of a kept row. */
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
    // The last block of a kept row may be shorter than the others.
    const isCut = row.run.kind === "spatial" && row.blocks * row.steps !== row.run.extent;
    const before = times(this.places.get(row.block) ?? 0, row.steps);
    const ends = isCut ? [minus(row.run.extent, before), ...to] : to;
    return [from.length + ends.length > 0 ? { ...over, range: { from, to: ends } } : over];
  }

  /** Whether an index or a condition depends on the row's loops. */
  growsAlongRow(e: Expr): boolean {
    const own = this.row?.run.axes ?? [];
    return axesIn(e).some((name) => hasName(own, name));
  }

  /** The first step of the row at which an index reaches a limit; undefined if that cannot be expressed. */
  stepReaching(e: Expr, limit: number): Expr | undefined {
    const form = this.alongRow(e);
    return form && form.factor > 0 ? upwards(minus(limit, form.others), form.factor) : undefined;
  }

  /** Where a read is inside its tensor; undefined if that cannot be expressed by the ends of a row. */
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
      if (min < 0 && factor === 0) cut.conditions.push(compare(">=", others, 0));
      if (min < 0 && factor > 0) cut.from.push(upwards(minus(0, others), factor));
      if (max >= extent && factor === 0) cut.conditions.push(compare("<", others, extent));
      if (max >= extent && factor > 0) cut.to.push(upwards(minus(extent, others), factor));
    }
    return cut;
  }

  /** An index as `factor * row + others`; undefined if it depends on the row in another way. */
  private alongRow(e: Expr): { readonly factor: number; readonly others: Expr } | undefined {
    if (!this.growsAlongRow(e)) return { factor: 0, others: substitute(e, this.places, "index") };
    const [only, more] = this.row?.run.axes ?? [];
    const form = affineForm(e);
    const factor = (only && form?.terms.get(only.name)) ?? 0;
    if (!this.row || !only || more || !form || factor <= 0) return undefined;
    const { block, steps } = this.row;
    const begin = times(this.places.get(block) ?? 0, steps);
    return { factor, others: substitute(e, new Map([...this.places, [only.name, begin]]), "index") };
  }

  private rowOf(run: Run, { most, usual }: { readonly most: number; readonly usual: number }, partials: number): Row {
    const { extent, kind } = run;
    const kept = extent <= most ? extent : (divisor(extent, most) ?? usual);
    const steps = kind === "reduce" ? Math.min(partials, extent) : kept;
    const blocks = Math.ceil(extent / steps);
    return {
      run,
      steps,
      blocks,
      counter: blocks === 1 ? this.counterOf(run) : this.names.fresh("row"),
      block: this.names.fresh("row_block"),
    };
  }

  private counterOf({ axes }: Run): string {
    const name = namesOf(axes).join("_");
    return axes.length === 1 ? name : this.names.fresh(name);
  }

  /**
   * Places kept loops and the blocks of a kept row as the digits of one number, which is divided among threads.
   * @returns the extent of that number
   */
  private placeKept(rest: string): number {
    const { row } = this;
    const isCut = row?.run.kind === "spatial" && row.blocks > 1;
    const blocks = isCut ? [runOf([{ name: row.block, extent: row.blocks, kind: "spatial" }])] : [];
    const dealt = [...this.kept, ...blocks];
    for (const [run, digit] of splitRowMajor(axis(rest), dealt)) this.place(run, digit);
    return volumeOf(dealt);
  }

  private placeRow({ run, counter, block, steps, blocks }: Row): void {
    const from = blocks === 1 ? number(0) : (this.places.get(block) ?? axis(block));
    this.place(run, plus(times(from, steps), axis(counter)));
  }

  /** Places the loops of a run as the digits of its counter. */
  private place(run: Run, at: Expr): void {
    for (const [a, digit] of splitRowMajor(at, run.axes)) this.places.set(a.name, digit);
  }
}

/** `e / by`, rounded up. */
const upwards = (e: Expr, by: number): Expr => over(plus(e, by - 1), by);

/** The largest divisor of at most `most` and at least a quarter of it. */
export function divisor(extent: number, most: number): number | undefined {
  for (let d = most; d >= most / 4; d--) if (extent % d === 0) return d;
  return undefined;
}

// ---- contiguous loops ---------------------------------------------------------------------------------------------------------------------

/** Neighbouring loops of one kind that are walked as one, outermost first. */
interface Run {
  readonly axes: readonly Axis[];
  readonly kind: Axis["kind"];
  readonly extent: number;
}

/** The distance in elements by which a step of each loop moves an access; undefined if it is not constant. */
type Strides = ReadonlyMap<string, number> | undefined;

interface Read {
  readonly access: Access;
  readonly tensor: Tensor;
  readonly strides: Strides;
}

/** What a point computes, and what an epilogue makes of it. */
const equationsOf = ({ equation, epilogue }: Computation): readonly Equation[] =>
  epilogue ? [equation, epilogueAt(epilogue, equation.target.index, number(0))] : [equation];

/** All accesses of a point to memory. With an epilogue, the sum itself is not one. */
function readsOf(computation: Computation): Read[] {
  return equationsOf(computation)
    .flatMap(accessesOf)
    .filter((a) => a.tensor !== computation.epilogue?.sum.name)
    .map((access) => {
      const tensor = tensorOf(computation, access.tensor);
      return { access, tensor, strides: affineForm(addressOf(tensor, access.index))?.terms };
    });
}

function runsOf(computation: Computation): Run[] {
  const reads = readsOf(computation);
  const apart = axesApart(computation);
  const plain = ({ name, extent }: Axis): boolean =>
    !apart.has(name) &&
    reads.every(({ access, tensor }) =>
      access.index.every(
        (e, d) => !axesIn(e).includes(name) || (e.kind === "axis" && (tensor.dims[d]?.extent ?? 0) >= extent),
      ),
    );
  const follows = (outer: Axis, inner: Axis): boolean =>
    reads.every(
      ({ strides }) => strides && (strides.get(outer.name) ?? 0) === (strides.get(inner.name) ?? 0) * inner.extent,
    );
  const runs: Axis[][] = [];
  for (const a of computation.axes) {
    const last = runs.at(-1);
    const before = last?.at(-1);
    if (last && before && before.kind === a.kind && plain(before) && plain(a) && follows(before, a)) last.push(a);
    else runs.push([a]);
  }
  return runs.map(runOf);
}

const runOf = (axes: readonly Axis[]): Run => ({
  axes,
  kind: axes[0]?.kind ?? "spatial",
  extent: volumeOf(axes),
});

/** Loops whose counters appear in values or conditions, outside tensor indices. */
function axesApart(computation: Computation): ReadonlySet<string> {
  const bare = (e: Expr): string[] =>
    axesIn(rewrite(e, (node) => (node.kind === "access" ? number(0) : node), "value"));
  return new Set(
    equationsOf(computation).flatMap(({ value, where }) => [...bare(value), ...(where ? axesIn(where) : [])]),
  );
}

/** A run with fewer steps is penalised as a row. */
const SHORT = 8;

/** The run to vectorise as the row: the one along which most tensors are contiguous. */
function rowAmong(runs: readonly Run[], computation: Computation): Run | undefined {
  const reads = readsOf(computation);
  const costOf = ({ axes, kind, extent }: Run): number => {
    const innermost = axes.at(-1)?.name ?? "";
    const strides = reads.map((r) => (r.strides ? Math.abs(r.strides.get(innermost) ?? 0) : 2));
    // The partial sums of a summed row have to be combined at the end.
    const steps = strides.filter((s) => s > 1).length + (kind === "reduce" ? 1 : 0);
    return steps + (extent < SHORT ? reads.length : 0) - Math.min(extent, 1024) / 2048;
  };
  return sortedBy(runs, costOf)[0];
}
