/**
 * @file Inputs of which a block stages what its tile reads once, as it lies in memory: lanes gather fragments from there, and results are the equation's.
 */

import { describe, expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { boxOf } from "../../mapper/schedule/gather.ts";
import {
  convolutionF16,
  expectCompiled,
  type GridSubject,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  mmaSchedule,
  NVCC,
  refusals,
  withoutStatements,
} from "../support/grid-kernels.ts";
import { parametersIn, smallIntegers } from "../support/subjects.ts";
import { suiteComputation } from "../support/suite.ts";

const gathering = (m: number, n: number, k: number, more: Partial<GridSchedule> = {}): GridSchedule =>
  mmaSchedule(m, n, k, { swizzle: "padded", gather: "a", ...more });

const K16 = "mma.m16n8k16.f32.f16";
const K8 = "mma.m16n8k8.f32.f16";
const subject = (
  name: string,
  computation: Computation,
  matching: string,
  schedule: GridSchedule,
  instruction = K16,
): GridSubject => gridSubject(name, gridContextOf(computation, instruction, matching), schedule);

const grouped = (layout: "first" | "last"): Computation =>
  suiteComputation({
    op: "grp",
    layout,
    params: parametersIn("n=2 c=16 k=16 h=4 w=4 r=3 s=3 pad=1 stride=1 dilation=1 groups=2"),
  });

const FIRST = "n=2 c=3 k=10 h=12 w=16 r=5 s=5 stride=2 pad=2";

/** Borders, strides, dilation, sums with a tail, tiles of whole rows and of parts, both bindings, one to three dimensions, groups. */
const LAST = subject(
  "channels last, 3 of them",
  convolutionF16(`conv2d ${FIRST}`),
  "m <- n,p,q; n <- k; k <- r,s,c",
  gathering(16, 16, 32),
);
const CHANNELS_FIRST = subject(
  "channels first",
  convolutionF16(`conv2d ${FIRST}`, false),
  "m <- k; n <- p,q; k <- c,r,s",
  gathering(16, 16, 32, { gather: "b" }),
);
const IN_ROWS = subject(
  "groups in rows",
  grouped("last"),
  "m <- n,p,q; n <- k; k <- c",
  gathering(32, 8, 8, { swizzle: "plain" }),
  K8,
);

describe("an input staged once, in its own layout", () => {
  itEqualsTheEquation([
    LAST,
    subject(
      "rows one by one",
      convolutionF16(`conv2d ${FIRST}`),
      "m <- q; n <- k; k <- c,r,s",
      gathering(16, 8, 16, { stage: 1, transfer: "plain" }),
    ),
    CHANNELS_FIRST,
    subject(
      "results across",
      convolutionF16(`conv2d ${FIRST}`, false),
      "m <- p,q; n <- k; k <- c,r,s",
      gathering(32, 8, 16, { warps: { m: 2, n: 1 }, fragments: "ahead" }),
    ),
    subject(
      "dilated",
      convolutionF16(`conv2d ${FIRST} stride=1 dilation=2 r=3 s=3`),
      "m <- p,q; n <- k; k <- r,s,c",
      gathering(16, 16, 16, { stage: 3 }),
    ),
    subject(
      "fragments across",
      convolutionF16(`conv2d ${FIRST} c=4`),
      "m <- n,p,q; n <- k; k <- r,s,c",
      gathering(48, 16, 32, { fragments: "across", stage: 3 }),
    ),
    subject(
      "rows of 16 bytes",
      convolutionF16("conv2d n=1 c=8 k=8 h=9 w=8"),
      "m <- p,q; n <- k; k <- c",
      gathering(16, 8, 8),
      K8,
    ),
    subject(
      "words of tf32",
      suiteComputation({
        op: "c2d",
        layout: "last",
        dtype: "tf32",
        params: parametersIn(`${FIRST} dilation=1 groups=1`),
      }),
      "m <- k; n <- p,q; k <- s,c",
      gathering(16, 8, 8, { gather: "b", stage: 3 }),
      "mma.m16n8k4.f32.tf32",
    ),
    subject(
      "one dimension",
      convolutionF16("conv1d n=2 c=5 k=9 l=30 r=4 pad=2"),
      "m <- p; n <- k; k <- c,r",
      gathering(32, 16, 32),
    ),
    subject(
      "three dimensions",
      convolutionF16("conv3d n=1 c=3 k=8 d=4 h=4 w=8 t=3 r=3 s=3 pad=1 pad_d=1"),
      "m <- o,p,q; n <- k; k <- t,r,s,c",
      gathering(32, 8, 32),
    ),
    subject(
      "capsules",
      convolutionF16("capsule-conv2d n=1 c=3 k=4 h=6 w=8 r=3 s=3 caps=4"),
      "m <- p,q; n <- k,u; k <- c,r,s",
      gathering(16, 16, 32),
    ),
    subject("groups, channels last", grouped("last"), "m <- q; n <- k; k <- r,s,c", gathering(16, 8, 16)),
    IN_ROWS,
    subject(
      "groups, channels first",
      grouped("first"),
      "m <- k; n <- p,q; k <- c,r,s",
      gathering(16, 8, 32, { gather: "b" }),
    ),
  ]);
});

describe("a staged box of an input", () => {
  const { context, schedule } = LAST;
  const { computation } = context.mapping;

  it("prints as this program: rows with borders, fused channels and pixels, zeros beyond the sum", () => {
    expect(printNest(lowerGrid(context, schedule))).toMatchInlineSnapshot(`
      "shared a_box: f16[n 1, h 7, wc 64] at 448*n + 64*h + wc
      shared b_ring: f16[stage 2, n 16, k 32] at stage*640 + (n*40 + k)
      registers c: 2 x mma.m16n8k16.f32.f16.c
      registers a: 1 x mma.m16n8k16.f32.f16.a
      registers b: 2 x mma.m16n8k16.f32.f16.b
      for at block m_tile in 0..6
        for at block n_tile in 0..1
          for at warp m_warp in 0..1
            for at warp n_warp in 0..1
              for unrolled m_fragment in 0..1
                for unrolled n_fragment in 0..2
                  c{2*m_fragment + n_fragment} <- identity
              copy h_place 7, wc_place 64 by 8, async, by block   a_box[0,h_place,wc_place] = in[16*m_tile/48,(-6+(wc_place-2))%3,16*m_tile/8%6*2-2+h_place,(-6+(wc_place-2))/3]
              copy n_in 16, k_in 32, by block   b_ring[0,n_in,k_in] = select(16*n_tile+n_in < 10 and k_in < 75, w[16*n_tile+n_in,k_in%3,k_in/15,k_in/3%5], 0)
              commit
              for step in 0..3
                wait 0
                barrier block
                copy n_in 16, k_in 32, by block where step+1 < 3   b_ring[(step+1)%2,n_in,k_in] = select(16*n_tile+n_in < 10 and 32*(step+1)+k_in < 75, w[16*n_tile+n_in,(32*(step+1)+k_in)%3,(32*(step+1)+k_in)/15,(32*(step+1)+k_in)/3%5], 0)
                commit
                for unrolled k_part in 0..2
                  for unrolled m_fragment in 0..1
                    a{m_fragment} <- a_box[0,2*((16*m_warp+16*m_fragment+m_in)/8%2)+(32*step+(16*k_part+k_in))/15,2+6*((16*m_warp+16*m_fragment+m_in)%8)+3*((32*step+(16*k_part+k_in))/3%5)+(32*step+(16*k_part+k_in))%3] over m_in, k_in where 32*step+(16*k_part+k_in) < 75
                  for unrolled n_fragment in 0..1
                    b{2*n_fragment} and 1 more <- b_ring[step%2,16*n_warp+8*(2*n_fragment)+n_in,16*k_part+k_in] over k_in, n_in by ldmatrix
                  for unrolled m_fragment in 0..1
                    for unrolled n_fragment in 0..2
                      c{2*m_fragment + n_fragment} <- mma.m16n8k16.f32.f16(a{m_fragment}, b{n_fragment})
              for unrolled m_fragment in 0..1
                for unrolled n_fragment in 0..2
                  for m_in, n_in of c{2*m_fragment + n_fragment}   y[(16*m_tile+(16*m_warp+16*m_fragment+m_in))/48,16*n_tile+(16*n_warp+8*n_fragment+n_in),(16*m_tile+(16*m_warp+16*m_fragment+m_in))/8%6,(16*m_tile+(16*m_warp+16*m_fragment+m_in))%8] = f16(sum[]) where 16*n_tile+(16*n_warp+8*n_fragment+n_in) < 10"
    `);
  });

  const LEFT_OUT: readonly (readonly [string, (s: Statement) => boolean])[] = [
    ["its copy", (s) => s.kind === "copy" && s.equation.target.tensor === "a_box"],
    ["the wait for it", (s) => s.kind === "wait"],
    ["the barrier behind it", (s) => s.kind === "barrier"],
  ];
  it.each(LEFT_OUT)("is found faulty without %s", (_, leave) => {
    const nest = withoutStatements(lowerGrid(context, schedule), leave);
    expect(() => interpretNest(nest, computation, smallIntegers(computation), 1, ADVERSE_ORDERS[0])).toThrow(NestFault);
  });

  it("keeps elements beyond the end of the sum out of a result, whatever their values", () => {
    const inputs = smallIntegers(computation);
    // The first results read five of the 12 rows of an image: the sixth lies beyond the ends of their sums.
    const image = Float64Array.from(inputs["in"] ?? [], (v, i) =>
      Math.floor(i / 16) % 12 >= 5 ? Number.POSITIVE_INFINITY : v,
    );
    const given = { ...inputs, in: image };
    const expected = [...interpret(computation, given)];
    expect(expected.filter(Number.isFinite).length).toBeGreaterThan(0);
    expect([...interpretNest(lowerGrid(context, schedule), computation, given, 1)]).toEqual(expected);
  });

  it("begins at an element where wide copies may begin, and is as wide as its rows", () => {
    const sizes = (one: GridSubject): string => {
      const box = boxOf(one.context, one.schedule);
      const dims = box?.dims.map((d) => `${d.name} ${d.staged}${d.ahead > 0 ? `, ${d.ahead} ahead` : ""}`) ?? [];
      return [box?.width, ...dims].join("; ");
    };
    expect([LAST, CHANNELS_FIRST, IN_ROWS].map(sizes)).toMatchInlineSnapshot(`
      [
        "8; n 1; h 7; wc 64, 2 ahead",
        "4; n 1; c 3; h 7; w 24, 2 ahead",
        "8; n 2; h 6; w 6; c 8",
      ]
    `);
  });

  it("is refused with the reason", () => {
    expect(
      refusals(context, schedule, [
        { gather: "b", transfer: "plain" },
        { gather: "d", transfer: "plain" },
        { tile: { m: 80, n: 16, k: 32 }, transfer: "plain" },
        { stage: 3, split: { parts: 3, through: "memory" } },
      ]),
    ).toMatchInlineSnapshot(`
      "gather b,transfer plain: no two results of a tile read the same b
      gather d,transfer plain: d is no input of mma.m16n8k16.f32.f16
      tile m 80,n 16,k 32,transfer plain: a tile of 80 along m is not a box of its loops
      stage 3,split parts 3,through memory: a box is staged for the whole sum, so the sum cannot be split among blocks"
    `);
    const wide = gridContextOf(
      convolutionF16("conv2d n=1 c=64 k=64 h=8 w=8"),
      "wgmma.m64n64k16.f32.f16",
      "m <- p,q; n <- k; k <- c",
    );
    expect(refusals(wide, gathering(64, 64, 64), [{ swizzle: "spans" }])).toMatchInlineSnapshot(
      `"swizzle spans: wgmma.m64n64k16.f32.f16 reads a from shared memory itself, so lanes gather nothing"`,
    );
  });
});

describe.skipIf(!NVCC)("nvcc", () => {
  const layer = (op: string, words: string): Computation =>
    suiteComputation({ op, layout: "last", params: parametersIn(words) });
  it.each([
    subject(
      "7x7 taps on 3 channels",
      layer("c2d", "n=16 c=3 h=224 w=224 k=64 r=7 s=7 stride=2 pad=3 dilation=1 groups=1"),
      "m <- p,q; n <- k; k <- r,s,c",
      gathering(224, 64, 32, { warps: { m: 2, n: 2 } }),
    ),
    subject(
      "32 groups of 8 channels",
      layer("grp", "n=16 c=256 h=28 w=28 k=256 r=3 s=3 stride=1 pad=1 dilation=1 groups=32"),
      "m <- p,q; n <- k; k <- c",
      gathering(112, 8, 8, { swizzle: "plain" }),
      K8,
    ),
  ])("takes boxes without a spill or a byte of stack: $name", { timeout: 120_000 }, (one) => expectCompiled(one));
});
