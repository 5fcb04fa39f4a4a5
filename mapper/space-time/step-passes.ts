/**
 * @file The passes of a stencil in time over its planes: the number of steps of each, and the planes it reads and
 * writes.
 *
 *     pass u_0 -> u                        4 steps: what 100 leave over of passes of 8
 *     for pair in 0..6
 *       pass u -> between, between -> u    8 steps each: the last writes the output
 */

import { memoryElements, outputOf } from "../../abstraction/computation.ts";
import { type LoopNest, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { type Held, type Source, StepMemory } from "./step-memory.ts";

export abstract class StepPasses<S extends Held> extends StepMemory<S> {
  /** A pass of `depth` steps from one plane to another. */
  protected abstract pass(from: Source, to: Source, depth: number): readonly Statement[];

  /** Statements between passes; none for a single thread. */
  protected readonly between: readonly Statement[] = [];

  /** Memory and registers in addition to the planes. */
  protected abstract held(): Pick<LoopNest, "scratch" | "vectors" | "deal">;

  nest(): LoopNest {
    const { time, computation } = this.steps;
    const output = outputOf(computation);
    const { depth } = this.schedule;
    const plane = (name: string): Source => ({ kind: "plane", name });
    const [first, last, between] = [time.first, output.name, this.names.fresh("between")].map(plane);
    if (!first || !last || !between) throw new Error("internal: planes have names");
    const follow = (...passes: readonly (readonly Statement[])[]): Statement[] =>
      passes.flatMap((pass, i) => (i === 0 ? pass : [...this.between, ...pass]));

    // The first pass takes the steps that full passes leave over. The last pass writes the output.
    const rest = time.steps % depth || depth;
    const more = (time.steps - rest) / depth;
    const passes = [this.pass(first, more % 2 === 0 ? last : between, rest)];
    const pairs = Math.floor(more / 2);
    if (more % 2 === 1) passes.push(this.pass(between, last, depth));
    if (pairs > 0) {
      const pair = [...follow(this.pass(last, between, depth), this.pass(between, last, depth)), ...this.between];
      passes.push([loop(this.names.fresh("pair"), pairs, pair)]);
    }
    const body = follow(...passes);
    const { scratch, ...held } = this.held();
    const spare: Scratch = {
      name: between.name,
      elements: memoryElements(output),
      dtype: this.dtype,
      scope: "workspace",
      holds: "result",
      ...this.shaped,
    };
    return {
      scratch: more > 0 ? [spare, ...scratch] : scratch,
      registers: [],
      prepare: [],
      body,
      ...held,
    };
  }

  /** Dimensions of the second plane. By default it has a flat index. */
  protected readonly shaped: Pick<Scratch, "dims" | "outside"> = {};
}
