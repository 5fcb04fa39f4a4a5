/**
 * @file Lowers a chain of equations that share their rows to one loop over rows. Within a row, equations that wait for no sum of the row run block by
 * block of columns, so that what one makes is still in the nearest cache, or in registers, when the next reads it.
 *
 *     y0[i] max= x0[i,j]                     ->     for parallel row in 0..1536
 *     y1[i,j] = exp(x0[i,j] - y0[i])                  for block in 0..2, lane in 0..64: y0_sums[lane] = max(y0_sums[lane], x0[row,64*block+lane])
 *     y2[i] += y1[i,j]                                y0_value = the largest of y0_sums
 *     y3[i,j] = y1[i,j] / y2[i]                       for block in 0..2
 *                                                       for lane in 0..64: y1_row[64*block+lane] = exp(x0[row,64*block+lane] - y0_value)
 *                                                       for lane in 0..64: y2_sums[lane] = y2_sums[lane] + y1_row[64*block+lane]
 *                                                     y2_value = the sum of y2_sums
 *                                                     for block in 0..2, lane in 0..64: y3[row,64*block+lane] = y1_row[64*block+lane] / y2_value
 *
 * A call that keeps the values of the chain stores y0, y1 and y2 too, from where the next equation reads them.
 */

import { upTo } from "../../abstraction/collections.ts";
import { identityIn, outputOf, targetOf } from "../../abstraction/computation.ts";
import { type Access, access, axis, compare, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import { assign, loop, type Scratch, type Statement, scalar } from "../../abstraction/loop-nest.ts";
import { KEPT } from "../../abstraction/program.ts";
import { type RowChain, storingEquation } from "../../abstraction/row-chain.ts";
import { when } from "../match/conditions.ts";
import { usualColumns } from "../schedule/chain-decisions.ts";
import { ChainParts, type ChainPlaces, type Timed } from "./chain-parts.ts";
import type { PlainLoops } from "./loops.ts";
import { combine, halvings } from "./partial-sums.ts";

/** Counters of the nest. */
const ROW = "row";
const BLOCK = "block";
const LANE = "lane";

/** @param columns that are computed together */
export function lowerRowChain(chain: RowChain, columns = usualColumns(chain)): PlainLoops {
  return new Lowering(chain, columns).lower();
}

class Lowering implements ChainPlaces {
  readonly row = axis(ROW);
  private readonly chain: RowChain;
  private readonly parts: ChainParts;
  /** Columns in a block. */
  private readonly steps: number;
  private readonly scratch = new Map<string, Scratch>();
  private readonly inside = new Set<Access>();
  /** The first column of the block that is being written down. */
  private begin: Expr = number(0);

  constructor(chain: RowChain, columns: number) {
    this.chain = chain;
    this.steps = columns;
    this.parts = new ChainParts(chain, this);
  }

  lower(): PlainLoops {
    const { chain } = this;
    const passes = Math.max(...this.parts.all.map(({ pass }) => pass)) + 1;
    const body = [
      ...this.elementsOfRow(-1),
      ...upTo(passes).flatMap((pass) => [...this.passOver(pass), ...this.elementsOfRow(pass)]),
    ];
    return {
      nest: {
        scratch: [...this.scratch.values()],
        registers: [],
        prepare: [],
        body: [loop(ROW, chain.rows, body, "parallel")],
      },
      inside: this.inside,
    };
  }

  // ---- passes over a row ----------------------------------------------------------------------------------------------------------

  /** What one pass over the columns computes, and the sums that it ends with. */
  private passOver(pass: number): Statement[] {
    const { steps, chain } = this;
    const inPass = this.parts.all.filter((one) => one.pass === pass && one.part.makes !== "row");
    const sums = inPass.filter(({ part }) => part.makes === "sum");
    const whole = Math.floor(chain.columns / steps);
    const tail = chain.columns - whole * steps;
    const block = (begin: Expr, count: number): Statement[] => {
      this.begin = begin;
      return inPass.flatMap((one) => this.overBlock(one, count));
    };
    const all = whole === 1 ? block(number(0), steps) : [loop(BLOCK, whole, block(times(axis(BLOCK), steps), steps))];
    return [
      ...sums.map((one) => loop(LANE, steps, [assign(this.partial(one), number(identityIn(one.part.computation)))])),
      ...all,
      ...(tail > 0 ? block(number(whole * steps), tail) : []),
      ...sums.flatMap((one) => this.summed(one)),
    ];
  }

  /** One equation over the columns of a block. */
  private overBlock(one: Timed, count: number): Statement[] {
    const { equation } = one.part.computation;
    const over = (statement: Statement): Statement => loop(LANE, count, [statement]);
    const value = this.parts.placed(one, equation.value);
    if (one.part.makes === "sum") return [over(scalar(combine(equation.op, this.partial(one), value)))];
    const element = this.elementOf(one);
    if (this.parts.isStored(one)) return [over(assign(element, value))];
    return [over(assign(element, value)), ...onlyKept(over(assign(this.parts.inMemory(one), element)))];
  }

  /** One sum of partial sums, through its epilogue. */
  private summed(one: Timed): Statement[] {
    const { computation } = one.part;
    const first = access(this.partial(one).tensor, [number(0)]);
    const ended = this.parts.placed(one, storingEquation(computation).value, first);
    return [
      ...halvings(computation.equation.op, { sums: first.tensor, counter: LANE, steps: this.steps }),
      ...this.elementStored(one, ended),
    ];
  }

  /** Elements of which the row has one, made of others of which it has one. */
  private elementsOfRow(pass: number): Statement[] {
    return this.parts.all
      .filter((one) => one.pass === pass && one.part.makes === "row")
      .flatMap((one) => this.elementStored(one, this.parts.placed(one, one.part.computation.equation.value)));
  }

  private elementStored(one: Timed, value: Expr): Statement[] {
    const element = this.elementOf(one);
    const stored = assign(this.parts.inMemory(one), element);
    return [assign(element, value), ...(this.parts.isStored(one) ? [stored] : onlyKept(stored))];
  }

  // ---- elements -------------------------------------------------------------------------------------------------------------------

  /** Where later equations of the row read what an equation has made. */
  elementOf(one: Timed): Access {
    const { part, made } = one;
    const { dtype } = outputOf(part.computation);
    if (part.makes !== "each") return access(this.buffer(`${made}_value`, dtype, 1), [number(0)]);
    if (this.parts.isStored(one)) return this.parts.inMemory(one);
    // What only the pass that makes it reads is gone with its block.
    const isBrief = this.parts
      .readersOf(one)
      .every((reader) => reader.pass === one.pass && reader.part.makes !== "row");
    return isBrief
      ? access(this.buffer(`${made}_block`, dtype, this.steps), [axis(LANE)])
      : access(this.buffer(`${made}_row`, dtype, this.chain.columns), [this.column()]);
  }

  private partial({ part, made }: Timed): Access {
    return access(this.buffer(`${made}_sums`, targetOf(part.computation).dtype, this.steps), [axis(LANE)]);
  }

  touched(element: Access): void {
    if (!this.scratch.has(element.tensor)) this.inside.add(element);
  }

  column(): Expr {
    return plus(this.begin, axis(LANE));
  }

  private buffer(name: string, dtype: Scratch["dtype"], elements: number): string {
    this.scratch.set(name, { name, dtype, elements, scope: "local" });
    return name;
  }
}

const onlyKept = (statement: Statement): readonly Statement[] =>
  when(compare("!=", access(KEPT, [number(0)]), 0), [statement]);
