/** @file nvcc takes kernels of products of groups, whose matrices are found by an index that is read, without a spill where all rows count. */

import { describe, it } from "vitest";
import {
  expectCompiled,
  gridContextOf,
  gridSubject,
  mmaSchedule,
  NVCC,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { stated } from "../support/subjects.ts";

const MATCHED = "m <- m; n <- n; k <- k";
const tiles = stated(
  "c[t,m,n] += f32(a[t,m,k]) * f32(w[clamp(group[t]),n,k]) where group[t] >= 0; y[t,m,n] = f16(c[t,m,n]) --t 40 --m 128 --n 512 --k 512 --shape w=8x512x512 --dtype a=f16,w=f16,y=f16,group=s32",
);
const counted = stated(
  "c[g,m,n] += f32(a[g,m,k]) * f32(w[g,n,k]) where m < count[g]; y[g,m,n] = f16(c[g,m,n]) --g 6 --m 512 --n 512 --k 512 --dtype a=f16,w=f16,y=f16,count=s32",
);
const byProducer = {
  ...wgmmaSchedule(128, 128, 64, { stage: 4, store: "quads" }),
  transfer: "engine",
  producer: "warp",
} as const;

describe.skipIf(!NVCC)("products of groups for nvcc", () => {
  it.each([
    gridSubject("mma", gridContextOf(tiles, "mma.m16n8k16.f32.f16", MATCHED), mmaSchedule(64, 64, 32)),
    gridSubject("wgmma", gridContextOf(tiles, "wgmma.m64n128k16.f32.f16", MATCHED), byProducer),
    gridSubject("wgmma, in turn", gridContextOf(tiles, "wgmma.m64n128k16.f32.f16", MATCHED), {
      ...byProducer,
      persistent: 132,
    }),
    gridSubject("counted rows", gridContextOf(counted, "wgmma.m64n128k16.f32.f16", MATCHED), byProducer),
  ])("compile: $name", (subject) => expectCompiled(subject));
});
