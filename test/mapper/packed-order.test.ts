/** Packed tiles lie in memory in the order in which a kernel loads them, so that a processor's prefetcher follows. */

import { expect, it } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import type { Schedule } from "../../abstraction/candidate.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { tileElements } from "../../abstraction/memory-tile.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { mappingsOnto } from "../support/subjects.ts";

/** The elements at which loads from a buffer begin, in the order of a run. */
function loadsOf(nest: LoopNest, buffer: string): number[] {
  const run = (statements: readonly Statement[], at: Readonly<Record<string, number>>): number[] =>
    statements.flatMap((s): number[] => {
      if (s.kind === "loop")
        return Array.from({ length: s.extent }, (_, i) => run(s.body, { ...at, [s.axis]: i })).flat();
      return s.kind === "load" && s.memory.buffer === buffer ? [evaluateIndex(s.memory.base, at)] : [];
    });
  return run(nest.body, {});
}

it.each([
  { block: { m: 2, n: 3, k: 4 }, order: ["n", "m", "k"] },
  { block: { m: 2, n: 3 }, order: ["n", "m", "k"] },
  { block: { m: 2, k: 4 }, order: ["m", "n", "k"] },
  { block: { m: 2, n: 2, k: 2 }, order: ["n/1", "m", "n", "k"] },
])("the tiles of a packed factor are loaded one behind the other: $order, $block", ({ block, order }) => {
  const [intrinsic] = intrinsicsNamed("avx512.fma.f32.broadcast");
  const factor = intrinsic?.operands.find((o) => o.name === "b");
  if (!intrinsic || !factor) throw new Error("no product of a number and a vector");
  const types = { inputs: ["f32", "f32"], sum: "f32" } as const;
  const computation = instantiate(operatorNamed("matmul"), { parameters: { m: 2, n: 96, k: 16 }, types });
  const [mapping] = mappingsOnto(computation, intrinsic);
  if (!mapping) throw new Error("a product does not map");
  const schedule: Schedule = { order, block, placement: { a: "in-place", b: "tiled" }, threads: 1 };
  const loads = loadsOf(lowerSchedule(mapping, schedule), "b_tiles");
  expect(loads).toEqual(Array.from({ length: (96 / 16) * 16 }, (_, i) => i * tileElements(factor)));
});
