/**
 * @file 256-bit vectors: fused multiply-add (FMA3) and the byte dot product of AVX-VNNI.
 *
 *     avx2.fma.f32              c[i] += a[i] * b[i]        lane by lane
 *     avx2.fma.f32.broadcast    c[n] += a[] * b[n]         one `a` for all lanes: what matmul and convolution use
 *
 * `ymm[n]` for an `a[]` without axes says that every lane holds the one element.
 */

import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { REFERENCE_CPU } from "../targets/x86.ts";
import {
  BYTE_DOTS,
  DOTS_256,
  type DotForm,
  dots,
  FLOATS_256,
  INTEGERS_256,
  laneByLane,
  multiplyAdds,
} from "./vector-forms.ts";

/** Two FMAs per cycle, as many as of 512 bits. */
const FMA_COST = {
  ...unitCost(REFERENCE_CPU, "fma"),
  source:
    "measured 2026-11-21 on one core of a Xeon at 3.7 GHz: 130 G f32 operations a second from registers; " +
    "latency from LLVM's Sapphire Rapids model",
};

const FMAS = [
  ...multiplyAdds({
    name: "avx2.fma.f32",
    isa: "fma",
    dtype: "f32",
    lanes: 8,
    file: "ymm",
    moves: FLOATS_256,
    loadShared: "{reg} = _mm256_broadcast_ss((const float*)({ptr}));",
    emit: "{c} = _mm256_fmadd_ps({a}, {b}, {c});",
    cost: FMA_COST,
    mnemonic: "vfmadd132ps",
    source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (VEX.256)",
    sharedBy: "VBROADCASTSS",
  }),
  ...multiplyAdds({
    name: "avx2.fma.f64",
    isa: "fma",
    dtype: "f64",
    lanes: 4,
    file: "ymm",
    moves: {
      load: "{reg} = _mm256_loadu_pd((const double*)({ptr}));",
      store: "_mm256_storeu_pd((double*)({ptr}), {reg});",
    },
    loadShared: "{reg} = _mm256_broadcast_sd((const double*)({ptr}));",
    emit: "{c} = _mm256_fmadd_pd({a}, {b}, {c});",
    cost: FMA_COST,
    mnemonic: "vfmadd132pd",
    source: "Intel SDM vol. 2, VFMADD132PD/VFMADD213PD/VFMADD231PD (VEX.256)",
    sharedBy: "VBROADCASTSD",
  }),
];

/** The four bytes of `a` go to every lane; `b` holds four consecutive k side by side. */
const VPDPBUSD: DotForm = {
  ...BYTE_DOTS,
  ...DOTS_256,
  name: "avxvnni.vpdpbusd",
  isa: "avx_vnni",
  summary: "Eight dot products of four bytes, u8 times s8",
  emit: "{c} = _mm256_dpbusd_avx_epi32({c}, {a}, {b});",
  source: "Intel SDM vol. 2, VPDPBUSD (VEX.256.66.0F38.W0 50)",
};

const [avxVnniVpdpbusds] = dots({
  ...VPDPBUSD,
  name: "avxvnni.vpdpbusds",
  summary: "Eight saturating dot products of four bytes, u8 times s8",
  isSaturating: true,
  emit: "{c} = _mm256_dpbusds_avx_epi32({c}, {a}, {b});",
  mnemonic: "vpdpbusds",
  source: "Intel SDM vol. 2, VPDPBUSDS (VEX.256.66.0F38.W0 51)",
});

/** Products for designs on lanes, like those of avx512.ts; no mapping uses them. */
const PRODUCTS = { isa: "avx2", file: "ymm", moves: INTEGERS_256, prelude: "#include <immintrin.h>\n" } as const;

export const avx2Vpmulld = laneByLane(
  {
    ...PRODUCTS,
    name: "avx2.vpmulld",
    dtype: "s32",
    lanes: 8,
    emit: "{c} = _mm256_add_epi32({c}, _mm256_mullo_epi32({a}, {b}));",
    cost: {
      issueCycles: 1.5,
      latencyCycles: 11,
      source: "LLVM's scheduling model of Sapphire Rapids: two operations of two ports, and an addition of three",
    },
    mnemonic: "vpmulld",
    source: "Intel SDM vol. 2, PMULLD (VEX.256), PADDD",
  },
  { family: "mulld", summary: "Eight products of s32 added to a sum" },
);

/** Products and sums of s16 keep their low 16 bits. */
export const avx2Vpmullw = laneByLane(
  {
    ...PRODUCTS,
    name: "avx2.vpmullw",
    dtype: "s16",
    lanes: 16,
    emit: "{c} = _mm256_add_epi16({c}, _mm256_mullo_epi16({a}, {b}));",
    cost: {
      issueCycles: 0.83,
      latencyCycles: 6,
      source: "LLVM's scheduling model of Sapphire Rapids: one operation of two ports, and an addition of three",
    },
    mnemonic: "vpmullw",
    source: "Intel SDM vol. 2, PMULLW (VEX.256), PADDW",
  },
  { family: "mullw", summary: "Sixteen products of s16 added to a sum of s16" },
);

export const AVX2: readonly Intrinsic[] = [...FMAS, ...dots(VPDPBUSD), avxVnniVpdpbusds];
