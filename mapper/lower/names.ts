/** @file Fresh names for the loops, buffers and registers that lowering adds. */

import { type Computation, targetOf } from "../../abstraction/computation.ts";

/** A wish, with underscores until it is not taken. */
export const freshName = (wish: string, taken: ReadonlySet<string>): string =>
  taken.has(wish) ? freshName(`${wish}_`, taken) : wish;

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
    return freshName(wish, this.taken);
  }
}
