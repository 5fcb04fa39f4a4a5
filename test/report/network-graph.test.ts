/** @file The graph of a network: what is drawn of it, how large it may become, and names that come from the files of models. */

import { describe, expect, it } from "vitest";
import type { NetworkStep } from "../../report/network-data.ts";
import { drawnGraph, graphPart } from "../../report/network-graph.ts";
import { NETWORK_REPORT } from "../support/network-report.ts";

/** Steps of task 0 that read earlier ones. */
const stepsOf = (reads: readonly (readonly number[])[]): NetworkStep[] =>
  reads.map((own, i) => ({ node: `step ${i}`, ops: ["Conv"], task: 0, reads: own }));

const pageOf = (steps: readonly NetworkStep[]): string => graphPart({ ...NETWORK_REPORT, steps })?.text ?? "";

const places = (drawing: string): { x: number; y: number }[] =>
  [...drawing.matchAll(/<g transform="translate\(([\d.]+) ([\d.]+)\)">/g)].map(([, x, y]) => ({
    x: Number(x),
    y: Number(y),
  }));

describe("a small graph", () => {
  const diamond = stepsOf([[], [0], [0], [1, 2]]);

  it("has a box for each step and an arrow for each step that it reads", () => {
    expect(drawnGraph(diamond, [1, 2, 3, 4])).toEqual({
      drawn: [0, 1, 2, 3],
      arrows: [
        { from: 0, to: 1, passes: false },
        { from: 0, to: 2, passes: false },
        { from: 1, to: 3, passes: false },
        { from: 2, to: 3, passes: false },
      ],
    });
    const drawing = pageOf(diamond);
    expect(drawing.match(/class="arrow"/g)).toHaveLength(4);
    expect(drawing).toContain("1.9 ms, 25.0 %");
  });

  it("has what reads below what is read, and what does not beside it", () => {
    const [top, left, right, bottom] = places(pageOf(diamond));
    expect(left?.y).toBe(right?.y);
    expect(left?.x).not.toBe(right?.x);
    expect(top?.y).toBeLessThan(left?.y ?? 0);
    expect(bottom?.y).toBeGreaterThan(left?.y ?? 0);
  });

  it("is not drawn of a single step", () => {
    expect(graphPart({ ...NETWORK_REPORT, steps: stepsOf([[]]) })).toBeUndefined();
  });
});

describe("a large graph", () => {
  it("keeps the slowest steps; arrows pass over the others", () => {
    const chain = stepsOf(Array.from({ length: 400 }, (_, i) => (i === 0 ? [] : [i - 1])));
    const { drawn, arrows } = drawnGraph(
      chain,
      chain.map((_, i) => (i % 4 === 0 ? 2 : 1)),
    );
    expect(drawn).toHaveLength(150);
    expect(drawn.filter((step) => step % 4 === 0)).toHaveLength(100);
    expect(arrows).toHaveLength(149);
    expect(arrows.filter(({ from, to, passes }) => passes !== to - from > 1)).toEqual([]);
    expect(pageOf(chain)).toContain("Drawn are the 150 slowest of 400 steps");
    // So large a drawing is folded at first.
    expect(pageOf(chain)).toContain("<details><summary>The graph: 150 steps");
    expect(pageOf(chain.slice(0, 50))).toContain('<details open=""><summary>The graph: 50 steps');
  });

  it.each([
    [
      "each step reads the forty before it",
      3000,
      (i: number) => Array.from({ length: Math.min(i, 40) }, (_, k) => i - 1 - k),
    ],
    [
      "all steps read the first, and the last reads all",
      2000,
      (i: number, count: number) => (i === 0 ? [] : i < count - 1 ? [0] : Array.from({ length: i }, (_, k) => k)),
    ],
    ["no step reads another", 2000, () => []],
  ])("stays small where %s", (_, count, reads) => {
    const steps = stepsOf(Array.from({ length: count }, (_, i) => reads(i, count)));
    const { drawn, arrows } = drawnGraph(
      steps,
      steps.map((_, i) => i % 7),
    );
    expect(drawn.length).toBeGreaterThanOrEqual(8);
    expect(drawn.length).toBeLessThanOrEqual(150);
    expect(arrows.length).toBeLessThanOrEqual(1000);
    expect(pageOf(steps).length).toBeLessThan(200_000);
  });
});

it("treats names of nodes as text, and cuts long ones", () => {
  const [first] = stepsOf([[]]);
  const evil = `<script>alert(1)</script>"'__proto__${"x".repeat(100_000)}`;
  const drawing = pageOf(
    [0, 1].map((i) => ({ ...first, node: evil, ops: [evil], task: 0, reads: i === 0 ? [] : [0] })),
  );
  expect(drawing).not.toContain("<script");
  expect(drawing).toContain("&lt;script&gt;");
  expect(drawing.length).toBeLessThan(10_000);
});
