/**
 * @file Precomputes the subexpressions of a wavefront that depend on the row alone or on the column alone, and stores them in separate memory.
 *
 *     h[i,j] = max(h[i-1,j] + p[i], h[i,j-1] - square(q[j]))
 *       row_0[i] = p[i]                        loaded once a strip: lane l has row 16*strip + l
 *       column_1[last-j] = square(q[j])        backwards: lane l at step t needs column t - k*l, and lanes load neighbours
 */

import {
  type Access,
  access,
  axis,
  type Expr,
  minus,
  number,
  over,
  plus,
  remainder,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { assign, loop, type Scratch, type Statement, type VectorFile } from "../../abstraction/loop-nest.ts";
import { placeInOwn, type WavefrontShape, workspaceOf } from "./wavefront-shape.ts";

/** A part of the value, and the memory it is stored in. */
interface Part {
  readonly along: "row" | "column";
  readonly name: string;
  readonly value: Expr;
}

/** Collects the parts while the steps are written: `read` adds each part on first use. */
export class WavefrontAhead {
  private readonly shape: WavefrontShape;
  private readonly parts: Part[] = [];
  /**
   * The position of column 0 in the reversed columns of a phase. There are as many phases as steps between two rows.
   */
  private readonly last: number;

  constructor(shape: WavefrontShape) {
    this.shape = shape;
    this.last = Math.floor((shape.side * shape.blocks - 1) / shape.skew);
  }

  scratch(): Scratch[] {
    return this.parts.map(({ name, along }) => workspaceOf(this.shape, name, this.elementsOf(along)));
  }

  /** Registers for the parts that depend on the row. */
  vectors(): VectorFile[] {
    const { lanes, recurrent } = this.shape;
    return this.ofRows().map((part) => ({ name: this.held(part), dtype: recurrent.dtype, lanes, count: 1 }));
  }

  /** Computes all parts that were read. */
  fill(): Statement[] {
    const { names, row, column, skew, lead } = this.shape;
    return this.parts.map(({ along, name, value }) => {
      const at = names.fresh(`${name}_at`);
      const elements = this.elementsOf(along);
      const put = (place: Expr, of: string, to: Expr): Statement =>
        assign(
          access(name, [placeInOwn(this.shape, elements, to)]),
          substitute(value, new Map([[of, place]]), "value"),
        );
      if (along === "row") return loop(at, elements, [put(axis(at), row.name, axis(at))]);
      const phase = names.fresh(`${name}_phase`);
      const from = number(skew * this.last - lead);
      const place = minus(plus(axis(phase), from), times(skew, axis(at)));
      const flat = plus(times(this.pitch, axis(phase)), axis(at));
      return loop(phase, skew, [loop(at, this.pitch, [put(place, column.name, flat)])]);
    });
  }

  /** Loads the parts that depend on the rows of a strip; lane 0 has row `base`. */
  load(base: Expr, lane: Expr): Statement[] {
    return this.ofRows().map((part) =>
      assign(
        access(this.held(part), [number(0), lane]),
        access(part.name, [placeInOwn(this.shape, this.elementsOf("row"), plus(base, lane))]),
      ),
    );
  }

  /** The part's value on the lanes at a step. */
  read(value: Expr, along: Part["along"], lane: Expr, at: Expr): Access {
    const { names, skew } = this.shape;
    const text = JSON.stringify(value);
    const known = this.parts.find((p) => p.along === along && JSON.stringify(p.value) === text);
    const part = known ?? { along, value, name: names.fresh(`${along}_${this.parts.length}`) };
    if (!known) this.parts.push(part);
    if (along === "row") return access(this.held(part), [number(0), lane]);
    const phase = remainder(at, skew);
    const place = plus(minus(this.last, over(at, skew)), lane);
    const flat = skew === 1 ? place : plus(times(this.pitch, phase), place);
    return access(part.name, [placeInOwn(this.shape, this.elementsOf("column"), flat)]);
  }

  private ofRows(): Part[] {
    return this.parts.filter((p) => p.along === "row");
  }

  private held({ name }: Part): string {
    return this.shape.names.fresh(`${name}_lanes`);
  }

  private elementsOf(along: Part["along"]): number {
    const { strips, lanes, skew } = this.shape;
    return along === "row" ? strips * lanes : skew * this.pitch;
  }

  /** Elements of one phase of the columns. */
  private get pitch(): number {
    return this.last + this.shape.lanes;
  }
}
