/**
 * @file Images in NCHW read as they lie: rows of pixels whose number makes narrow spans are lengthened, so that the engine brings them in few wide
 * boxes; their results are stored 16 bytes at once, 32 columns at a time and the rest as lanes hold them.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { sharedBytesOf } from "../../mapper/schedule/grid.ts";
import { rowElements } from "../../mapper/schedule/swizzle.ts";
import {
  convolutionF16,
  expectCompiled,
  type GridSubject,
  gridContextOf,
  gridKernelOf,
  gridSubject,
  itEqualsTheEquation,
  NVCC,
  refusals,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";

/** A convolution of one tap, whose pixels are the columns of tiles of so many. */
function pointwise(columns: number, pixels = "h=16 w=16", more: Partial<GridSchedule> = {}): GridSubject {
  const context = gridContextOf(
    convolutionF16(`conv2d n=1 c=64 k=64 ${pixels} r=1 s=1 pad=0`, false),
    `wgmma.m64n${columns}k16.f32.f16`,
    "m <- k; n <- p,q; k <- c",
  );
  const inline = { stage: 2, transfer: "engine", fragments: "inline", store: "quads" } as const;
  return gridSubject(
    `${columns} columns of ${pixels} ${JSON.stringify(more)}`,
    context,
    wgmmaSchedule(64, columns, 32, { ...inline, ...more }),
  );
}

const WIDE = pointwise(112, "h=14 w=16");
const SUBJECTS = [
  WIDE,
  pointwise(104, "h=8 w=15", { transfer: "async" }),
  pointwise(56, "h=8 w=9 n=2", { producer: "warp" }),
];

describe("pixels that lie along rows of shared memory", () => {
  itEqualsTheEquation(SUBJECTS);

  it("lie in wide spans where few elements are added", () => {
    const lengths = [8, 16, 40, 48, 56, 72, 104, 112, 208, 224, 256].map((columns) => {
      const { context } = pointwise(columns);
      const [, image] = context.inputs;
      return image && [columns, rowElements(image, columns), rowElements(image, 2 * columns)];
    });
    // Two instructions of 56 columns begin within one span of 32 bytes and at another: rows of both stay as they are.
    expect(lengths).toMatchInlineSnapshot(`
      [
        [
          8,
          8,
          16,
        ],
        [
          16,
          16,
          32,
        ],
        [
          40,
          48,
          80,
        ],
        [
          48,
          64,
          96,
        ],
        [
          56,
          64,
          112,
        ],
        [
          72,
          96,
          144,
        ],
        [
          104,
          128,
          208,
        ],
        [
          112,
          128,
          224,
        ],
        [
          208,
          256,
          416,
        ],
        [
          224,
          256,
          448,
        ],
        [
          256,
          256,
          512,
        ],
      ]
    `);
    expect(sharedBytesOf(WIDE.context, WIDE.schedule)).toBe(2 * 2 * (64 * 32 + 128 * 32) + 1024);
  });

  it("are brought in as many boxes as there are spans", () => {
    const stage = gridKernelOf(WIDE).source.split("for (int step")[0] ?? "";
    expect(stage.match(/copy_box<\d>\(&b_ring/g)).toHaveLength(2);
  });

  it("are exchanged by four lanes from 32 columns on", () => {
    const problem = (columns: number): string =>
      refusals(pointwise(columns).context, pointwise(columns).schedule, [{}]);
    expect([24, 40, 104, 208].map(problem)).toMatchInlineSnapshot(`
      [
        "unchanged: 24 columns are too few for four lanes to write 8 each",
        "unchanged: legal",
        "unchanged: legal",
        "unchanged: legal",
      ]
    `);
  });

  it.skipIf(!NVCC)("nvcc takes the kernels", { timeout: 120_000 }, async () => {
    for (const subject of SUBJECTS) await expectCompiled(subject);
  });
});
