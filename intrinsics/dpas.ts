/**
 * @file Dot Product Accumulate Systolic of Intel's Xe matrix engines, in CM. Systolic depth 8, repeat count 8.
 *
 *     dpas.8x8.f32.f16       8 rows on  8 lanes (Xe-HPG: DG2)        c[m,n] += f32(a[m,k]) * f32(b[k,n])
 *     dpas.8x16.f32.f16      8 rows on 16 lanes (Xe-HPC, Xe2)        b: grf[32*(k/2) + 2*n + k%2], pairs of k side by side
 *
 * Tiles are vectors of dwords in eight registers of the file, or in four for rows of 32 bytes on Xe-HPC. A 32-bit element of `b` holds as many
 * consecutive k as fit (4 bytes, 2 halves, 1 tf32); k is 8 such elements deep.
 */

import type { DType } from "../abstraction/dtype.ts";
import { type Cost, type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";
import { CM_TILES, loadRows, storeRows } from "./cm-tiles.ts";

export interface Precision {
  readonly dtype: DType;
  /** Constant of `CmPrecisionType`. */
  readonly cm: string;
  readonly perDword: number;
}

const S8: Precision = { dtype: "s8", cm: "CM_PRECISION_S8", perDword: 4 };
const U8: Precision = { dtype: "u8", cm: "CM_PRECISION_U8", perDword: 4 };
const F16: Precision = { dtype: "f16", cm: "CM_PRECISION_HF", perDword: 2 };
const BF16: Precision = { dtype: "bf16", cm: "CM_PRECISION_BF", perDword: 2 };
export const TF32: Precision = { dtype: "tf32", cm: "CM_PRECISION_TF32", perDword: 1 };

/** DG2: 128 f16 or 256 int8 operations per cycle and engine, latency 32. PVC: one row per cycle, latency 20 + repeat count. */
const dpasCost = (lanes: 8 | 16): Cost => ({
  issueCycles: lanes === 8 ? 16 : 8,
  latencyCycles: lanes === 8 ? 32 : 28,
  source:
    lanes === 8
      ? "Intel Graphics Compiler, scheduler tables, DG2: latency 32 at repeat count 8; 128 f16 operations a cycle; not measured"
      : "Intel Graphics Compiler, scheduler tables, PVC: latency 20 + repeat count; 512 bf16 operations a cycle; not measured",
});

/** What rows of a product say in every language. @param lanes 8 or 16: the execution size, which is n */
export function dpasFacts(lanes: 8 | 16, a: Precision, b: Precision) {
  const sum = a.perDword === 4 ? "s32" : "f32";
  const k = 8 * a.perDword;
  const compute: string = `c[m,n] += ${sum}(a[m,k]) * ${sum}(b[k,n])`;
  const each = b.perDword;
  return {
    sum,
    k,
    /** Place of an element of `b` in its registers. */
    placeOfB: each === 1 ? `${lanes}*k + n` : `${lanes * each}*(k/${each}) + ${each}*n + k%${each}`,
    types: `${sum}.${a === b ? a.dtype : `${a.dtype}${b.dtype}`}`,
    facts: {
      isa: lanes === 8 ? "xe_hpg" : "xe_hpc",
      scope: "subgroup",
      compute,
      extents: { m: 8, n: lanes, k },
      cost: dpasCost(lanes),
    },
  } as const;
}

function dpas(lanes: 8 | 16, a: Precision, b: Precision): Intrinsic {
  const { sum, k, placeOfB, types, facts } = dpasFacts(lanes, a, b);
  const sums = sum === "s32" ? "int" : "float";
  return tableRow({
    ...facts,
    name: `dpas.8x${lanes}.${types}`,
    family: "dpas",
    language: "cm",
    summary: `An 8x${lanes}x${k} matrix product: ${a.dtype} by ${b.dtype}, ${sum} sums.`,
    operands: {
      a: { dtype: a.dtype, storage: `${lanes === 8 ? "grf8" : "grf4"}[${k}*m + k]`, load: loadRows("int") },
      b: { dtype: b.dtype, storage: `grf8[${placeOfB}]`, load: loadRows("int") },
      c: {
        dtype: sum,
        storage: `grf8[${lanes}*m + n]`,
        load: loadRows(sums),
        store: storeRows(sums),
      },
    },
    prelude: CM_TILES,
    emit: `{c} = cm_dpas<${b.cm}, ${a.cm}, 8, 8>({c}, {b}, {a});`,
    source: "CM language specification, cm_dpas; Intel Graphics Compiler, dpas semantics",
  });
}

export const DPAS_PAIRS: readonly (readonly [Precision, Precision])[] = [
  [S8, S8],
  [U8, U8],
  [U8, S8],
  [S8, U8],
  [F16, F16],
  [BF16, BF16],
];

/** The rows of a language: eight lanes have no tf32. */
export const dpasRows = (row: (lanes: 8 | 16, a: Precision, b: Precision) => Intrinsic): readonly Intrinsic[] => [
  ...([8, 16] as const).flatMap((lanes) => DPAS_PAIRS.map(([a, b]) => row(lanes, a, b))),
  row(16, TF32, TF32),
];

export const DPAS: readonly Intrinsic[] = dpasRows(dpas);
