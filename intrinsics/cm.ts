/**
 * @file C for Metal on Intel GPUs: arithmetic on `vector<float, 16>`.
 *
 *     cm.fma.f32      c[i] += a[i] * b[i]            {c} += {a} * {b};      the compiler forms the multiply-add
 *     cm.dp4          c[g,r] += a[g,j] * b[g,j]      the sum of each group of four, in all four of its elements
 */

import { defineIntrinsic, type Intrinsic } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { GEN9 } from "../targets/intel.ts";
import { CM_TILES, loadRows, storeRows } from "./cm-tiles.ts";
import { lanesCost } from "./sycl.ts";

const COST = unitCost(GEN9, "fma");

const ELEMENT = `template <typename T> _GENX_ inline T read_element(SurfaceIndex surface, uint at) {
  vector<T, 16 / sizeof(T)> words;
  read(DWALIGNED(surface), at, words);
  return words(0);
}`;

export const cmFmaF32 = defineIntrinsic({
  name: "cm.fma.f32",
  family: "fma",
  isa: "gen9",
  language: "cm",
  scope: "subgroup",
  summary: "Sixteen f32 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 16 },
  operands: {
    a: { dtype: "f32", storage: "grf[i]" },
    b: { dtype: "f32", storage: "grf[i]" },
    c: { dtype: "f32", storage: "grf[i]" },
  },
  emit: "{c} += {a} * {b};",
  cost: COST,
  source: "CM language specification, vector operators",
});

export const cmFmaF32Broadcast = defineIntrinsic({
  name: "cm.fma.f32.broadcast",
  family: "fma",
  isa: "gen9",
  language: "cm",
  scope: "subgroup",
  summary: "Sixteen f32 multiply-adds with one factor common to all lanes.",
  compute: "c[n] += a[] * b[n]",
  extents: { n: 16 },
  operands: {
    a: { dtype: "f32", storage: "grf[n]", load: "{reg} = read_element<float>({ptr});" },
    b: { dtype: "f32", storage: "grf[n]" },
    c: { dtype: "f32", storage: "grf[n]" },
  },
  prelude: ELEMENT,
  emit: "{c} += {a} * {b};",
  cost: COST,
  source: "CM language specification, vector operators; a scalar assigned to a vector fills it",
});

export const cmFmaF16 = defineIntrinsic({
  name: "cm.fma.f16",
  family: "fma",
  isa: "gen9",
  language: "cm",
  scope: "subgroup",
  summary: "Sixteen f16 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 16 },
  operands: {
    a: { dtype: "f16", storage: "grf[i]" },
    b: { dtype: "f16", storage: "grf[i]" },
    c: { dtype: "f16", storage: "grf[i]" },
  },
  emit: "{c} += {a} * {b};",
  source: "CM language specification, vector operators",
});

/** `r` counts the four copies of a group's sum; a mapping that does not use them pads it. */
export const cmDp4 = defineIntrinsic({
  name: "cm.dp4",
  family: "dot",
  isa: "gen9",
  language: "cm",
  scope: "subgroup",
  summary: "Four dot products of four f32, each sum in all four elements of its group.",
  compute: "c[g,r] += a[g,j] * b[g,j]",
  extents: { g: 4, r: 4, j: 4 },
  operands: {
    a: { dtype: "f32", storage: "grf[4*g + j]" },
    b: { dtype: "f32", storage: "grf[4*g + j]" },
    c: { dtype: "f32", storage: "grf[4*g + r]" },
  },
  emit: "{c} += cm_dp4<float>({a}, {b});",
  source: "CM language specification, cm_dp4",
});

/** For Xe, where the nest of a mapping reads rows in blocks of dwords: as many lanes as an engine issues per cycle. */
function cmFmaRows(lanes: 8 | 16, shared: boolean): Intrinsic {
  const rows = { dtype: "f32", storage: "grf[n]", load: loadRows("float") } as const;
  const compute: string = `c[n] += a[${shared ? "" : "n"}] * b[n]`;
  return defineIntrinsic({
    name: `cm.fma.${lanes}.f32${shared ? ".broadcast" : ""}`,
    family: "fma",
    isa: lanes === 8 ? "xe_hpg" : "xe_hpc",
    language: "cm",
    scope: "subgroup",
    summary: `${lanes} f32 multiply-adds, ${shared ? "one factor common to all lanes" : "lane by lane"}.`,
    compute,
    extents: { n: lanes },
    operands: {
      a: shared ? { ...rows, load: "{reg} = load_rows{by}<float, {rows}>({ptr}, {stride})(0);" } : rows,
      b: rows,
      c: { ...rows, store: storeRows("float") },
    },
    prelude: CM_TILES,
    emit: "{c} += {a} * {b};",
    cost: lanesCost(lanes, true),
    source: "CM language specification, vector operators; a scalar assigned to a vector fills it",
  });
}

export const CM: readonly Intrinsic[] = [
  ...[cmFmaF32, cmFmaF32Broadcast, cmFmaF16, cmDp4],
  ...([8, 16] as const).flatMap((lanes) => [cmFmaRows(lanes, true), cmFmaRows(lanes, false)]),
];
