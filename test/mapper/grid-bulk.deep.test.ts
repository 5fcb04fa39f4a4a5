/**
 * @file Results that the copy engine stores: they equal the equation in adverse orders, by the interpreter and on the emulated device, also where tiles
 * reach beyond the ends; what is seeded into them is found; nvcc takes them.
 */

import { describe, expect, it } from "vitest";
import { rowMajor } from "../../abstraction/affine.ts";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import { binary, number } from "../../abstraction/expression.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { changed, gridContextOf, MATMUL, matmulF16, verdict, wgmmaSchedule } from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";

const TALL = matmulF16(192, 64, 64);
const context = gridContextOf(TALL, "wgmma.m64n32k16.f32.f16", MATMUL);
const BULK = wgmmaSchedule(64, 32, 32, { store: "bulk", transfer: "engine" });
/** Three parts of 64 columns a tile, of which two are held: parts of a tile lie where others of the tile before lay. */
const WIDE = matmulF16(128, 192, 16);
const inWide = gridContextOf(WIDE, "wgmma.m64n192k16.f32.f16", MATMUL);
const IN_PARTS = wgmmaSchedule(64, 192, 16, { store: "bulk", transfer: "engine", persistent: 1 });

describe("results that the copy engine stores", () => {
  playGrids("bulk");

  it("lie as boxes do, or nothing is printed", () => {
    const nest = lowerGrid(context, BULK);
    const scratch = nest.scratch.map((s) => (s.name === "results" ? { ...s, storage: rowMajor(s.dims ?? []) } : s));
    const print = (other: LoopNest): unknown =>
      generateCuda(TALL, context.intrinsic, other, { lines: [], chained: false });
    expect(() => print(nest)).not.toThrow();
    expect(() => print({ ...nest, scratch })).toThrow();
  });
});

describe("a fault of bulk stores", () => {
  const nest = lowerGrid(inWide, IN_PARTS);
  const isStore = (s: Statement): boolean => s.kind === "copy" && s.transfer === "engine";
  const isPublished = (s: Statement): boolean => s.kind === "fence" && s.on === "memory";
  /** The barrier ahead of the staging of a part, or the one behind it. */
  const isBarrier = (s: Statement, at: number, ahead: boolean): boolean =>
    s.kind === "barrier" && s.group === "warpgroup" && at < 2 === ahead;
  const FAULTS: readonly (readonly [string, (s: Statement, at: number) => readonly Statement[], RegExp])[] = [
    [
      "a part is staged where the engine may still read",
      (s) => (s.kind === "settle" && s.pending > 0 ? [] : [s]),
      /may still read it[\s\S]*a wait for the store/,
    ],
    [
      "one part more is in flight than is held",
      (s) => (s.kind === "settle" && s.pending > 0 ? [{ ...s, pending: s.pending + 1 }] : [s]),
      /may still read it[\s\S]*a wait for the store/,
    ],
    [
      "one thread alone knows that the engine has read a part",
      (s, at) => (isBarrier(s, at, true) ? [] : [s]),
      /may still read it[\s\S]*a barrier of the warpgroup/,
    ],
    [
      "a part is sent before all have staged it",
      (s, at) => (isBarrier(s, at, false) ? [] : [s]),
      /missing: a barrier of the warpgroup/,
    ],
    ["a part is not published", (s) => (isPublished(s) ? [] : [s]), /does not see what was written/],
    [
      "a part is published behind the barrier",
      (s, at) => (isPublished(s) ? [] : isBarrier(s, at, false) ? [s, PUBLISHED] : [s]),
      /does not see what was written/,
    ],
    [
      "a part lies where the one before it lies",
      (s) => (isStore(s) || s.kind === "drain" ? [inFirstPlace(s)] : [s]),
      /may still read it[\s\S]*a wait for the store/,
    ],
    [
      "a box is stored a part further on",
      (s) =>
        s.kind === "copy" && s.view
          ? [{ ...s, view: { ...s.view, at: s.view.at.map((e, i) => (i === 0 ? binary("+", e, number(64)) : e)) } }]
          : [s],
      /the engine stores to c\[/,
    ],
    [
      "half of a part is staged",
      (s) => (s.kind === "drain" && s.part ? [{ ...s, part: { ...s.part, extent: 32 } }] : [s]),
      /nothing has written it/,
    ],
    [
      "a block ends while the engine reads",
      (s) => (s.kind === "settle" && s.pending === 0 ? [] : [s]),
      /^block 0 ends before the engine has read what warpgroup 0 sent it to store/,
    ],
  ];
  const PUBLISHED: Statement = { kind: "fence", on: "memory", of: inWide.intrinsic };

  it.each(FAULTS)("is found: %s", (_, change, message) => {
    expect(verdict({ nest, computation: WIDE })).toBe("right");
    const verdicts = ADVERSE_ORDERS.map((order) => verdict({ nest: changed(nest, change), computation: WIDE }, order));
    expect(verdicts.filter((said) => said === "right")).toEqual([]);
    expect(verdicts[0]).toMatch(message);
  });
});

/** With a part staged in, or stored from, the first place. */
function inFirstPlace(s: Statement): Statement {
  if (s.kind === "drain") {
    const { target } = s.equation;
    return { ...s, equation: { ...s.equation, target: { ...target, index: [number(0), ...target.index.slice(1)] } } };
  }
  if (s.kind !== "copy" || s.equation.value.kind !== "access") return s;
  const { value } = s.equation;
  return { ...s, equation: { ...s.equation, value: { ...value, index: [number(0), ...value.index.slice(1)] } } };
}
