/** @file Tiles of a convolution that the copy engine fetches by walking over pixels: results are the equation's. */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import { number } from "../../abstraction/expression.ts";
import type { Copy, LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { viewForm } from "../../mapper/schedule/views.ts";
import { convolutionF16, gridContextOf, verdict, wgmmaSchedule } from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";

const SCHEDULE = wgmmaSchedule(64, 16, 32, { transfer: "engine" });

const contextOf = (words: string, matching: string, last = true): GridContext =>
  gridContextOf(convolutionF16(words, last), "wgmma.m64n16k16.f32.f16", matching);

describe("the copy engine, fetching tiles of a convolution,", () => playGrids("views"));

const STRIDED = "conv2d n=1 c=32 k=20 h=9 w=11 stride=2";

describe("a view that walks over pixels", () => {
  const context = contextOf(STRIDED, "m <- p,q; n <- k; k <- c");
  const nest = lowerGrid(context, SCHEDULE);

  it("prints as this program", () => {
    const sends = printNest(nest)
      .split("\n")
      .filter((l) => l.includes("engine"));
    expect(sends.slice(-2).map((l) => l.trim())).toMatchInlineSnapshot(`
      [
        "copy m_in 64, k_in 32, engine, by block, as 64 pixels of w -1..9 by 2, h -1..7 by 2, offset (step + 1)%3, (step + 1)/3   a_ring[(step+1)%3,m_in,k_in] = select(64*m_tile+m_in < 30, in[n_block,k_in,(64*m_tile+m_in)/6*2+(step+1)/3-1,(64*m_tile+m_in)%6*2+(step+1)%3-1], 0)",
        "copy n_in 16, k_in 32, engine, by block, as a box of c 32, s 1, r 1, k 16   b_ring[(step+1)%3,n_in,k_in] = select(16*n_tile+n_in < 20, w[16*n_tile+n_in,k_in,(step+1)/3,(step+1)%3], 0)",
      ]
    `);
  });

  /** The walks of a nest changed. */
  const changed = (change: (view: NonNullable<Copy["view"]>) => NonNullable<Copy["view"]>): LoopNest => {
    const inside = (all: readonly Statement[]): Statement[] =>
      all.map((s) => {
        if (s.kind === "loop") return { ...s, body: inside(s.body) };
        if (s.kind !== "send") return s;
        return { ...s, copies: s.copies.map((c) => (c.view ? { ...c, view: change(c.view) } : c)) };
      });
    return { ...nest, body: inside(nest.body) };
  };
  const faultOf = (wrong: LoopNest): string =>
    verdict({ nest: wrong, computation: context.mapping.computation }, ADVERSE_ORDERS[0]).replace(/\n.*/s, "");

  it("is found faulty when it begins, steps or is offset otherwise", () => {
    const pixels = (change: (rows: Extract<NonNullable<Copy["view"]>["rows"], { kind: "pixels" }>) => object): string =>
      faultOf(
        changed((view) =>
          view.rows.kind === "pixels" ? { ...view, rows: { ...view.rows, ...change(view.rows) } } : view,
        ),
      );
    expect(pixels(() => ({}))).toBe("right");
    const brings = /^the engine brings .* where .* is asked for$/;
    expect(pixels(({ offsets }) => ({ offsets: offsets.toReversed() }))).toMatch(brings);
    expect(pixels(({ walks }) => ({ walks: walks.map((w) => ({ ...w, count: w.count - 1 })) }))).toMatch(brings);
    expect(pixels(({ walks }) => ({ walks: walks.map((w) => ({ ...w, step: 1 })) }))).toMatch(brings);
    expect(faultOf(changed((view) => ({ ...view, at: view.at.map(() => number(0)) })))).toMatch(brings);
    const shifted = ({ at: [, ...others], ...view }: NonNullable<Copy["view"]>) => ({
      ...view,
      at: [number(7), ...others],
    });
    expect(faultOf(changed(shifted))).toBe("the engine begins at multiples of 16 bytes along c, not at 14");
  });
});

describe("a view that no descriptor of the copy engine expresses", () => {
  const reasonOf = (words: string, matching: string, last = true): string => {
    const context = contextOf(words, matching, last);
    const reasons = context.inputs.map((i) => viewForm(context, i)).filter((f) => typeof f === "string");
    return reasons.join("; ");
  };

  it("is refused with the reason", () => {
    expect([
      reasonOf(STRIDED, "m <- q; n <- k; k <- c,r,s"),
      reasonOf("conv2d n=2 c=16 k=16 h=6 w=6", "m <- n,q; n <- k; k <- c"),
      reasonOf("conv2d n=1 c=12 k=16 h=6 w=6", "m <- q; n <- k; k <- c"),
      reasonOf("conv2d n=1 c=16 k=16 h=30 w=30 stride=9", "m <- p,q; n <- k; k <- c"),
      reasonOf("conv2d n=1 c=16 k=16 h=6 w=6", "m <- k; n <- p,q; k <- c", false),
    ]).toMatchInlineSnapshot(`
      [
        "the columns of in are neither one loop nor several loops that are contiguous in memory; the columns of w are neither one loop nor several loops that are contiguous in memory",
        "rows do not walk along h in memory order",
        "in has 24 bytes from one w to the next, which is not a multiple of 16; w has 24 bytes from one s to the next, which is not a multiple of 16",
        "a copy engine cannot walk along w in steps of 9",
        "w has 6 bytes from one r to the next, which is not a multiple of 16; in has 12 bytes from one h to the next, which is not a multiple of 16",
      ]
    `);
  });

  it("is refused where taps or borders begin off 16 bytes, which faults on an H100", () => {
    const layer = (more: string): string =>
      reasonOf(`conv2d n=1 c=64 k=64 h=56 w=56 r=1 ${more}`, "m <- k; n <- q; k <- c", false);
    const off = "tiles of in begin at an offset of 2 bytes along w, and a copy engine begins at multiples of 16 bytes";
    expect(layer("s=1 pad=1")).toBe(off);
    expect(layer("s=3 pad=0")).toContain(off);
    expect(layer("s=1 pad=0")).not.toContain("tiles of in");
    expect(layer("s=3 pad=8 dilation=8")).not.toContain("tiles of in");
  });
});
