/** Copies in the model of GPUs: the lines and sectors that narrow ones touch, and nothing outside a tensor. */

import { describe, expect, it } from "vitest";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { stepCycles } from "../../perfmodel/grid-step.ts";
import { type TileCopy, tileCopy } from "../../perfmodel/tile-copies.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { convolutionF16, gridContextOf, mmaSchedule } from "../support/grid-kernels.ts";

const LAYER = "conv2d n=1 c=64 k=64 h=16 w=16";

/** Of the input of images, in a tile of 64 by 64. */
function imagesOf(last: boolean, mapping: string, width: number): TileCopy {
  const context: GridContext = gridContextOf(convolutionF16(LAYER, last), "wgmma.m64n64k16.f32.f16", mapping);
  const images = context.inputs.find((i) => i.value.kind === "access" && i.value.tensor === "in");
  if (!images) throw new Error("no input of images");
  return tileCopy(context, images, 64, 64, width);
}

describe("a tile's copy", () => {
  it("of channels-last pixels touches four lines an access of 16 bytes a lane, and fetches only what it uses", () => {
    const { accesses, live, lines, fetchedBytes, usedBytes } = imagesOf(true, "m <- k; n <- n,p,q; k <- c", 8);
    expect({ accesses, live, lines }).toEqual({ accesses: 16, live: 16, lines: 64 });
    expect(fetchedBytes).toBe(usedBytes);
  });

  it("of neighbouring pixels, an element a lane, touches one line an access and fetches only what it uses", () => {
    const { accesses, lines, fetchedBytes, usedBytes } = imagesOf(false, "m <- k; n <- n,p,q; k <- c", 1);
    expect(lines).toBe(accesses);
    expect(fetchedBytes).toBe(usedBytes);
  });

  it("touches a line a lane and fetches 16 times what it uses if neighbours lie apart along both axes", () => {
    const { live, lines, fetchedBytes, usedBytes } = imagesOf(false, "m <- k; n <- p; k <- c", 1);
    expect(lines).toBe(32 * live);
    expect(fetchedBytes).toBe(16 * usedBytes);
  });

  it("makes no access for rows that the instruction pads", () => {
    const { accesses, live, usedBytes } = imagesOf(true, "m <- k; n <- n; k <- c", 8);
    expect(live).toBeLessThan(accesses / 4);
    expect(usedBytes).toBe(64 * 2);
  });

  it("of fused channels and taps, which lie a pixel apart, fetches each sector once", () => {
    const { fetchedBytes, usedBytes } = imagesOf(true, "m <- k; n <- q; k <- c,s", 1);
    expect(fetchedBytes).toBeLessThan(2 * usedBytes);
  });
});

describe("the plain copies of a step", () => {
  /** How many times as long a block alone takes for a step of 64 terms as for one of 32, in which a thread copies 64 and 32 pieces of an input. */
  const longer = (pad: number): number => {
    const layer = convolutionF16(`${LAYER} pad=${pad}`, false);
    const context = gridContextOf(layer, "mma.m16n8k16.f32.f16", "m <- p,q; n <- k; k <- c,r,s");
    const [short = 0, long = 0] = [32, 64].map((k) => {
      const schedule = mmaSchedule(32, 16, k, { swizzle: "padded", transfer: "plain" });
      return stepCycles(context, schedule, nvidiaTarget("h100"), 1).latency;
    });
    return long / short;
  };

  it("are awaited almost one by one where each is tested, as for more than 32 pieces of a padded image", () => {
    expect(longer(1)).toBeGreaterThan(2.5);
  });

  it("are awaited together where none is tested", () => {
    expect(longer(0)).toBeLessThan(longer(1));
  });
});

it("a step costs, to the last digit, what the model says of copies of each kind", () => {
  const layer = convolutionF16("conv2d n=2 c=16 k=16 h=4 w=4");
  const context = gridContextOf(layer, "mma.m16n8k16.f32.f16", "m <- n,p,q; n <- k; k <- c");
  const told = (["plain", "copied", "gathered"] as const).map((kind) => {
    const more = { plain: { transfer: "plain" }, copied: {}, gathered: { swizzle: "padded", gather: "a" } } as const;
    const costs = stepCycles(context, mmaSchedule(16, 16, 16, more[kind]), nvidiaTarget("h100"), 2);
    const figures = Object.entries(costs).filter(([, x]) => typeof x === "number");
    return `${kind}: ${figures.map(([name, x]) => `${name} ${Number(x).toPrecision(6)}`).join(", ")}`;
  });
  expect(told).toMatchInlineSnapshot(`
    [
      "plain: tensor 6.34921, shared 33.7778, copies 7.52847, threads 6.22222, latency 536.222, ahead 1.00000",
      "copied: tensor 6.34921, shared 33.7778, copies 9.89697, threads 5.68056, latency 475.806, ahead 1.00000",
      "gathered: tensor 6.34921, shared 34.5278, copies 8.70743, threads 4.26563, latency 461.656, ahead 1.00000",
    ]
  `);
});
