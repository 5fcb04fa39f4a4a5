/**
 * @file Images in NCHW read as they lie: rows of pixels whose number makes narrow spans are lengthened, so that the engine brings them in few wide
 * boxes; their results are stored 16 bytes at once, 32 columns at a time and the rest as lanes hold them.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../abstraction/blocks/run.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { gridProblem, sharedBytesOf } from "../mapper/schedule/grid.ts";
import { rowElements } from "../mapper/schedule/swizzle.ts";
import {
  convolutionF16,
  expectCompiled,
  expectRightEmulated,
  expectRightInterpreted,
  type GridSubject,
  gridContextOf,
  NVCC,
} from "./support/grid-kernels.ts";

/** A convolution of one tap, whose pixels are the columns of tiles of so many. */
function pointwise(
  columns: number,
  pixels: { h: number; w: number; n?: number },
  more: Partial<GridSchedule>,
): GridSubject {
  const { n = 1, h, w } = pixels;
  const context = gridContextOf(
    convolutionF16("conv2d", { n, c: 64, k: 64, h, w, r: 1, s: 1, pad: 0 }, false),
    `wgmma.m64n${columns}k16.f32.f16`,
    "m <- k; n <- p,q; k <- c",
  );
  const schedule: GridSchedule = {
    tile: { m: 64, n: columns, k: 32 },
    warps: { m: 1, n: 1 },
    stage: 2,
    swizzle: "spans",
    transfer: "engine",
    order: 1,
    fragments: "inline",
    store: "quads",
    ...more,
  };
  return { name: `${columns} columns of ${h} x ${w}, ${schedule.transfer}, ${schedule.store}`, context, schedule };
}

const SUBJECTS = [
  pointwise(112, { h: 14, w: 16 }, {}),
  pointwise(104, { h: 8, w: 15 }, { transfer: "async" }),
  pointwise(56, { h: 8, w: 9, n: 2 }, { store: "quads", producer: "warp" }),
];

describe("pixels that lie along rows of shared memory", () => {
  it.each(SUBJECTS)("equal the equation: $name", ({ context, schedule }) => {
    expectRightInterpreted({ context, schedule }, ADVERSE_ORDERS.slice(0, 1));
  });

  it("are right on the emulated device", () => expectRightEmulated(SUBJECTS), 120_000);

  it("lie in wide spans where few elements are added", () => {
    const lengths = [8, 16, 40, 48, 56, 72, 104, 112, 208, 224, 256].map((columns) => {
      const { context } = pointwise(columns, { h: 16, w: 16 }, {});
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
    const { context, schedule } = pointwise(112, { h: 14, w: 16 }, {});
    expect(sharedBytesOf(context, schedule)).toBe(2 * 2 * (64 * 32 + 128 * 32) + 1024);
  });

  it("are brought in as many boxes as there are spans", () => {
    const { context, schedule } = pointwise(112, { h: 14, w: 16 }, {});
    const { source } = generateCuda(context.mapping.computation, context.intrinsic, lowerGrid(context, schedule), {
      lines: [],
    });
    const stage = source.split("for (int step")[0] ?? "";
    expect(stage.match(/copy_box<\d>\(&b_ring/g)).toHaveLength(2);
  });

  it("are exchanged by four lanes from 32 columns on", () => {
    const problem = (columns: number): string | undefined => {
      const { context, schedule } = pointwise(columns, { h: 16, w: 16 }, {});
      return gridProblem(context, schedule);
    };
    expect([40, 104, 208].map(problem)).toEqual([undefined, undefined, undefined]);
    expect(problem(24)).toBe("24 columns are too few for four lanes to write 8 each");
  });

  it.skipIf(!NVCC)("nvcc takes the kernels", { timeout: 120_000 }, async () => {
    for (const subject of SUBJECTS) await expectCompiled(subject);
  });
});
