/** @file Fresh names for the loops, buffers and registers that lowering adds. */

import { type Computation, targetOf } from "../../abstraction/computation.ts";

/** Fresh names that no loop or tensor of the computations has. The same wish always gives the same name. */
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
