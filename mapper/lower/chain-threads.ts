/**
 * @file Lowers a chain of equations that share their rows to one GPU kernel: the lanes of a warp share a row and hold all its values in registers.
 *
 *     y0[i] max= x0[i,j]                     ->     for at block row_block, warp row_warp, column_warp
 *     y1[i,j] = exp(x0[i,j] - y0[i])                  for lanes lane in 0..32
 *     y2[i] += y1[i,j]                                  x0_held[0..4,lane] = x0[row, column .. column+3]      four at once
 *     y3[i,j] = y1[i,j] / y2[i]                         y0_held[0,lane] max= x0_held[0,lane]                  and of 1, 2, 3
 *                                                       y0_held[0,lane] = max(y0_held[0,lane], y0_held[0,lane^16]) ...
 *                                                       y1_held[0,lane] = exp(x0_held[0,lane] - y0_held[0,lane]) ...
 *                                                       ...
 *                                                       y3[row, column .. column+3] = y3_held[0..4,lane]
 *
 * Sums cross the lanes by shuffles, and the warps of a row through shared memory. Where lanes cover more columns than a row has, those beyond are
 * left out of sums and not stored. A call that keeps the values of the chain stores the others too.
 */

import { present, upTo } from "../../abstraction/collections.ts";
import { identityIn, outputOf, targetOf, tensorOf } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import {
  type Access,
  access,
  axesIn,
  axis,
  binary,
  compare,
  type Expr,
  number,
  over,
  plus,
  printAccess,
  remainder,
  rewrite,
  substitute,
  substituteAccess,
  times,
} from "../../abstraction/expression.ts";
import {
  assign,
  type LoopNest,
  loop,
  type Scalar,
  type Scratch,
  type Statement,
  type VectorFile,
} from "../../abstraction/loop-nest.ts";
import { KEPT } from "../../abstraction/program.ts";
import { type RowChain, storingEquation } from "../../abstraction/row-chain.ts";
import { type ChainShape, halvesOf } from "../schedule/chain-shape.ts";
import { ChainParts, type ChainPlaces, type Timed } from "./chain-parts.ts";
import { loopsAt } from "./thread-places.ts";

const ROW = "row";
const COLUMN = "column";
const LANE = "lane";
const TOGETHER = "neighbour";
/** Lanes of a warp. */
const WARP = 32;

/** The nest of a chain under a legal shape. */
export function lowerChainThreads(chain: RowChain, shape: ChainShape): LoopNest {
  return new ChainThreads(chain, shape).lower();
}

/** An element that is read: its place by row and column, and its first register. */
interface Held {
  readonly element: Access;
  readonly file: string;
  /** Whether each column has one of its own. */
  readonly isEach: boolean;
}

class ChainThreads implements ChainPlaces {
  readonly row = axis(ROW);
  private readonly shape: ChainShape;
  private readonly parts: ChainParts;
  private readonly files = new Map<string, VectorFile>();
  private readonly scratch: Scratch[] = [];
  private readonly reads = new Map<string, Held>();

  constructor(chain: RowChain, shape: ChainShape) {
    this.shape = shape;
    this.parts = new ChainParts(chain, this);
  }

  lower(): LoopNest {
    const { parts, shape } = this;
    const computed = parts.all.flatMap((one) => this.computed(one));
    const rowsOfBlock = (WARP / shape.lanes) * shape.rowWarps;
    const stored = parts.all.filter((one) => parts.isStored(one)).flatMap((one) => this.stored(one));
    const kept = parts.all.filter((one) => !parts.isStored(one)).flatMap((one) => this.stored(one, true));
    const body = [this.lanes([...this.reads.values()].flatMap((held) => this.loaded(held))), ...computed];
    const warps = [["row_warp", shape.rowWarps] as const, ["column_warp", shape.columnWarps] as const];
    const inside = loopsAt(
      "warp",
      warps.filter(([, extent]) => extent > 1),
      present([...body, this.lanes(stored), kept.length > 0 && this.lanes(kept)]),
    );
    const blocks = Math.ceil(parts.chain.rows / rowsOfBlock);
    return {
      scratch: this.scratch,
      registers: [],
      vectors: [...this.files.values()],
      prepare: [],
      body: loopsAt("block", [["row_block", blocks]], inside),
    };
  }

  // ---- places of elements ---------------------------------------------------------------------------------------------------------

  column(): Expr {
    return axis(COLUMN);
  }

  /** The first register of what an equation makes. */
  elementOf({ part, made }: Timed): Access {
    const count = part.makes === "each" ? this.each : 1;
    return this.register(this.file(`${made}_held`, outputOf(part.computation).dtype, count));
  }

  touched(): void {
    // What is read is in registers too.
  }

  private get each(): number {
    return this.shape.together * this.shape.pieces;
  }

  private register(file: string, number_ = 0): Access {
    return access(file, [number(number_), axis(LANE)]);
  }

  private file(name: string, dtype: DType, count: number): string {
    this.files.set(name, { name, dtype, lanes: WARP, count });
    return name;
  }

  private counters(register: number, further: Expr = number(0)): ReadonlyMap<string, Expr> {
    const { together, lanes, columnWarps, rowWarps } = this.shape;
    const piece = Math.floor(register / together);
    const within = register % together;
    const lane = lanes === WARP ? axis(LANE) : remainder(axis(LANE), lanes);
    const warp = columnWarps === 1 ? number(0) : axis("column_warp");
    const column = plus(lane, times(lanes, plus(warp, columnWarps * piece)));
    const rowWarp = rowWarps === 1 ? number(0) : axis("row_warp");
    const inWarp = lanes === WARP ? number(0) : over(axis(LANE), lanes);
    const row = plus(inWarp, times(WARP / lanes, plus(rowWarp, times(rowWarps, axis("row_block")))));
    return new Map([
      [ROW, row],
      [COLUMN, plus(plus(times(together, column), within), further)],
    ]);
  }

  /** Conditions for a register of a thread to be an element of its row. */
  private inRow(register: number): Expr[] {
    const { together, lanes, columnWarps, pieces } = this.shape;
    const { columns } = this.parts.chain;
    const covered = together * lanes * columnWarps * pieces;
    const column = this.counters(register).get(COLUMN) ?? number(0);
    return covered > columns ? [compare("<", column, columns)] : [];
  }

  /** Conditions for a thread's row to be one. */
  private get inRows(): Expr[] {
    const { lanes, rowWarps } = this.shape;
    const { rows } = this.parts.chain;
    const row = this.counters(0).get(ROW) ?? number(0);
    return rows % ((WARP / lanes) * rowWarps) === 0 ? [] : [compare("<", row, rows)];
  }

  // ---- statements -----------------------------------------------------------------------------------------------------------------

  private lanes(body: readonly Statement[]): Statement {
    return loop(LANE, WARP, body, "lanes");
  }

  private loaded({ element, file, isEach }: Held): Scalar[] {
    if (!isEach) return [assign(this.register(file), at(element, this.counters(0)))];
    return this.pieces().map((register) => {
      const { together, step } = this.together();
      const to = access(file, [plus(register, step), axis(LANE)]);
      return { ...assign(to, at(element, this.counters(register, step))), ...together };
    });
  }

  /** The first register of each piece of neighbouring columns. */
  private pieces(): number[] {
    return upTo(this.shape.pieces).map((i) => i * this.shape.together);
  }

  private together(): { readonly together?: { together: { name: string; extent: number } }; readonly step: Expr } {
    const { together } = this.shape;
    return together === 1
      ? { step: number(0) }
      : { together: { together: { name: TOGETHER, extent: together } }, step: axis(TOGETHER) };
  }

  private computed(one: Timed): Statement[] {
    const { equation } = one.part.computation;
    const made = this.elementOf(one);
    if (one.part.makes !== "sum") {
      const value = this.inRegisters(this.parts.placed(one, equation.value));
      const registers = one.part.makes === "each" ? this.each : 1;
      return [this.lanes(upTo(registers).map((i) => assign(this.register(made.tensor, i), this.valueAt(value, i))))];
    }
    const sum = this.register(this.file(`${one.made}_sum`, targetOf(one.part.computation).dtype, 1));
    const value = this.inRegisters(this.parts.placed(one, equation.value));
    const added = upTo(this.each).map((i) => assign(sum, this.valueAt(value, i), this.inRow(i), equation.op));
    const end = this.inRegisters(this.parts.placed(one, storingEquation(one.part.computation).value, sum));
    return [
      this.lanes([assign(sum, number(identityIn(one.part.computation))), ...added, ...this.acrossLanes(one, sum)]),
      ...this.acrossWarps(one, sum),
      this.lanes([assign(made, this.valueAt(end, 0))]),
    ];
  }

  /** A butterfly: each of the lanes of a row then holds the sum of all of them. */
  private acrossLanes({ part }: Timed, sum: Access): Scalar[] {
    return halvesOf(this.shape.lanes / 2).map((flip) => {
      const partner = access(sum.tensor, [number(0), binary("^", axis(LANE), flip)]);
      return assign(sum, partner, [], part.computation.equation.op);
    });
  }

  /** Each warp leaves its sum in shared memory and adds up those of its row. */
  private acrossWarps(one: Timed, sum: Access): Statement[] {
    const { columnWarps, rowWarps } = this.shape;
    if (columnWarps === 1) return [];
    const dims = [
      { name: "row_warp", extent: rowWarps },
      { name: "column_warp", extent: columnWarps },
      { name: LANE, extent: WARP },
    ];
    const { dtype } = targetOf(one.part.computation);
    const name = `${one.made}_parts`;
    this.scratch.push({ name, dtype, elements: rowWarps * columnWarps * WARP, scope: "shared", dims });
    const partOf = (warp: Expr): Access =>
      access(name, [rowWarps === 1 ? number(0) : axis("row_warp"), warp, axis(LANE)]);
    const added = upTo(columnWarps).map((warp) =>
      assign(sum, partOf(number(warp)), [], one.part.computation.equation.op),
    );
    return [
      this.lanes([assign(partOf(axis("column_warp")), sum)]),
      { kind: "barrier", group: "block" },
      this.lanes([assign(sum, number(identityIn(one.part.computation))), ...added]),
    ];
  }

  /** @param kept whether only a call that keeps all values stores it */
  private stored(one: Timed, kept = false): Scalar[] {
    const { tensor } = this.elementOf(one);
    const place = this.parts.inMemory(one);
    const asked = kept ? [compare("!=", access(KEPT, [number(0)]), 0)] : [];
    const where = [...this.inRows, ...asked];
    if (one.part.makes !== "each") {
      const { lanes, columnWarps } = this.shape;
      const first = present([
        lanes > 1 && compare("==", lanes === WARP ? axis(LANE) : remainder(axis(LANE), lanes), 0),
        columnWarps > 1 && compare("==", axis("column_warp"), 0),
      ]);
      return [assign(at(place, this.counters(0)), this.register(tensor), [...first, ...where])];
    }
    return this.pieces().map((register) => {
      const { together, step } = this.together();
      const from = access(tensor, [plus(register, step), axis(LANE)]);
      const to = at(place, this.counters(register, step));
      return { ...assign(to, from, [...this.inRow(register), ...where]), ...together };
    });
  }

  // ---- values ---------------------------------------------------------------------------------------------------------------------

  /** Elements in memory become those of registers that are loaded first. */
  private inRegisters(value: Expr): Expr {
    return rewrite(
      value,
      (e) => {
        if (e.kind !== "access" || this.files.has(e.tensor)) return e;
        const key = printAccess(e);
        const known = this.reads.get(key);
        if (known) return this.register(known.file);
        const tensor = tensorOf(this.parts.chain.computation, e.tensor);
        const isEach = axesIn(e).includes(COLUMN);
        const before = [...this.reads.values()].filter(({ element }) => element.tensor === e.tensor).length;
        const name = before === 0 ? `${e.tensor}_held` : `${e.tensor}_held${before}_`;
        const file = this.file(name, tensor.dtype, isEach ? this.each : 1);
        this.reads.set(key, { element: e, file, isEach });
        return this.register(file);
      },
      "value",
      false,
    );
  }

  /** The value at one of a thread's elements. */
  private valueAt(value: Expr, register: number): Expr {
    const moved = rewrite(
      value,
      (e) => {
        const file = e.kind === "access" ? this.files.get(e.tensor) : undefined;
        return file ? this.register(file.name, file.count === 1 ? 0 : register) : e;
      },
      "value",
      false,
    );
    return substitute(moved, this.counters(register), "value");
  }
}

/** An element at the place of the counters. */
const at = (element: Access, counters: ReadonlyMap<string, Expr>): Access => substituteAccess(element, counters);
