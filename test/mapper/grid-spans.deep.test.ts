/**
 * @file Images in NCHW read as they lie: rows of pixels whose number makes narrow spans are lengthened, so that the engine brings them in few wide
 * boxes; their results are stored 16 bytes at once, 32 columns at a time and the rest as lanes hold them.
 */

import { describe, expect, it } from "vitest";
import { sharedBytesOf } from "../../mapper/schedule/grid.ts";
import { rowElements } from "../../mapper/schedule/swizzle.ts";
import {
  convolutionF16,
  type GridSubject,
  gridContextOf,
  gridKernelOf,
  gridSubject,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";

/** A convolution of one tap, whose pixels are the columns of tiles of so many. */
const pointwise = (columns: number): GridSubject =>
  gridSubject(
    `${columns} columns`,
    gridContextOf(
      convolutionF16("conv2d n=1 c=64 k=64 h=14 w=16 r=1 s=1 pad=0", false),
      `wgmma.m64n${columns}k16.f32.f16`,
      "m <- k; n <- p,q; k <- c",
    ),
    wgmmaSchedule(64, columns, 32, { stage: 2, transfer: "engine", fragments: "inline", store: "quads" }),
  );
const WIDE = pointwise(112);

describe("pixels that lie along rows of shared memory", () => {
  playGrids("spans");

  it("lie in wide spans where few elements are added", () => {
    const lengths = [8, 16, 40, 48, 56, 72, 104, 112, 208, 224, 256].map((columns) => {
      const { context } = pointwise(columns);
      const [, image] = context.inputs;
      return image && [columns, rowElements(image, columns), rowElements(image, 2 * columns)].join(" ");
    });
    // Two instructions of 56 columns begin within one span of 32 bytes and at another: rows of both stay as they are.
    expect(lengths.join("; ")).toBe(
      "8 8 16; 16 16 32; 40 48 80; 48 64 96; 56 64 112; 72 96 144; 104 128 208; 112 128 224; 208 256 416; 224 256 448; 256 256 512",
    );
    expect(sharedBytesOf(WIDE.context, WIDE.schedule)).toBe(2 * 2 * (64 * 32 + 128 * 32) + 1024);
  });

  it("are brought in as many boxes as there are spans", () => {
    const stage = gridKernelOf(WIDE).source.split("for (int step")[0] ?? "";
    expect(stage.match(/copy_box<\d>\(&b_ring/g)).toHaveLength(2);
  });
});
