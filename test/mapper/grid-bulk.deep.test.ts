/**
 * @file Results that the copy engine stores: they equal the equation in adverse orders, by the interpreter and on the emulated device, also where tiles
 * reach beyond the ends; what is seeded into them is found; nvcc takes them.
 */

import { describe, expect, it } from "vitest";
import { rowMajor } from "../../abstraction/affine.ts";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import { binary, number } from "../../abstraction/expression.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import {
  changed,
  expectCompiled,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  MATMUL,
  matmulF16,
  NVCC,
  refusals,
  reluConvolutionF16,
  verdict,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { stated } from "../support/subjects.ts";
import { suiteComputation } from "../support/suite.ts";

const wgmma = "wgmma.m64n32k16.f32.f16";
const TALL = matmulF16(192, 64, 64);
const context = gridContextOf(TALL, wgmma, MATMUL);
const BULK = wgmmaSchedule(64, 32, 32, { store: "bulk", transfer: "engine" });
const IN_TURN = { ...BULK, persistent: 4 } as const;
const PRODUCED = { ...BULK, tile: { m: 128, n: 64, k: 32 }, warps: { m: 2, n: 1 }, producer: "warp" } as const;
/** Three parts of 64 columns a tile, of which two are held: parts of a tile lie where others of the tile before lay. */
const WIDE = matmulF16(128, 192, 16);
const inWide = gridContextOf(WIDE, "wgmma.m64n192k16.f32.f16", MATMUL);
const IN_PARTS = wgmmaSchedule(64, 192, 16, { store: "bulk", transfer: "engine", persistent: 1 });
const CLIPPED = gridContextOf(matmulF16(150, 72, 40), wgmma, MATMUL);
const BESIDE = gridContextOf(
  stated(
    "sum[m,n] += f32(a[m,k]) * f32(b[k,n]) --m 70 --n 96 --k 32 --dtype a=f16,b=f16,other=s16,out=s16 --epilogue out[m,n] = sat_s16(sum[m,n] + f32(other[m,n])) --constant b",
  ),
  wgmma,
  MATMUL,
);

describe("results that the copy engine stores", () => {
  itEqualsTheEquation([
    gridSubject("a tile a block", context, BULK),
    gridSubject("tiles taken in turn", context, IN_TURN),
    gridSubject("beside a producer, beyond the ends", CLIPPED, { ...PRODUCED, persistent: 1 }),
    gridSubject("beyond the ends", CLIPPED, { ...BULK, persistent: 4 }),
    gridSubject("in parts, of which two are held", inWide, IN_PARTS),
    gridSubject("in parts of a single tile", inWide, { ...IN_PARTS, persistent: undefined }),
    gridSubject(
      "in parts of two rows of fragments, beside a producer",
      gridContextOf(matmulF16(150, 120, 16), "wgmma.m64n128k16.f32.f16", MATMUL),
      { ...IN_PARTS, tile: { m: 128, n: 128, k: 16 }, producer: "warp" },
    ),
    ...(["bf16", "e4m3"] as const).map((dtype) => {
      const product = suiteComputation({ op: "gmm", params: { m: 100, n: 192, k: 64 }, layout: "last", dtype });
      const instruction = dtype === "bf16" ? "wgmma.m64n192k16.f32.bf16" : "wgmma.m64n192k32.f32.e4m3";
      const schedule = { ...IN_PARTS, tile: { m: 64, n: 192, k: 32 } };
      return gridSubject(`from ${dtype} to bf16`, gridContextOf(product, instruction, MATMUL), schedule);
    }),
    gridSubject("another input beside the sums, beyond the ends", BESIDE, { ...BULK, persistent: 3 }),
    gridSubject(
      "a convolution's pixels, an odd number of matrices",
      gridContextOf(
        reluConvolutionF16("conv2d n=2 c=16 k=24 h=8 w=8 pad=1"),
        "wgmma.m64n24k16.f32.f16",
        "m <- n,p,q; n <- k; k <- c",
      ),
      wgmmaSchedule(64, 24, 16, { stage: 4, store: "bulk", transfer: "engine" }),
    ),
  ]);

  it("are staged where an earlier part was", () => {
    const [, inParts = ""] =
      /( +for unrolled n_part[\s\S]*?)\n +settle 0/.exec(printNest(lowerGrid(inWide, IN_PARTS))) ?? [];
    expect(inParts).toMatchInlineSnapshot(`
      "          for unrolled n_part in 0..3
                  settle 1
                  barrier warpgroup
                  for m_in, n_in in 64*(n_part%3).. 64 of c{m_fragment + n_part/3} by stmatrix   results[2*(m_warpgroup+n_warpgroup)+(3*turn+(3*m_fragment+n_part))%2,m_in,n_in-64*(n_part%3)] = f16(sum[])
                  fence wgmma memory
                  barrier warpgroup
                  copy m_in 64, n_in 64, engine, by warpgroup, as a box of n 64, m 64   c[64*(turn+block)+(64*m_warpgroup+64*m_fragment+m_in),192*n_warpgroup+192*(n_part/3)+64*(n_part%3)+n_in] = results[2*(m_warpgroup+n_warpgroup)+(3*turn+(3*m_fragment+n_part))%2,m_in,n_in]"
    `);
  });

  it("lie as boxes do, or nothing is printed", () => {
    const nest = lowerGrid(context, BULK);
    const scratch = nest.scratch.map((s) => (s.name === "results" ? { ...s, storage: rowMajor(s.dims ?? []) } : s));
    const print = (other: LoopNest): unknown =>
      generateCuda(TALL, context.intrinsic, other, { lines: [], chained: false });
    expect(() => print(nest)).not.toThrow();
    expect(() => print({ ...nest, scratch })).toThrow();
  });

  it("are refused with the reason", () => {
    expect(
      refusals(context, BULK, [{ transfer: "async" }, { split: { parts: 2, through: "memory" } }]),
    ).toMatchInlineSnapshot(`
      "transfer async: a copy engine that stores results also fetches inputs
      split parts 2,through memory: lanes store split sums"
    `);
  });

  it.skipIf(!NVCC)("are taken by nvcc", async () => {
    await expectCompiled(gridSubject("in turn", context, IN_TURN));
    await expectCompiled(gridSubject("in parts", inWide, IN_PARTS));
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
