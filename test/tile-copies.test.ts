/** What the model of GPUs counts of copies: lines and sectors that narrow ones touch, and nothing of what lies outside a tensor. */

import { describe, expect, it } from "vitest";
import type { GridContext } from "../mapper/schedule/grid-context.ts";
import { type TileCopy, tileCopy } from "../perfmodel/tile-copies.ts";
import { convolutionF16, gridContextOf } from "./support/grid-kernels.ts";

const LAYER = { n: 1, c: 64, k: 64, h: 16, w: 16 };

/** Of the input of images, in a tile of 64 by 64. */
function imagesOf(last: boolean, mapping: string, width: number): TileCopy {
  const context: GridContext = gridContextOf(convolutionF16("conv2d", LAYER, last), "wgmma.m64n64k16.f32.f16", mapping);
  const images = context.inputs.find((i) => i.value.kind === "access" && i.value.tensor === "in");
  if (!images) throw new Error("no input of images");
  return tileCopy(context, images, 64, 64, width);
}

describe("a tile's copy", () => {
  it("of pixels whose channels lie side by side touches four lines an access of 16 bytes a lane, and fetches what it uses", () => {
    const { accesses, live, lines, fetchedBytes, usedBytes } = imagesOf(true, "m <- k; n <- n,p,q; k <- c", 8);
    expect({ accesses, live, lines }).toEqual({ accesses: 16, live: 16, lines: 64 });
    expect(fetchedBytes).toBe(usedBytes);
  });

  it("of pixels side by side, an element a lane, touches one line an access and fetches what it uses", () => {
    const { accesses, lines, fetchedBytes, usedBytes } = imagesOf(false, "m <- k; n <- n,p,q; k <- c", 1);
    expect(lines).toBe(accesses);
    expect(fetchedBytes).toBe(usedBytes);
  });

  it("touches a line a lane and fetches 16 times what it uses where neighbours lie apart along both axes", () => {
    const { live, lines, fetchedBytes, usedBytes } = imagesOf(false, "m <- k; n <- p; k <- c", 1);
    expect(lines).toBe(32 * live);
    expect(fetchedBytes).toBe(16 * usedBytes);
  });

  it("makes no access for rows that the instruction pads", () => {
    const { accesses, live, usedBytes } = imagesOf(true, "m <- k; n <- n; k <- c", 8);
    expect(live).toBeLessThan(accesses / 4);
    expect(usedBytes).toBe(64 * 2);
  });
});
