/**
 * @file Register files of lanes while a nest is written: each grows to the registers that its statements use.
 *
 *     files.register("A", 2)               A[2,lane]
 *     files.several("X", 4, 2)             X[4 + neighbour,lane]        two registers that one access of a lane loads or stores
 */

import type { DType } from "../../abstraction/dtype.ts";
import { type Access, access, axis, type Expr, number, plus } from "../../abstraction/expression.ts";
import {
  assign,
  type FreshNames,
  type LoopNest,
  loop,
  type Statement,
  type VectorFile,
} from "../../abstraction/loop-nest.ts";

/** A nest without scratch memory. */
export const laneNest = (vectors: readonly VectorFile[], body: readonly Statement[]): LoopNest => ({
  scratch: [],
  registers: [],
  prepare: [],
  vectors,
  body,
});

export class LaneFiles {
  readonly lane: string;
  readonly neighbour: string;
  private readonly names: FreshNames;
  private readonly of: Pick<VectorFile, "dtype" | "lanes">;
  private readonly used = new Map<string, number>();

  constructor(names: FreshNames, dtype: DType, lanes: number) {
    this.names = names;
    this.of = { dtype, lanes };
    this.lane = names.fresh("lane");
    this.neighbour = names.fresh("neighbour");
  }

  /** The files, in the order of first use. */
  vectors(): VectorFile[] {
    return [...this.used].map(([name, count]) => ({ name, ...this.of, count }));
  }

  vectorsByName(): VectorFile[] {
    return this.vectors().sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** @param shift how many lanes further on */
  register(wish: string, index: number, shift = 0): Access {
    const file = this.names.fresh(wish);
    this.used.set(file, Math.max(this.used.get(file) ?? 0, index + 1));
    return access(file, [number(index), plus(axis(this.lane), shift)]);
  }

  /** Registers that move together, beginning with `first`. */
  several(wish: string, first: number, together: number): Access {
    const last = this.register(wish, first + together - 1);
    return together === 1 ? last : { ...last, index: [plus(first, axis(this.neighbour)), axis(this.lane)] };
  }

  /** One access of a lane to several elements. */
  atOnce(together: number, target: Access, value: Expr, where?: Expr): Statement {
    const one = assign(target, value, where ? [where] : []);
    return together > 1 ? { ...one, together: { name: this.neighbour, extent: together } } : one;
  }

  onLanes(body: readonly Statement[]): Statement {
    return loop(this.lane, this.of.lanes, body, "lanes");
  }
}
