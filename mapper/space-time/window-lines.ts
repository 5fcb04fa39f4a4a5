/**
 * @file Blocks of a window whose rows come as lines: whole vectors that begin where the vectors of outputs begin. Lanes
 * take the columns of the window from two neighbouring lines. A load that crosses a line of the cache costs two.
 *
 *     L[0,lane + 32] = in[i-1,16*b + lane + 16]         of a row above, the only line of it that is new to this block
 *     X[0,lane] = L[0,lane + 15]                        the column before
 *     A[0,lane] = X[0,lane] * w[0,0]
 *     ...
 *     L[0,lane] = L[0,lane + 16]                        carried: the next block begins with the lines that this one ends with
 *     L[0,lane + 16] = L[0,lane + 32]
 *
 * What lies outside a row is zero, so that rows need no tests at their ends. Carried lines also keep loads ahead of
 * stores: a load waits if its address equals that of a recent store modulo 4096.
 */

import type { WindowSchedule } from "../../abstraction/candidate.ts";
import { groupsOf, sumOf, upTo } from "../../abstraction/collections.ts";
import { type Access, access, axis, type Expr, number, plus } from "../../abstraction/expression.ts";
import { assign, type Statement, type VectorFile } from "../../abstraction/loop-nest.ts";
import { shiftAt, type TapSum } from "./taps.ts";
import {
  type Block,
  BlockWriter,
  type Load,
  movedShift,
  type Origin,
  outputRows,
  shiftText,
  type Tall,
} from "./window-block.ts";

/** A row of data that a block reads. */
interface LineRow {
  /** Its columns, as distances from the output's. */
  readonly columns: ReadonlySet<number>;
  /** The first line that a vector of outputs reads, in vectors from its own. */
  readonly first: number;
  /** Lines that neighbouring vectors of outputs have in common. */
  readonly kept: number;
}

function lineRow(columns: ReadonlySet<number>, lanes: number): LineRow {
  const first = Math.floor(Math.min(...columns) / lanes);
  return { columns, first, kept: Math.ceil(Math.max(...columns) / lanes) - first };
}

/** The rows of data that a block of `rows` rows reads. */
export function lineRows(
  sum: TapSum,
  { rows, planes = 1, lanes }: Pick<WindowSchedule, "rows" | "planes" | "lanes">,
): readonly LineRow[] {
  const columns = new Map<string, Set<number>>();
  for (const tap of sum.taps)
    for (const row of outputRows({ rows, planes })) {
      const key = shiftText(movedShift(sum, tap.shift, row).slice(0, -1));
      columns.set(key, (columns.get(key) ?? new Set()).add(shiftAt(tap, tap.shift.length - 1)));
    }
  return [...columns.values()].map((of) => lineRow(of, lanes));
}

/** Registers for lines: those of all rows if they are carried, or those of one row. */
export function lineRegisters(
  rows: readonly LineRow[],
  { vectors, lines }: Pick<WindowSchedule, "vectors" | "lines">,
): number {
  const kept = rows.map((row) => row.kept);
  return vectors + (lines === "carried" ? sumOf(kept) : Math.max(...kept));
}

/** Whether a column is loaded by itself although lines hold it: every second one, so that loads and shifts balance. */
export function isLoadedBeside(column: number, { lanes, lines }: Pick<WindowSchedule, "lanes" | "lines">): boolean {
  return lines === "mixed" && column % 2 === 0 && column % lanes !== 0;
}

/** A row of data of a block: its loads, and where its lines are. */
interface Row extends LineRow {
  readonly loads: readonly Load[];
  /** Its register. */
  readonly register: number;
}

export class LineWriter extends BlockWriter {
  private readonly isCarried = this.schedule.lines === "carried";
  private readonly file = this.names.fresh("L");
  private held = 0;
  private widest = 0;

  override vectors(): readonly VectorFile[] {
    const { lanes, vectors } = this.schedule;
    const { dtype } = this.sum.output;
    const own = { name: this.file, dtype, lanes: lanes * (vectors + this.widest), count: this.held };
    return this.held === 0 ? super.vectors() : [...super.vectors(), own];
  }

  protected override whole(): { readonly begin: number; readonly end: number } {
    const { lanes } = this.schedule;
    const { first, kept } = lineRow(new Set(this.sum.shifts.at(-1)), lanes);
    const inside = Math.min(Math.floor(this.extent / lanes), Math.floor(this.places / lanes) - first - kept);
    const end = Math.max(0, inside);
    // What is carried into the first block may lie outside.
    return { begin: this.isCarried ? 0 : Math.min(end, Math.max(0, -first)), end };
  }

  protected override before(at: Origin, tall: Tall): readonly Statement[] {
    const lines = this.isCarried ? [this.files.onLanes(this.firstLines(at, tall))] : [];
    return [...super.before(at, tall, true), ...lines];
  }

  /** The lines that the first block along the rows finds in registers. */
  private firstLines(at: Origin, tall: Tall): Statement[] {
    const start: Origin = new Map([...at, [this.sum.laneAxis, number(0)]]);
    return this.rowsOf(tall).flatMap((row) => this.linesOf(start, row, 0, row.kept, 0));
  }

  protected override stretch(at: Origin, block: Block): readonly Statement[] {
    const body: Statement[] = [];
    const begun = new Set<number>();
    const each = upTo(block.vectors);
    for (const row of this.rowsOf(block)) {
      if (row.kept > 0)
        body.push(...this.linesOf(at, row, this.isCarried ? row.kept : 0, row.kept + block.vectors, block.first));
      for (const load of row.loads) {
        for (const v of each) body.push(this.assign("X", v, "=", this.dataOf(load, row, at, v)));
        body.push(...this.products(load, begun, at, { ...block, interior: true }));
      }
      if (this.isCarried)
        for (let part = 0; part < row.kept; part++)
          body.push(this.lined(row, part, this.line(row, part + block.vectors)));
    }
    return [this.files.onLanes([...body, ...this.stores(at, block)])];
  }

  /** The elements that a load brings to a vector of outputs. */
  private dataOf(load: Load, row: Row, at: Origin, v: number): Access {
    const { lanes } = this.schedule;
    const column = shiftAt(load.tap, this.sum.shifts.length - 1);
    if (row.kept === 0 || isLoadedBeside(column, this.schedule))
      return this.read(this.shiftOf(load.tap, load.row), at, v * lanes);
    return this.line(row, v - row.first, column);
  }

  /** The rows of data of a block, in the order of memory. */
  private rowsOf(tall: Tall): readonly Row[] {
    const rows = groupsOf(this.loads(tall), ({ tap, row }) => this.rowKey(tap, row));
    let registers = 0;
    return [...rows.values()].map((loads): Row => {
      const columns = new Set(loads.map(({ tap }) => shiftAt(tap, this.sum.shifts.length - 1)));
      const row = lineRow(columns, this.schedule.lanes);
      return { ...row, loads, register: this.isCarried && row.kept > 0 ? registers++ : 0 };
    });
  }

  /** Loads of the lines `from .. to-1` of a row. */
  private linesOf(at: Origin, row: Row, from: number, to: number, known: number | undefined): Statement[] {
    const [load] = row.loads;
    if (!load) throw new Error("internal: a row that nothing reads");
    const { lanes } = this.schedule;
    const shift = this.shiftOf(load.tap, load.row).with(-1, number(0));
    return upTo(to - from).map((i) => {
      const line = row.first + from + i;
      const place = known === undefined ? undefined : (known + line) * lanes;
      const isOutside = place !== undefined && (place <= -lanes || place >= this.places);
      return this.lined(row, from + i, isOutside ? number(0) : this.read(shift, at, line * lanes));
    });
  }

  /** A vector of a row's lines, or one so many columns on. */
  private line({ register, kept }: Row, part: number, column = 0): Access {
    this.held = Math.max(this.held, register + 1);
    this.widest = Math.max(this.widest, kept);
    const from = number(part * this.schedule.lanes + column);
    return access(this.file, [number(register), plus(axis(this.files.lane), from)]);
  }

  private lined(row: Row, part: number, value: Expr): Statement {
    return assign(this.line(row, part), value);
  }
}
