/**
 * @file Arm Advanced SIMD: byte dot products, 2x2x8 byte matrix products and multiply-adds on 128-bit registers.
 *
 *     arm.sdot       c[i] += s32(a[i,j]) * s32(b[i,j])      four bytes a lane, v[4*i + j]
 *     arm.smmla      c[m,n] += s32(a[m,k]) * s32(b[n,k])    both factors are rows of eight bytes
 */

import { defineIntrinsic, type Intrinsic } from "../abstraction/intrinsic.ts";

/** Two a cycle on cores with two vector pipes, four on the large ones. */
const DOT_COST = {
  issueCycles: 0.5,
  latencyCycles: 3,
  source: "Arm's software optimisation guides, cores with two vector pipes; not measured",
};

const S8 = { dtype: "s8", load: "{reg} = vld1q_s8((const int8_t*)({ptr}));" } as const;
const U8 = { dtype: "u8", load: "{reg} = vld1q_u8((const uint8_t*)({ptr}));" } as const;
const S32 = {
  dtype: "s32",
  load: "{reg} = vld1q_s32((const int32_t*)({ptr}));",
  store: "vst1q_s32((int32_t*)({ptr}), {reg});",
} as const;
const U32 = {
  dtype: "u32",
  load: "{reg} = vld1q_u32((const uint32_t*)({ptr}));",
  store: "vst1q_u32((uint32_t*)({ptr}), {reg});",
} as const;
const F32 = {
  dtype: "f32",
  load: "{reg} = vld1q_f32((const float*)({ptr}));",
  store: "vst1q_f32((float*)({ptr}), {reg});",
} as const;

export const sdot = defineIntrinsic({
  name: "arm.sdot",
  family: "dot",
  isa: "asimddp",
  language: "c++",
  summary: "Four dot products of four s8, lane by lane.",
  compute: "c[i] += s32(a[i,j]) * s32(b[i,j])",
  extents: { i: 4, j: 4 },
  operands: {
    a: { ...S8, storage: "v[4*i + j]" },
    b: { ...S8, storage: "v[4*i + j]" },
    c: { ...S32, storage: "v[i]" },
  },
  emit: "{c} = vdotq_s32({c}, {a}, {b});",
  cost: DOT_COST,
  mnemonic: "sdot",
  source: "Arm Architecture Reference Manual for A-profile, SDOT (vector)",
});

export const sdotBroadcast = defineIntrinsic({
  name: "arm.sdot.broadcast",
  family: "dot",
  isa: "asimddp",
  language: "c++",
  summary: "Four dot products of four s8, the left four common to all lanes.",
  compute: "c[n] += s32(a[k]) * s32(b[k,n])",
  extents: { n: 4, k: 4 },
  operands: {
    a: {
      dtype: "s8",
      storage: "v[4*n + k]",
      load: "{reg} = vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t*)({ptr})));",
    },
    b: { ...S8, storage: "v[4*n + k]" },
    c: { ...S32, storage: "v[n]" },
  },
  emit: "{c} = vdotq_s32({c}, {a}, {b});",
  cost: DOT_COST,
  mnemonic: "sdot",
  source: "Arm Architecture Reference Manual for A-profile, SDOT (vector); LD1R",
});

export const udot = defineIntrinsic({
  name: "arm.udot",
  family: "dot",
  isa: "asimddp",
  language: "c++",
  summary: "Four dot products of four u8, lane by lane.",
  compute: "c[i] += u32(a[i,j]) * u32(b[i,j])",
  extents: { i: 4, j: 4 },
  operands: {
    a: { ...U8, storage: "v[4*i + j]" },
    b: { ...U8, storage: "v[4*i + j]" },
    c: { ...U32, storage: "v[i]" },
  },
  emit: "{c} = vdotq_u32({c}, {a}, {b});",
  cost: DOT_COST,
  mnemonic: "udot",
  source: "Arm Architecture Reference Manual for A-profile, UDOT (vector)",
});

export const usdot = defineIntrinsic({
  name: "arm.usdot",
  family: "dot",
  isa: "i8mm",
  language: "c++",
  summary: "Four dot products of four u8 with four s8, lane by lane.",
  compute: "c[i] += s32(a[i,j]) * s32(b[i,j])",
  extents: { i: 4, j: 4 },
  operands: {
    a: { ...U8, storage: "v[4*i + j]" },
    b: { ...S8, storage: "v[4*i + j]" },
    c: { ...S32, storage: "v[i]" },
  },
  emit: "{c} = vusdotq_s32({c}, {a}, {b});",
  mnemonic: "usdot",
  source: "Arm Architecture Reference Manual for A-profile, USDOT (vector)",
});

export const smmla = defineIntrinsic({
  name: "arm.smmla",
  family: "mmla",
  isa: "i8mm",
  language: "c++",
  summary: "A 2x2x8 matrix product of s8.",
  compute: "c[m,n] += s32(a[m,k]) * s32(b[n,k])",
  extents: { m: 2, n: 2, k: 8 },
  operands: {
    a: { ...S8, storage: "v[8*m + k]" },
    b: { ...S8, storage: "v[8*n + k]" },
    c: { ...S32, storage: "v[2*m + n]" },
  },
  emit: "{c} = vmmlaq_s32({c}, {a}, {b});",
  mnemonic: "smmla",
  source: "Arm Architecture Reference Manual for A-profile, SMMLA (vector)",
});

export const ummla = defineIntrinsic({
  name: "arm.ummla",
  family: "mmla",
  isa: "i8mm",
  language: "c++",
  summary: "A 2x2x8 matrix product of u8.",
  compute: "c[m,n] += u32(a[m,k]) * u32(b[n,k])",
  extents: { m: 2, n: 2, k: 8 },
  operands: {
    a: { ...U8, storage: "v[8*m + k]" },
    b: { ...U8, storage: "v[8*n + k]" },
    c: { ...U32, storage: "v[2*m + n]" },
  },
  emit: "{c} = vmmlaq_u32({c}, {a}, {b});",
  mnemonic: "ummla",
  source: "Arm Architecture Reference Manual for A-profile, UMMLA (vector)",
});

export const usmmla = defineIntrinsic({
  name: "arm.usmmla",
  family: "mmla",
  isa: "i8mm",
  language: "c++",
  summary: "A 2x2x8 matrix product of u8 by s8.",
  compute: "c[m,n] += s32(a[m,k]) * s32(b[n,k])",
  extents: { m: 2, n: 2, k: 8 },
  operands: {
    a: { ...U8, storage: "v[8*m + k]" },
    b: { ...S8, storage: "v[8*n + k]" },
    c: { ...S32, storage: "v[2*m + n]" },
  },
  emit: "{c} = vusmmlaq_s32({c}, {a}, {b});",
  mnemonic: "usmmla",
  source: "Arm Architecture Reference Manual for A-profile, USMMLA (vector)",
});

export const fmla = defineIntrinsic({
  name: "arm.fmla.f32",
  family: "fma",
  isa: "asimd",
  language: "c++",
  summary: "Four f32 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 4 },
  operands: {
    a: { ...F32, storage: "v[i]" },
    b: { ...F32, storage: "v[i]" },
    c: { ...F32, storage: "v[i]" },
  },
  emit: "{c} = vfmaq_f32({c}, {a}, {b});",
  mnemonic: "fmla",
  source: "Arm Architecture Reference Manual for A-profile, FMLA (vector)",
});

export const ARM: readonly Intrinsic[] = [sdot, sdotBroadcast, udot, usdot, smmla, ummla, usmmla, fmla];
