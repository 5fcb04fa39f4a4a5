/** @file GridSample and RoiAlign between, beside and far from the pixels; operators whose output has a size that only the run knows. */

import { describe, expect, it } from "vitest";
import { made, onnx, refused } from "./support/networks.ts";

/** A row of 4 pixels 1, 2, 3, 4 (as an image of one row) at places from -1 to 1. */
const sampled = (places: readonly number[], attributes = ""): Promise<number[]> =>
  made(onnx(`GridSample<${attributes}>(x[1,1,1,4], grid[1,1,${places.length},2])`, 16), {
    x: [1, 2, 3, 4],
    grid: places.flatMap((place) => [place, 0]),
  });

const FAR = [1e9, -1e9, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];

it("GridSample weighs the pixels around a place, and those beside the image count as 0", async () => {
  // Pixels have a width of 0.5 and their centres at -0.75, -0.25, 0.25, 0.75.
  expect(await sampled([-0.75, -0.5, 0.75, -1, 1, 1.25, ...FAR])).toEqual([1, 1.5, 4, 0.5, 2, 0, 0, 0, 0, 0]);
  expect(await sampled([-1, 0, 1], "align_corners=1")).toEqual([1, 2.5, 4]);
});

it("GridSample gives an image of the grid's rows and columns for each image and channel", async () => {
  const x = [1, 2, 3, 4, 10, 20, 30, 40, 5, 6, 7, 8, 50, 60, 70, 80];
  const swapped = [-0.5, -0.5, -0.5, 0.5, 0.5, -0.5, 0.5, 0.5, 0, 0, 0.5, 0];
  const kept = [-0.5, -0.5, 0.5, -0.5, -0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0, 0];
  const results = await made(onnx("GridSample(x[2,2,2,2], grid[2,3,2,2])", 16), { x, grid: [...swapped, ...kept] });
  expect(results).toEqual(
    [
      [1, 3, 2, 4, 2.5, 3],
      [10, 30, 20, 40, 25, 30],
      [5, 6, 7, 8, 8, 6.5],
      [50, 60, 70, 80, 80, 65],
    ].flat(),
  );
});

it("GridSample takes the nearest pixel, of two the even one", async () => {
  expect(await sampled([-0.5, 0, 0.5, 0.3, -1.3], "mode=nearest")).toEqual([1, 3, 3, 3, 0]);
});

it("GridSample stays within the image, or turns back at its borders", async () => {
  expect(await sampled([-1, 1, ...FAR], "padding_mode=border")).toEqual([1, 4, 4, 1, 4, 1]);
  const mirrored = "padding_mode=reflection";
  expect(await sampled([-1, -1.25, 1.25, 1.75, 2.75], mirrored)).toEqual([1, 1, 4, 3, 1]);
  expect(await sampled([-1, -5 / 3, 5 / 3], `${mirrored}, align_corners=1`)).toEqual([1, 2, 3]);
  await expect(sampled([0], "mode=bicubic")).rejects.toThrow('mode "bicubic" is not supported');
});

it.each([
  ["NonMaxSuppression", "boxes"],
  ["Unique", "different elements"],
  ["Compress", "elements"],
])("%s is refused for the size of its output", (op, what) => {
  expect(refused(onnx(`${op}(x[1,4,4])`))).toContain(
    `(${op}): the number of ${what} that it selects is known only when the network runs, and sizes are fixed before`,
  );
});

describe("RoiAlign", () => {
  const ramp = Array.from({ length: 32 }, (_, i) => (i < 16 ? i : 100 + i - 16));
  const aligned = (boxes: readonly number[], of: readonly number[], attributes: string): Promise<number[]> =>
    made(
      onnx(
        `RoiAlign<output_height=2, output_width=2, ${attributes}>(x[2,1,4,4], boxes[${of.length},4], of:s64[${of.length}])`,
        16,
      ),
      {
        x: ramp,
        boxes,
        of,
      },
    );

  it("means samples between the pixels of the image that each box is of", async () => {
    const results = await aligned([0, 0, 4, 4, 0, 0, 2, 4], [0, 1], "sampling_ratio=2");
    expect(results).toEqual([2.5, 4.5, 10.5, 12.5, 102.125, 103, 110.125, 111]);
  });

  it("takes the nearest pixels beside the image, and nothing further off", async () => {
    const results = await aligned([-1, 3, 1, 5, 10, 10, 12, 12], [0, 0], "sampling_ratio=1");
    expect(results).toEqual([12, 12, 12, 12, 0, 0, 0, 0]);
  });

  it("has boxes of a pixel at least, from their corner, where half a pixel is not taken off", async () => {
    const attributes = 'sampling_ratio=1, coordinate_transformation_mode="output_half_pixel", spatial_scale=0.5';
    expect(await aligned([2, 2, 2, 2], [0], attributes)).toEqual([6.25, 6.75, 8.25, 8.75]);
  });

  it("is refused where the run decides how many samples are taken, and for the greatest sample", async () => {
    await expect(aligned([0, 0, 1, 1], [0], "sampling_ratio=0")).rejects.toThrow("decide how many samples are taken");
    await expect(aligned([0, 0, 1, 1], [0], 'sampling_ratio=1, mode="max"')).rejects.toThrow(
      'mode "max" is not supported',
    );
  });
});
