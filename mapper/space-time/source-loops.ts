/**
 * @file The loops that an array uses, and whether a transform of them is valid.
 *
 *     sourceLoops(flows, ["c_in", "q"])     those of the columns, in their order; the others run outside
 */

import { upTo } from "../../abstraction/collections.ts";
import { suggestion, UsageError } from "../../abstraction/error.ts";
import { accessesIn } from "../../abstraction/expression.ts";
import type { SourceLoop, SpaceTime } from "../../abstraction/recurrence.ts";
import { distanceIn, type Flows } from "./flow.ts";
import { refusalOf } from "./validity.ts";
import { printVector } from "./vector.ts";

export function sourceLoops({ name, loops }: Flows, wanted: readonly string[] | undefined): readonly SourceLoop[] {
  if (wanted === undefined) return loops;
  return wanted.map((loop, i) => {
    const found = loops.find((l) => l.name === loop);
    if (!found)
      throw new UsageError(
        `${name}: no loop "${loop}" to be mapped`,
        suggestion(
          loop,
          loops.map((l) => l.name),
        ),
      );
    if (wanted.indexOf(loop) !== i) throw new UsageError(`${name}: loop ${loop} is mapped twice`);
    return found;
  });
}

/** @throws UsageError naming what is wrong with the transform */
export function checkTransform(all: Flows, source: readonly SourceLoop[], spaceTime: SpaceTime): void {
  const { name, flows, outcomes, variables, loops } = all;
  const columns = source.map((l) => loops.indexOf(l));
  const operands = [
    ...flows.flatMap((f) => (f.kind === "fixed" ? [{ name: f.name, e: f.value }] : [])),
    ...outcomes.map((o) => ({ name: "", e: o.kind === "sum" ? o.term : o.value })),
  ].flatMap(({ name: owner, e }) =>
    accessesIn(e)
      .filter((a) => Object.hasOwn(variables, a.tensor) && a.index.length > 0)
      .map((a) => {
        const distance = distanceIn(a, loops.length);
        const carried = loops.find((l, i) => !source.includes(l) && distance[i] !== 0);
        if (carried)
          throw new UsageError(
            `${name}: the dependence ${printVector(distance)} on ${a.tensor} is carried by loop ${carried.name}, which runs outside the array`,
          );
        const role: "input" | "output" = a.tensor === owner ? "output" : "input";
        const reuse = [columns.map((column) => distance[column] ?? 0)];
        return { name: a.tensor, role, reuse, order: "fixed" as const };
      }),
  );
  const refusal = refusalOf({ name, loops: source, operands, outputs: 1 }, spaceTime);
  if (refusal)
    throw new UsageError(`${name}: ${refusal.because}`, refusal.hint === undefined ? {} : { hint: refusal.hint });
}

/** `k` and `t`, numbered where there are several. */
export function destinationNames({ allocation, schedule }: SpaceTime): string[] {
  const numbered = (letter: string, count: number): string[] =>
    upTo(count).map((i) => (count === 1 ? letter : `${letter}${i + 1}`));
  return [...numbered("k", allocation.length), ...numbered("t", schedule.length)];
}
