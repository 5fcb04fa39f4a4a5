/**
 * @file Lowers one row of a time step: whole vectors of columns, and separate code at both ends of the row.
 *
 *     line0_0 = u[row,j,k-16 .. k-1]; line0_1 = u[row,j,k .. k+15]; line0_2 = u[row,j,k+16 .. k+31]      each line of the cache is read once
 *     next[row,j,k .. k+15] = f(lanes_from<15>(line0_0, line0_1), line0_1, lanes_from<1>(line0_1, line0_2), u[row-1,j,k .. k+15], ...)
 *
 * A row that is read at several columns is loaded into registers, with zeros at its ends: a load that crosses a line
 * costs as much as two.
 */

import type { StepSchedule } from "../../abstraction/candidate.ts";
import { upTo } from "../../abstraction/collections.ts";
import {
  access,
  allOf,
  axis,
  between,
  binary,
  border,
  type Expr,
  number,
  plus,
  select,
  times,
} from "../../abstraction/expression.ts";
import { assign, loop, type Scalar, type Statement, type VectorFile } from "../../abstraction/loop-nest.ts";
import { inBlock, linesOf } from "./step-lines.ts";
import type { Level } from "./step-memory.ts";
import { StepPasses } from "./step-passes.ts";

/**
 * Columns of one statement: one of them, lanes whose neighbours lie inside the row, lanes at an end of it, or lanes
 * that may lie beyond an end themselves.
 */
type Columns = "one" | "inside" | "end" | "beyond";

/** A vector in a block whose lines are in registers, and its row. */
interface InBlock {
  readonly rows: number;
  readonly vector: number;
  readonly row: number;
  readonly lane: Expr;
}

export abstract class StepRows extends StepPasses<StepSchedule> {
  private readonly lineFile = this.names.fresh("line");

  protected lineRegisters(): readonly VectorFile[] {
    const { lanes, vectors, rows } = this.schedule;
    const count = linesOf(this.steps, this.schedule, rows).length;
    return count === 0 ? [] : [{ name: this.lineFile, dtype: this.dtype, lanes: lanes * (vectors + 2), count }];
  }

  /** The columns of a row: whole vectors where all neighbours are inside, single columns elsewhere. */
  protected columns(level: Level, isInterior: boolean): readonly Statement[] {
    // Rows at the plane's border are tested.
    if (level.from.kind === "plane" && !isInterior) {
      const tests = this.rows.flatMap((along, d) => {
        const place = level.places[d];
        return along.border === "zero" && along.reach > 0 && place
          ? [between(place, along.reach, along.extent - along.reach)]
          : [];
      });
      const condition = allOf(tests);
      if (condition)
        return [{ kind: "when", condition, body: this.columns(level, true), otherwise: this.line(level, false) }];
    }
    return this.line(level, true);
  }

  /**
   * Whole vectors that begin at lines of the cache. Of a row with zeros around it lanes at its ends read nothing. Of
   * others columns that reach beyond the row are done one by one, and a vector more at either end, which overlaps its
   * neighbours, does the rest.
   */
  private line(level: Level, isInterior: boolean): readonly Statement[] {
    if (linesOf(this.steps, this.schedule, 1).length > 0) return this.blocks(level, isInterior, 1);
    const { extent, reach, name, border: how } = this.lane;
    const { lanes, vectors } = this.schedule;
    const body: Statement[] = [];
    const columns = (from: number, to: number): void => {
      const column = this.names.fresh(`${name}_column`);
      const at = plus(axis(column), from);
      if (to > from) body.push(loop(column, to - from, [this.statement(level, at, isInterior, "one")]));
    };
    const vector = (from: Expr, width: number, place: "inside" | "end"): Statement => {
      const lane = this.names.fresh("lane");
      const vectors = upTo(Math.ceil(width / lanes)).map((v) => plus(from, v * lanes));
      const body = vectors.map((first) => ({
        ...this.statement(level, plus(first, axis(lane)), isInterior, place),
        ...(level.ahead && { prefetch: this.element(level.ahead.plane, level, [...level.ahead.places, first]) }),
      }));
      return loop(lane, Math.min(width, lanes), body, "lanes");
    };
    const whole = (from: number, to: number): number => {
      let done = from;
      for (const width of new Set([lanes * vectors, lanes])) {
        const block = this.names.fresh(`${name}_block`);
        const count = Math.floor((to - done) / width);
        if (count <= 0) continue;
        const at = plus(times(axis(block), width), done);
        body.push(loop(block, count, [vector(at, width, "inside")]));
        done += count * width;
      }
      return done;
    };
    const head = Math.ceil(reach / lanes) * lanes;
    const end = extent - reach;
    if (how === "zero") {
      const ends = (from: number, to: number): void => {
        for (let at = from; at < to; at += lanes) body.push(vector(number(at), Math.min(lanes, to - at), "end"));
      };
      ends(0, Math.min(head, extent));
      ends(whole(head, end), extent);
      return body;
    }
    if (end - reach < lanes) {
      columns(0, extent);
      return body;
    }
    columns(0, reach);
    if (head > reach) body.push(vector(number(reach), lanes, "inside"));
    if (whole(head, end) < end) body.push(vector(number(end - lanes), lanes, "inside"));
    columns(end, extent);
    return body;
  }

  /**
   * Blocks of vectors, of one row or of two planes' rows together. What is read at several columns, or by both, comes into registers first: the
   * vectors of the block, and one more at either side.
   */
  protected blocks(level: Level, isInterior: boolean, rows: number): readonly Statement[] {
    const { extent, name } = this.lane;
    const width = this.schedule.lanes * this.schedule.vectors;
    // Blocks whose neighbours on both sides are inside, and the others.
    const inner = Math.max(0, Math.floor((extent - this.schedule.lanes) / width) - 1);
    const block = this.names.fresh(`${name}_block`);
    const at = plus(times(axis(block), width), width);
    const edge = (from: number) =>
      this.block(level, number(from), isInterior, rows, Math.min(width, extent - from), "beyond");
    const after = upTo(Math.ceil(extent / width) - 1 - inner).map((i) => (inner + 1 + i) * width);
    return [
      ...edge(0),
      ...(inner > 0 ? [loop(block, inner, this.block(level, at, isInterior, rows, width, "inside"))] : []),
      ...after.flatMap(edge),
    ];
  }

  /** So many columns from one on. */
  private block(
    level: Level,
    at: Expr,
    isInterior: boolean,
    rows: number,
    width: number,
    of: "inside" | "beyond",
  ): readonly Statement[] {
    const { lanes } = this.schedule;
    const lane = { kind: "axis", name: this.names.fresh("lane") } as const;
    const column = (vector: number): Expr => plus(at, vector * lanes);
    const vectors = Math.ceil(width / lanes);
    const loads = linesOf(this.steps, this.schedule, rows).flatMap((line, i) => {
      const first = Math.min(...line.columns) < 0 ? -1 : 0;
      const last = vectors - (Math.max(...line.columns) > 0 ? 0 : 1);
      return upTo(last - first + 1).map((part): Scalar => {
        const places = [...level.places, plus(column(first + part), lane)];
        const value = this.read([...line.rows, 0], level, places, isInterior, of);
        return assign(access(this.lineFile, [number(i), plus(lane, (first + part + 1) * lanes)]), value);
      });
    });
    const computed = (vector: number): Statement[] =>
      upTo(rows).map((row) => {
        const own = this.below(level, row);
        return {
          ...this.statement(own, plus(column(vector), lane), isInterior, of, { rows, vector, row, lane }),
          ...(own.ahead && { prefetch: this.element(own.ahead.plane, own, [...own.ahead.places, column(vector)]) }),
        };
      });
    const whole = Math.floor(width / lanes);
    const full = upTo(whole).flatMap((vector) => computed(vector));
    const rest = width % lanes;
    const body = loop(lane.name, lanes, [...loads, ...full], "lanes");
    return rest === 0 ? [body] : [body, loop(lane.name, rest, computed(whole), "lanes")];
  }

  /** Of a block of rows, the one so many on: a plane further each, and a row back. */
  private below(level: Level, row: number): Level {
    if (row === 0) return level;
    const at = (places: readonly Expr[]) => places.map((e, d) => (d > 1 ? e : binary(d === 0 ? "+" : "-", e, row)));
    const { ahead } = level;
    return { ...level, places: at(level.places), ...(ahead && { ahead: { ...ahead, places: at(ahead.places) } }) };
  }

  private statement(level: Level, column: Expr, isInterior: boolean, of: Columns, block?: InBlock): Scalar {
    const places = [...level.places, column];
    // The loops keep rows inside; the written bounds allow others to prove it.
    const coordinates = this.steps.axes.map(({ extent, border: how }, d) => {
      const place = places[d] ?? number(0);
      return place === column ? place : border(how === "wrap" ? "wrap" : "clamp", place, extent);
    });
    const value = this.valueAt(
      coordinates,
      (shifts) => this.lineAt(shifts, block) ?? this.read(shifts, level, places, isInterior, of),
    );
    return assign(this.element(level.to, level, places), value);
  }

  /** An element of the step before in a register, if one holds it. */
  private lineAt(shifts: readonly number[], block: InBlock | undefined): Expr | undefined {
    if (!block) return undefined;
    const key = inBlock(shifts, block.row).join();
    const line = linesOf(this.steps, this.schedule, block.rows).findIndex(({ rows }) => rows.join() === key);
    const lane = (block.vector + 1) * this.schedule.lanes + (shifts.at(-1) ?? 0);
    return line < 0 ? undefined : access(this.lineFile, [number(line), plus(block.lane, lane)]);
  }

  /** An element of the step before. */
  private read(
    shifts: readonly number[],
    level: Level,
    places: readonly Expr[],
    isInterior: boolean,
    of: Columns,
  ): Expr {
    const tests: Expr[] = [];
    const at = this.steps.axes.map((along, d) => {
      const shift = shifts[d] ?? 0;
      const raw = plus(places[d] ?? number(0), shift);
      const isColumn = along === this.lane;
      if (isColumn && (of === "inside" || along.reach === 0)) return raw;
      const how = along.border;
      // A ring also holds the rows beyond the plane, as zeros or continued.
      if (!isColumn && level.from.kind === "ring")
        return how === "zero" || how === "wrap" ? raw : border(how, raw, along.extent);
      if (how !== "zero") return border(how, raw, along.extent);
      const isTested = isColumn ? shift !== 0 || of === "beyond" : shift !== 0 && !isInterior;
      if (isTested) tests.push(between(raw, 0, along.extent));
      // Lanes beyond the row load nothing.
      return isColumn && (shift === 0 || of !== "one") ? raw : border("clamp", raw, along.extent);
    });
    const element = this.element(level.from, level, at);
    const inside = allOf(tests);
    return inside ? select(inside, element, number(0)) : element;
  }
}
