/** @file Windows of an input staged once, which the taps of a filter read at an offset each: results are the equation's. */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { axis, binary, compare, number } from "../../abstraction/expression.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { windowForm, windowOf } from "../../mapper/schedule/taps.ts";
import {
  convolutionF16,
  expectCompiled,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  NVCC,
  refusals,
  verdict,
  wgmmaSchedule,
  withoutStatements,
} from "../support/grid-kernels.ts";

const contextOf = (words: string, matching: string, instruction = "wgmma.m64n16k16.f32.f16"): GridContext =>
  gridContextOf(convolutionF16(words), instruction, matching);

const shifted = (m: number, n: number, more: Partial<GridSchedule> = {}): GridSchedule =>
  wgmmaSchedule(m, n, 64, { taps: "shifted", ...more });

const ENGINE = { transfer: "engine" } as const;

describe("taps that read windows of an input staged once", () => {
  // Borders on all sides and on none, tails, several images in a tile, dilation, one to three dimensions, both bindings.
  const cases = [
    ["conv2d n=2 c=64 k=16 h=7 w=7", "m <- n,p,q; n <- k; k <- c", shifted(64, 16)],
    ["conv2d n=1 c=72 k=20 h=9 w=10", "m <- k; n <- p,q; k <- c", shifted(64, 32, ENGINE)],
    [
      "conv2d n=3 c=136 k=16 h=4 w=4",
      "m <- n,p,q; n <- k; k <- c",
      shifted(128, 16, { ...ENGINE, stage: 2, fragments: "inline" }),
    ],
    ["conv2d n=1 c=64 k=16 h=8 w=8 pad=0", "m <- p,q; n <- k; k <- c", shifted(64, 16, ENGINE)],
    ["conv2d n=1 c=64 k=16 h=9 w=9 dilation=2 pad=2", "m <- k; n <- p,q; k <- c", shifted(64, 48)],
    ["conv2d n=1 c=64 k=16 h=5 w=20 r=1 s=5 pad=2", "m <- k; n <- q; k <- c", shifted(64, 16)],
    [
      "conv2d n=1 c=256 k=24 h=5 w=5",
      "m <- k; n <- p,q; k <- c",
      shifted(64, 32, { ...ENGINE, split: { parts: 2, through: "cluster" } }),
    ],
    [
      "conv2d n=2 c=128 k=16 h=5 w=5",
      "m <- n,p,q; n <- k; k <- c",
      shifted(64, 16, { split: { parts: 2, through: "memory" } }),
    ],
    ["conv1d n=2 c=64 k=16 l=30 r=5 pad=2", "m <- n,p; n <- k; k <- c", shifted(64, 16, ENGINE)],
    ["conv3d n=1 c=64 k=16 d=3 h=3 w=4 t=3 r=3 s=3 pad_d=1", "m <- o,p,q; n <- k; k <- c", shifted(64, 16, ENGINE)],
  ] as const;
  itEqualsTheEquation(
    cases.map(([words, matching, schedule]) =>
      gridSubject(`${words}, ${matching}`, contextOf(words, matching), schedule),
    ),
  );
});

describe("a window", () => {
  const context = contextOf("conv2d n=1 c=136 k=16 h=6 w=6", "m <- p,q; n <- k; k <- c");
  const { computation } = context.mapping;

  it("prints as this program", () => {
    expect(printNest(lowerGrid(context, shifted(64, 16, ENGINE)))).toMatchInlineSnapshot(`
      "shared a_window: f16[stage 2, m 80, k 64] at stage*5120 + (m*64 + (8*(k/8 ^ m%8) + k%8))
      shared b_ring: f16[stage 3, n 16, k 64] at stage*1024 + (n*64 + (8*(k/8 ^ n%8) + k%8))
      registers c: 1 x wgmma.m64n16k16.f32.f16.c
      arrivals full: 3
      arrivals window_full: 2
      for at block n_block in 0..1
        for at block m_tile in 0..1
          for at block n_tile in 0..1
            for at warpgroup m_warpgroup in 0..1
              for at warpgroup n_warpgroup in 0..1
                for unrolled m_fragment in 0..1
                  for unrolled n_fragment in 0..1
                    c{m_fragment + n_fragment} <- identity
                copy slot 2, row 24, k_in 64 by 8, by block   a_window[slot,56+row,k_in] = 0
                fence wgmma memory
                send for window_full[0]
                  copy h_place 8, w_place 7, k_in 64, engine, by block, as a box of c 64, w 7, h 8, n 1   a_window[0,7*h_place+w_place,k_in] = in[n_block,k_in,-1+h_place,-1+w_place]
                send for full[0]
                  copy n_in 16, k_in 64, engine, by block, as a box of c 64, s 1, r 1, k 16   b_ring[0,n_in,k_in] = w[16*n_tile+n_in,k_in,0,0]
                for step in 0..27
                  await full[step%3], use step/3
                  await window_full[step/9%2], use step/9/2
                  barrier block
                  fence wgmma registers
                  for unrolled k_part in 0..4
                    for unrolled m_fragment in 0..1
                      for unrolled n_fragment in 0..1
                        c{m_fragment + n_fragment} <- wgmma.m64n16k16.f32.f16(a_window[step/9%2,64*m_warpgroup+64*m_fragment+m_in+step%9%3+7*(step%9/3),16*k_part+k_in] over m_in, k_in, b_ring[step%3,16*n_warpgroup+16*n_fragment+n_in,16*k_part+k_in] over k_in, n_in)
                  commit wgmma
                  send for window_full[(step/9 + 1)%2] where step%9 == 1 and step/9+1 < 3
                    copy h_place 8, w_place 7, k_in 64, engine, by block, as a box of c 64, w 7, h 8, n 1   a_window[(step/9+1)%2,7*h_place+w_place,k_in] = in[n_block,64*(step/9+1)+k_in,-1+h_place,-1+w_place]
                  send for full[(step + 1)%3] where step+1 < 27
                    copy n_in 16, k_in 64, engine, by block, as a box of c 64, s 1, r 1, k 16   b_ring[(step+1)%3,n_in,k_in] = w[16*n_tile+n_in,64*((step+1)/9)+k_in,(step+1)%9/3,(step+1)%9%3]
                  wait wgmma 1
                wait wgmma 0
                for unrolled m_fragment in 0..1
                  for unrolled n_fragment in 0..1
                    for m_in, n_in of c{m_fragment + n_fragment}   y[n_block,16*n_tile+(16*n_warpgroup+16*n_fragment+n_in),(64*m_warpgroup+64*m_fragment+m_in)/7%8,(64*m_warpgroup+64*m_fragment+m_in)%7] = f16(sum[]) where (64*m_warpgroup+64*m_fragment+m_in)%7 < 6 and (64*m_warpgroup+64*m_fragment+m_in)/7%8 < 6 and (64*m_warpgroup+64*m_fragment+m_in)/56 < 1"
    `);
  });

  const isWindow = (s: Statement): boolean => "arrival" in s && s.arrival.name === "window_full";
  const LEFT_OUT: readonly (readonly [string, GridSchedule["transfer"], (s: Statement) => boolean])[] = [
    ["the wait for the window", "engine", (s) => s.kind === "await" && isWindow(s)],
    ["the next window", "engine", (s) => s.kind === "send" && isWindow(s) && s.when !== undefined],
    ["the barrier of a step", "engine", (s) => s.kind === "barrier" && s.group === "block"],
    ["the fence behind the zeros", "engine", (s) => s.kind === "fence" && s.on === "memory"],
    ["the zeros", "async", (s) => s.kind === "copy" && s.transfer === "plain"],
    ["the wait for groups", "async", (s) => s.kind === "wait" && !s.of],
    ["the publication of a step", "async", (s) => s.kind === "fence" && s.on === "memory"],
  ];
  it.each(LEFT_OUT)("is found faulty without %s (%s)", (_, transfer, leave) => {
    const nest = lowerGrid(context, shifted(128, 16, { transfer, warps: { m: 2, n: 1 } }));
    const left = { nest: withoutStatements(nest, leave), computation };
    const outcomes = ADVERSE_ORDERS.slice(0, 2).map((order) => verdict(left, order));
    expect(outcomes.filter((o) => o !== "right" && o !== "wrong")).not.toEqual([]);
  });

  it("is overwritten early when it is requested a step sooner", () => {
    const nest = lowerGrid(context, shifted(64, 16, ENGINE));
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
    expect(
      refusals(context, shifted(64, 16), [
        { transfer: "plain" },
        { tile: { m: 64, n: 16, k: 32 } },
        { stage: 1, fragments: "inline" },
      ]),
    ).toMatchInlineSnapshot(`
      "transfer plain: a window is copied asynchronously
      tile m 64,n 16,k 32: rows of a window have 128 bytes, not 64
      stage 1,fragments inline: windows need a second stage"
    `);
  });
});

describe.skipIf(!NVCC)("nvcc", () => {
  it.each([
    ["engine", "across"],
    ["async", "inline"],
  ] as const)(
    "takes windows of a layer of ResNet-18 without serialised products or a byte of stack: %s, %s",
    { timeout: 120_000 },
    (transfer, fragments) =>
      expectCompiled({
        name: transfer,
        context: contextOf("conv2d n=16 c=128 k=128 h=28 w=28", "m <- k; n <- p,q; k <- c", "wgmma.m64n208k16.f32.f16"),
        schedule: shifted(64, 208, { transfer, fragments, stage: 6 }),
      }),
  );
});
