/**
 * @file Inputs of which a block stages what its tile reads once, as it lies in memory: lanes gather fragments from there, and results are the equation's.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { boxOf } from "../../mapper/schedule/gather.ts";
import { convolutionF16, type GridSubject, gridContextOf, gridSubject, mmaSchedule } from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";
import { parametersIn, smallIntegers } from "../support/subjects.ts";
import { suiteComputation } from "../support/suite.ts";

const gathering = (m: number, n: number, k: number, more: Partial<GridSchedule> = {}): GridSchedule =>
  mmaSchedule(m, n, k, { swizzle: "padded", gather: "a", ...more });

const K16 = "mma.m16n8k16.f32.f16";
const subject = (
  name: string,
  computation: Computation,
  matching: string,
  schedule: GridSchedule,
  instruction = K16,
): GridSubject => gridSubject(name, gridContextOf(computation, instruction, matching), schedule);

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
  suiteComputation({
    op: "grp",
    layout: "last",
    params: parametersIn("n=2 c=16 k=16 h=4 w=4 r=3 s=3 pad=1 stride=1 dilation=1 groups=2"),
  }),
  "m <- n,p,q; n <- k; k <- c",
  gathering(32, 8, 8, { swizzle: "plain" }),
  "mma.m16n8k8.f32.f16",
);

describe("an input staged once, in its own layout", () => playGrids("gather"));

describe("a staged box of an input", () => {
  const { context, schedule } = LAST;
  const { computation } = context.mapping;

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
});
