/** @file Fresh names for the loops, buffers and registers that lowering adds. */

import { type Computation, targetOf } from "../../abstraction/computation.ts";

/** Names that no loop or tensor of the computations already has; the same wish gives the same name. */
export class FreshNames {
  private readonly taken: ReadonlySet<string>;

  constructor(...computations: readonly Computation[]) {
    const all = computations.flatMap((c) => [
      ...c.axes.map((a) => a.name),
      ...Object.keys(c.tensors),
      targetOf(c).name,
    ]);
    this.taken = new Set(all);
  }

  fresh(wish: string): string {
    return this.taken.has(wish) ? this.fresh(`${wish}_`) : wish;
  }
}
