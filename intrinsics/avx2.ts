/**
 * @file 256-bit vectors: fused multiply-add (FMA3) and the byte dot product of AVX-VNNI.
 *
 *     avx2.fma.f32              c[i] += a[i] * b[i]        lane by lane
 *     avx2.fma.f32.broadcast    c[n] += a[] * b[n]         one `a` for all lanes: what matmul and convolution use
 *
 * `ymm[n]` for an `a[]` without axes says that every lane holds the one element.
 */

import { type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { REFERENCE_CPU } from "../targets/x86.ts";

/** Two FMAs per cycle, as many as of 512 bits. */
const FMA_COST = {
  ...unitCost(REFERENCE_CPU, "fma"),
  source:
    "measured 2026-11-21 on one core of a Xeon at 3.7 GHz: 130 G f32 operations a second from registers; " +
    "latency from LLVM's Sapphire Rapids model",
};

const F32 = { load: "{reg} = _mm256_loadu_ps((const float*)({ptr}));" };
const F64 = { load: "{reg} = _mm256_loadu_pd((const double*)({ptr}));" };
const BYTES = { load: "{reg} = _mm256_loadu_si256((const __m256i*)({ptr}));" };

export const avx2FmaF32 = tableRow({
  name: "avx2.fma.f32",
  family: "fma",
  isa: "fma",
  language: "c++",
  summary: "Eight f32 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 8 },
  operands: {
    a: { dtype: "f32", storage: "ymm[i]", ...F32 },
    b: { dtype: "f32", storage: "ymm[i]", ...F32 },
    c: { dtype: "f32", storage: "ymm[i]", ...F32, store: "_mm256_storeu_ps((float*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_fmadd_ps({a}, {b}, {c});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ps",
  source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (VEX.256)",
});

export const avx2FmaF32Broadcast = tableRow({
  name: "avx2.fma.f32.broadcast",
  family: "fma",
  isa: "fma",
  language: "c++",
  summary: "Eight f32 multiply-adds with one factor common to all lanes.",
  compute: "c[n] += a[] * b[n]",
  extents: { n: 8 },
  operands: {
    a: { dtype: "f32", storage: "ymm[n]", load: "{reg} = _mm256_broadcast_ss((const float*)({ptr}));" },
    b: { dtype: "f32", storage: "ymm[n]", ...F32 },
    c: { dtype: "f32", storage: "ymm[n]", ...F32, store: "_mm256_storeu_ps((float*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_fmadd_ps({a}, {b}, {c});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ps",
  source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (VEX.256); VBROADCASTSS",
});

export const avx2FmaF64 = tableRow({
  name: "avx2.fma.f64",
  family: "fma",
  isa: "fma",
  language: "c++",
  summary: "Four f64 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 4 },
  operands: {
    a: { dtype: "f64", storage: "ymm[i]", ...F64 },
    b: { dtype: "f64", storage: "ymm[i]", ...F64 },
    c: { dtype: "f64", storage: "ymm[i]", ...F64, store: "_mm256_storeu_pd((double*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_fmadd_pd({a}, {b}, {c});",
  cost: FMA_COST,
  mnemonic: "vfmadd132pd",
  source: "Intel SDM vol. 2, VFMADD132PD/VFMADD213PD/VFMADD231PD (VEX.256)",
});

export const avx2FmaF64Broadcast = tableRow({
  name: "avx2.fma.f64.broadcast",
  family: "fma",
  isa: "fma",
  language: "c++",
  summary: "Four f64 multiply-adds with one factor common to all lanes.",
  compute: "c[n] += a[] * b[n]",
  extents: { n: 4 },
  operands: {
    a: { dtype: "f64", storage: "ymm[n]", load: "{reg} = _mm256_broadcast_sd((const double*)({ptr}));" },
    b: { dtype: "f64", storage: "ymm[n]", ...F64 },
    c: { dtype: "f64", storage: "ymm[n]", ...F64, store: "_mm256_storeu_pd((double*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_fmadd_pd({a}, {b}, {c});",
  cost: FMA_COST,
  mnemonic: "vfmadd132pd",
  source: "Intel SDM vol. 2, VFMADD132PD/VFMADD213PD/VFMADD231PD (VEX.256); VBROADCASTSD",
});

/** The four bytes of `a` go to every lane; `b` holds four consecutive k side by side. */
export const avxVnniVpdpbusd = tableRow({
  name: "avxvnni.vpdpbusd",
  family: "vnni",
  isa: "avx_vnni",
  language: "c++",
  summary: "Eight dot products of four bytes, u8 times s8, the u8 common to all lanes.",
  compute: "c[n] += s32(a[k]) * s32(b[k,n])",
  extents: { n: 8, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "ymm[4*n + k]", load: "{reg} = _mm256_broadcastd_epi32(_mm_loadu_si32({ptr}));" },
    b: { dtype: "s8", storage: "ymm[4*n + k]", ...BYTES },
    c: { dtype: "s32", storage: "ymm[n]", ...BYTES, store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_dpbusd_avx_epi32({c}, {a}, {b});",
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPDPBUSD (VEX.256.66.0F38.W0 50)",
});

export const avxVnniVpdpbusdLanes = tableRow({
  name: "avxvnni.vpdpbusd.lanes",
  family: "vnni",
  isa: "avx_vnni",
  language: "c++",
  summary: "Eight dot products of four bytes, u8 times s8, lane by lane.",
  compute: "c[n] += s32(a[n,k]) * s32(b[n,k])",
  extents: { n: 8, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "ymm[4*n + k]", ...BYTES },
    b: { dtype: "s8", storage: "ymm[4*n + k]", ...BYTES },
    c: { dtype: "s32", storage: "ymm[n]", ...BYTES, store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_dpbusd_avx_epi32({c}, {a}, {b});",
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPDPBUSD (VEX.256.66.0F38.W0 50)",
});

/** The sum of the four products and the old value is clamped once, not after each product. */
export const avxVnniVpdpbusds = tableRow({
  name: "avxvnni.vpdpbusds",
  family: "vnni",
  isa: "avx_vnni",
  language: "c++",
  summary: "Eight saturating dot products of four bytes, u8 times s8, the u8 common to all lanes.",
  compute: "c[n] sat+= s32(a[k]) * s32(b[k,n])",
  extents: { n: 8, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "ymm[4*n + k]", load: "{reg} = _mm256_broadcastd_epi32(_mm_loadu_si32({ptr}));" },
    b: { dtype: "s8", storage: "ymm[4*n + k]", ...BYTES },
    c: { dtype: "s32", storage: "ymm[n]", ...BYTES, store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_dpbusds_avx_epi32({c}, {a}, {b});",
  mnemonic: "vpdpbusds",
  source: "Intel SDM vol. 2, VPDPBUSDS (VEX.256.66.0F38.W0 51)",
});

/** Like avx512.vpmulld: integer product for designs on lanes, used by no mapping. */
export const avx2Vpmulld = tableRow({
  name: "avx2.vpmulld",
  family: "mulld",
  isa: "avx2",
  language: "c++",
  summary: "Eight products of s32 added to a sum, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 8 },
  operands: {
    a: { dtype: "s32", storage: "ymm[i]", ...BYTES },
    b: { dtype: "s32", storage: "ymm[i]", ...BYTES },
    c: { dtype: "s32", storage: "ymm[i]", ...BYTES, store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});" },
  },
  prelude: "#include <immintrin.h>\n",
  emit: "{c} = _mm256_add_epi32({c}, _mm256_mullo_epi32({a}, {b}));",
  cost: {
    issueCycles: 1.5,
    latencyCycles: 11,
    source: "LLVM's scheduling model of Sapphire Rapids: two operations of two ports, and an addition of three",
  },
  mnemonic: "vpmulld",
  source: "Intel SDM vol. 2, PMULLD (VEX.256), PADDD",
});

/** Products and sums of s16 keep their low 16 bits. For lanes. */
export const avx2Vpmullw = tableRow({
  name: "avx2.vpmullw",
  family: "mullw",
  isa: "avx2",
  language: "c++",
  summary: "Sixteen products of s16 added to a sum of s16, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 16 },
  operands: {
    a: { dtype: "s16", storage: "ymm[i]", ...BYTES },
    b: { dtype: "s16", storage: "ymm[i]", ...BYTES },
    c: { dtype: "s16", storage: "ymm[i]", ...BYTES, store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});" },
  },
  prelude: "#include <immintrin.h>\n",
  emit: "{c} = _mm256_add_epi16({c}, _mm256_mullo_epi16({a}, {b}));",
  cost: {
    issueCycles: 0.83,
    latencyCycles: 6,
    source: "LLVM's scheduling model of Sapphire Rapids: one operation of two ports, and an addition of three",
  },
  mnemonic: "vpmullw",
  source: "Intel SDM vol. 2, PMULLW (VEX.256), PADDW",
});

export const AVX2: readonly Intrinsic[] = [
  avx2FmaF32,
  avx2FmaF32Broadcast,
  avx2FmaF64,
  avx2FmaF64Broadcast,
  avxVnniVpdpbusd,
  avxVnniVpdpbusdLanes,
  avxVnniVpdpbusds,
];
