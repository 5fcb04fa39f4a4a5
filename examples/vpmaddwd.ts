/**
 * @file The declaration of an instruction that automap's table lacks: AVX2's product of 16-bit integers. A program registers it
 * (tune-own-intrinsic.ts); the command line takes it with `--declare dist/examples/vpmaddwd.js`.
 */

import type { IntrinsicSpec } from "automap";

export const vpmaddwd: IntrinsicSpec = {
  name: "mine.vpmaddwd",
  family: "mine",
  isa: "avx2",
  language: "c++",
  summary: "Eight dot products of two s16, the left pair common to all lanes.",
  compute: "c[n] += s32(a[k]) * s32(b[k,n])",
  extents: { n: 8, k: 2 },
  operands: {
    a: { dtype: "s16", storage: "ymm[2*n + k]", load: "{reg} = _mm256_broadcastd_epi32(_mm_loadu_si32({ptr}));" },
    b: { dtype: "s16", storage: "ymm[2*n + k]", load: "{reg} = _mm256_loadu_si256((const __m256i*)({ptr}));" },
    c: {
      dtype: "s32",
      storage: "ymm[n]",
      load: "{reg} = _mm256_loadu_si256((const __m256i*)({ptr}));",
      store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});",
    },
  },
  emit: "{c} = _mm256_add_epi32({c}, _mm256_madd_epi16({a}, {b}));",
  mnemonic: "vpmaddwd",
  source: "Intel SDM vol. 2, PMADDWD (VEX.256.66.0F.WIG F5)",
};
