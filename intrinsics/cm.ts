/**
 * @file C for Metal on Intel GPUs: arithmetic on `vector<float, 16>`.
 *
 *     cm.fma.f32      c[n] += a[n] * b[n]            {c} += {a} * {b};      the compiler forms the multiply-add
 *     cm.dp4          c[g,r] += a[g,j] * b[g,j]      the sum of each group of four, in all four of its elements
 *     cm.dp4a.8.s32.u8s8      c[n] += s32(a[n,k]) * s32(b[n,k])      {c} = cm_dp4a<int>({c}, {a}, {b});      Xe: four bytes a lane
 */

import { type Cost, type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { GEN9 } from "../targets/intel.ts";
import { CM_TILES, loadRows, storeRows } from "./cm-tiles.ts";
import { BOTH, dotOf, multiplyAddOf, suffix, typesOf } from "./lane-forms.ts";
import { lanesCost } from "./sycl.ts";

const COST = unitCost(GEN9, "fma");

/** Gen9 reads blocks of owords at any dword, and writes dwords wherever they lie. */
const GEN9_ROWS = `static const uint numbers_of_lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
template <typename T> _GENX_ inline T read_element(SurfaceIndex surface, uint at) {
  vector<T, 16 / sizeof(T)> words;
  read(DWALIGNED(surface), at, words);
  return words(0);
}
template <typename T> _GENX_ inline vector<T, 16> read_lanes(SurfaceIndex surface, uint at) {
  vector<T, 16> lanes;
  read(DWALIGNED(surface), at, lanes);
  return lanes;
}
template <typename T> _GENX_ inline void write_lanes(SurfaceIndex surface, uint at, vector<T, 16> lanes) {
  vector<uint, 16> offsets(numbers_of_lanes);
  offsets += at / 4;
  write(surface, 0, offsets, lanes);
}
/* The same in shared local memory. */
template <typename T> _GENX_ inline T read_element_slm(uint at) {
  vector<ushort, 16> offsets = 0;
  vector<T, 16> lanes;
  cm_slm_read(at, offsets, lanes);
  return lanes(0);
}
template <typename T> _GENX_ inline vector<T, 16> read_lanes_slm(uint at) {
  vector<ushort, 16> offsets(numbers_of_lanes);
  vector<T, 16> lanes;
  cm_slm_read(at, offsets, lanes);
  return lanes;
}
template <typename T> _GENX_ inline void write_lanes_slm(uint at, vector<T, 16> lanes) {
  vector<ushort, 16> offsets(numbers_of_lanes);
  cm_slm_write(at, offsets, lanes);
}`;
const ROW = { dtype: "f32", storage: "grf[n]", load: "{reg} = read_lanes{by}<float>({ptr});" } as const;
const SUMS = { ...ROW, store: "write_lanes{by}<float>({ptr}, {reg});" } as const;

const GEN9_SUBGROUP = { isa: "gen9", language: "cm", scope: "subgroup" } as const;

/** Multiply-adds of f32. */
const GEN9_FMA = {
  ...GEN9_SUBGROUP,
  family: "fma",
  extents: { n: 16 },
  prelude: GEN9_ROWS,
  emit: "{c} += {a} * {b};",
  cost: COST,
} as const;

const cmFmaF32 = tableRow({
  ...GEN9_FMA,
  name: "cm.fma.f32",
  summary: "Sixteen f32 multiply-adds, lane by lane.",
  compute: "c[n] += a[n] * b[n]",
  operands: { a: ROW, b: ROW, c: SUMS },
  source: "CM language specification, vector operators",
});

const cmFmaF32Broadcast = tableRow({
  ...GEN9_FMA,
  name: "cm.fma.f32.broadcast",
  summary: "Sixteen f32 multiply-adds with one factor common to all lanes.",
  compute: "c[n] += a[] * b[n]",
  operands: {
    a: { dtype: "f32", storage: "grf[n]", load: "{reg} = read_element{by}<float>({ptr});" },
    b: ROW,
    c: SUMS,
  },
  source: "CM language specification, vector operators; a scalar assigned to a vector fills it",
});

const F16 = { dtype: "f16", storage: "grf[i]" } as const;

const cmFmaF16 = tableRow({
  ...GEN9_SUBGROUP,
  name: "cm.fma.f16",
  family: "fma",
  summary: "Sixteen f16 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 16 },
  operands: { a: F16, b: F16, c: F16 },
  emit: "{c} += {a} * {b};",
  source: "CM language specification, vector operators",
});

/** `r` counts the four copies of a group's sum; a mapping that does not use them pads it. */
const cmDp4 = tableRow({
  ...GEN9_SUBGROUP,
  name: "cm.dp4",
  family: "dot",
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
  return tableRow({
    name: `cm.fma.${lanes}.f32${suffix(shared)}`,
    family: "fma",
    isa: lanes === 8 ? "xe_hpg" : "xe_hpc",
    language: "cm",
    scope: "subgroup",
    summary: `${lanes} f32 multiply-adds, ${shared ? "one factor common to all lanes" : "lane by lane"}.`,
    compute: multiplyAddOf("f32", "f32", shared),
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

/** DG2: 64 operations of bytes a cycle and engine, which are eight lanes. PVC is assumed to issue as many lanes as for f32. */
const dp4aCost = (lanes: 8 | 16): Cost => ({
  issueCycles: 1,
  latencyCycles: 10,
  source:
    lanes === 8
      ? "Intel oneAPI GPU Optimization Guide, Xe GPU Architecture: 64 int8 operations a cycle; latency as of the float pipe; not measured"
      : "assumed: sixteen lanes a cycle, as f32; latency as of the float pipe; not measured",
});

/** Four bytes of each lane, as a dword; a shared factor is one dword for all lanes. */
function cmDp4a(lanes: 8 | 16, a: "u8" | "s8", b: "u8" | "s8", shared: boolean): Intrinsic {
  const rows = (dtype: "u8" | "s8", one: boolean) => ({
    dtype,
    storage: "grf_dwords[4*n + k]",
    load: `{reg} = load_rows{by}<${dtype === "u8" ? "uint" : "int"}, {rows}>({ptr}, ${one ? "4)(0)" : "{stride})"};`,
  });
  return tableRow({
    name: `cm.dp4a.${lanes}.s32.${typesOf(a, b)}${suffix(shared)}`,
    family: "dot",
    isa: lanes === 8 ? "xe_hpg" : "xe_hpc",
    language: "cm",
    scope: "subgroup",
    summary: `${lanes} dot products of four ${a} by ${b}, added to sums in s32${shared ? ", one factor common to all lanes" : ""}.`,
    compute: dotOf("s32", shared),
    extents: { n: lanes, k: 4 },
    operands: {
      a: rows(a, shared),
      b: rows(b, false),
      c: { dtype: "s32", storage: "grf[n]", load: loadRows("int"), store: storeRows("int") },
    },
    prelude: CM_TILES,
    emit: "{c} = cm_dp4a<int>({c}, {a}, {b});",
    cost: dp4aCost(lanes),
    source: "CM language specification, cm_dp4a",
  });
}

const BYTES = ["u8", "s8"] as const;

/** Xe before Gen9: of two rows that compute the same, the first is taken for a candidate of another language. */
export const CM: readonly Intrinsic[] = [
  ...([8, 16] as const).flatMap((lanes) => [
    ...BOTH.map((shared) => cmFmaRows(lanes, shared)),
    ...BYTES.flatMap((a) => BYTES.flatMap((b) => BOTH.map((shared) => cmDp4a(lanes, a, b, shared)))),
  ]),
  cmFmaF32,
  cmFmaF32Broadcast,
  cmFmaF16,
  cmDp4,
];
