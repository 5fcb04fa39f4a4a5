import { expect, it } from "vitest";
import { sectorsOver } from "../../mapper/schedule/store.ts";
import { convolutionF16, gridContextOf } from "../support/grid-kernels.ts";

const LAYER = "n=1 c=16 k=16 h=16 w=16";

it.each([
  ["conv2d", true, "m <- n,p,q; n <- k; k <- c", 2],
  ["conv2d", true, "m <- k; n <- n,p,q; k <- c", 2],
  ["conv2d", false, "m <- k; n <- p,q; k <- c", 2],
  ["capsule-conv2d", true, "m <- p,q; n <- k,u; k <- c", 2],
  ["capsule-conv2d", true, "m <- k,u; n <- p,q; k <- c", 2],
  // Channels of one capsule lie 16 bytes apart: neighbours along neither axis share a sector but by twos.
  ["capsule-conv2d", true, "m <- k; n <- p,q; k <- c", 16],
  ["capsule-conv2d", true, "m <- p,q; n <- k; k <- c", 16],
] as const)(
  "%s, channels last %s, %s: lanes store whole sectors of %i times the results' size",
  (name, last, mapping, over) => {
    const computation = convolutionF16(`${name} ${LAYER}${name === "conv2d" ? "" : " caps=16"}`, last);
    expect(sectorsOver(gridContextOf(computation, "wgmma.m64n16k16.f32.f16", mapping))).toBe(over);
  },
);
