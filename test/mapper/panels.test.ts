/** Constants that are packed once: while a loop reads the same tiles again, lines of the next ones are fetched, every line of them. */

import { expect, it } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import { withConstants } from "../../abstraction/computation.ts";
import type { Expr } from "../../abstraction/expression.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappingNamed, operation, rowNamed } from "../support/subjects.ts";

const FMA = rowNamed("avx512.fma.f32.broadcast");

/** The numbers of lines of b_tiles that are fetched, in the steps of loops that `held` fixes. */
function linesFetched(
  order: readonly string[],
  held: Readonly<Record<string, number>>,
  constants = ["b"],
): Set<number> {
  const mapping = mappingNamed(withConstants(operation("matmul m=32 n=1024 k=128"), constants), FMA, "n <- n");
  const nest = lowerSchedule(mapping, {
    order,
    block: { m: 4, n: 2 },
    placement: { a: "in-place", b: "tiled" },
    threads: 1,
  });
  const found = new Set<number>();
  const walk = (s: Statement, at: Readonly<Record<string, number>>): void => {
    if (s.kind === "when") for (const inner of [...s.body, ...s.otherwise]) walk(inner, at);
    if (s.kind !== "loop") return;
    const steps = held[s.axis] === undefined ? Array.from({ length: s.extent }, (_, i) => i) : [held[s.axis] ?? 0];
    for (const step of steps) {
      const here = { ...at, [s.axis]: step };
      const numberOf = (e: Expr): number => evaluateIndex(e, here);
      for (const { buffer, base } of s.ahead ?? []) if (buffer === "b_tiles") found.add(numberOf(base) / 16);
      for (const inner of s.body) walk(inner, here);
    }
  };
  for (const s of nest.body) walk(s, {});
  return found;
}

const between = (from: number, to: number): Set<number> =>
  new Set(Array.from({ length: to - from }, (_, i) => from + i));

it("fetches the panel of the next step while the rows share the one in use", () => {
  // A panel is 2 vectors of n for all of k: 256 lines.
  expect(linesFetched(["n", "m", "k"], { n_outer: 0 })).toEqual(between(256, 512));
  expect(linesFetched(["n", "m", "k"], { n_outer: 2 })).toEqual(between(768, 1024));
});

it("fetches the next tile of panels, and of a pass over a part of the sums", () => {
  expect(linesFetched(["n/2", "m", "n", "k"], { n_tile: 0 })).toEqual(between(512, 1024));
  // Parts of 16 steps of k of a block of n: 32 lines.
  expect(linesFetched(["n", "k/16", "m", "k"], { n_outer: 1, k_tile: 1 })).toEqual(between(256 + 64, 256 + 96));
});

it("fetches nothing where tiles are read once, or packed in each call", () => {
  expect(linesFetched(["m", "n", "k"], {}).size).toBe(0);
  expect(linesFetched(["n", "m", "k"], {}, []).size).toBe(0);
});
