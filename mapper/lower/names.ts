/**
 * @file Names for what a lowered program adds: loops, buffers, registers.
 */

import { type Computation, targetOf } from "../../abstraction/computation.ts";

/** Names that no loop or tensor of the computation already has; the same wish gives the same name. */
export class FreshNames {
  private readonly taken: ReadonlySet<string>;

  constructor(computation: Computation) {
    this.taken = new Set([
      ...computation.axes.map((a) => a.name),
      ...Object.keys(computation.tensors),
      targetOf(computation).name,
    ]);
  }

  fresh(wish: string): string {
    return this.taken.has(wish) ? this.fresh(`${wish}_`) : wish;
  }
}
