/** @file Windows of an input staged once, which the taps of a filter read at an offset each: results are the equation's. */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { axis, binary, compare, number } from "../../abstraction/expression.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { windowForm, windowOf } from "../../mapper/schedule/taps.ts";
import { convolutionF16, gridContextOf, verdict, wgmmaSchedule } from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";

const contextOf = (words: string, matching: string, instruction = "wgmma.m64n16k16.f32.f16"): GridContext =>
  gridContextOf(convolutionF16(words), instruction, matching);

const shifted = (m: number, n: number, more: Partial<GridSchedule> = {}): GridSchedule =>
  wgmmaSchedule(m, n, 64, { taps: "shifted", ...more });

describe("taps that read windows of an input staged once", () => playGrids("taps"));

describe("a window", () => {
  const context = contextOf("conv2d n=1 c=136 k=16 h=6 w=6", "m <- p,q; n <- k; k <- c");
  const { computation } = context.mapping;

  const isWindow = (s: Statement): boolean => "arrival" in s && s.arrival.name === "window_full";
  it("is overwritten early when it is requested a step sooner", () => {
    const nest = lowerGrid(context, shifted(64, 16, { transfer: "engine" }));
    const sooner = (all: readonly Statement[]): Statement[] =>
      all.map((s) => {
        if (s.kind === "loop") return { ...s, body: sooner(s.body) };
        if (s.kind !== "send" || !isWindow(s) || s.when?.kind !== "logic") return s;
        return { ...s, when: { ...s.when, left: compare("==", binary("%", axis("step"), number(9)), number(0)) } };
      });
    expect(verdict({ nest: { ...nest, body: sooner(nest.body) }, computation }, ADVERSE_ORDERS[0])).toMatch(
      /overwritten/,
    );
  });

  it("is as large as its rows, which share the zeros between them", () => {
    const sizes = (words: string, matching: string, m: number, n: number): unknown => {
      const found = windowOf(contextOf(words, matching), shifted(m, n));
      return found && { rows: found.dims.map((d) => `${d.name} ${d.tile}/${d.staged}`).join(" "), tiles: found.tiles };
    };
    const layer = "conv2d n=1 c=64 k=64 h=28 w=28";
    expect(sizes(layer, "m <- k; n <- p,q; k <- c", 64, 208)).toEqual({ rows: "w 28/29 h 7/9 n 1/1", tiles: 4 });
    expect(sizes(`${layer} n=16 h=7 w=7`, "m <- n,p,q; n <- k; k <- c", 128, 64)).toEqual({
      rows: "w 7/8 h 7/8 n 2/2",
      tiles: 8,
    });
    expect(sizes(`${layer} h=56 w=56`, "m <- k; n <- q; k <- c", 64, 56)).toEqual({
      rows: "w 56/57 h 1/3 n 1/1",
      tiles: 1,
    });
  });

  it("is refused with the reason where taps read no window", () => {
    const reasons = [
      ["stride=2", "m <- p,q; n <- k; k <- c"],
      ["r=1 s=1 pad=0", "m <- p,q; n <- k; k <- c"],
      ["", "m <- p,q; n <- k; k <- c,r,s"],
    ].map(([words = "", matching = ""]) => windowForm(contextOf(`conv2d n=1 c=64 k=64 h=8 w=8 ${words}`, matching)));
    expect(reasons).toMatchInlineSnapshot(`
      [
        "a tile runs along w in steps of more than 1; no two results of a tile read the same b",
        "no two results of a tile read the same a; no two results of a tile read the same b",
        "no summed loops stand outside the instruction",
      ]
    `);
  });
});
