/*
 * out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[k,c,r,s])
 * out: s32[n 1, k 32, p 6, q 6], element at ((n*6 + p)*6 + q)*32 + k
 * in: u8[n 1, c 8, h 6, w 6], element at ((n*6 + h)*6 + w)*8 + c
 * w: s8[k 32, c 8, r 3, s 3], element at ((k*8 + c)*3 + r)*3 + s, packed ahead of time
 * avx512.vpdpbusd: c s32 zmm[n], a u8 zmm[4*n + k], b s8 zmm[4*n + k]
 * mapping   n <- k   k <- c   waste 0.0 %
 * schedule  order n k p q r s c; block k 2, q 3; placement a padded, b tiled; threads 1
 * made by   automap
 */
#include <stdint.h>
#include <string.h>
#include <immintrin.h>
static inline __m512i dot_bytes(__m512i c, __m512i a, __m512i b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
static inline __m512i dot_bytes_saturating(__m512i c, __m512i a, __m512i b) {
  asm("vpdpbusds %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}


extern "C" unsigned long automap_workspace_bytes(void) { return 2944; }
extern "C" unsigned long automap_scratch_bytes(void) { return 0; }
extern "C" int automap_phases(void) { return 2; }

extern "C" void automap_prepare(void* workspace, const void* const* tensors) __attribute__((cold));
extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  memset(workspace, 0, automap_workspace_bytes());
  const int part = 0, parts = 1;
  int8_t* const b_tiles = (int8_t*)((char*)workspace + 576);
  const int8_t* const w = (const int8_t*)tensors[2];
  for (long k_step = 2L * part / parts; k_step < 2L * (part + 1) / parts; k_step++) {
    for (long r_step = 0; r_step < 3; r_step++) {
      for (long s_step = 0; s_step < 3; s_step++) {
        for (long c_step = 0; c_step < 2; c_step++) {
          for (long k_inner = 0; k_inner < 4; k_inner++) {
            for (long n_inner = 0; n_inner < 16; n_inner++) {
              b_tiles[(k_step / 2) * 2304 + ((k_step % 2) * 64) + (r_step * 768) + (s_step * 256) + (c_step * 128) + (4 * n_inner + k_inner)] = w[(((k_step * 16 + n_inner) * 8 + (c_step * 4 + k_inner)) * 3 + r_step) * 3 + s_step];
            }
          }
        }
      }
    }
  }
}

static __attribute__((noinline)) void phase_0(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  uint8_t* const in_padded = (uint8_t*)((char*)workspace + 0);
  const uint8_t* const in = (const uint8_t*)tensors[1];
  for (long h_copy = 6L * part / parts; h_copy < 6L * (part + 1) / parts; h_copy++) {
    memcpy(in_padded + (h_copy + 1) * 64 + 8, in + (h_copy * 6) * 8, 48);
  }
}

static void phase_1(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  uint8_t* const in_padded = (uint8_t*)((char*)workspace + 0);
  int8_t* const b_tiles = (int8_t*)((char*)workspace + 576);
  int32_t* const out = (int32_t*)tensors[0];
  __m512i c0;
  __m512i c1;
  __m512i c2;
  __m512i c3;
  __m512i c4;
  __m512i c5;
  __m512i b0;
  __m512i b1;
  __m512i a0;
  for (long p_outer = 6L * part / parts; p_outer < 6L * (part + 1) / parts; p_outer++) {
    for (long q_outer = 0; q_outer < 2; q_outer++) {
      c0 = decltype(c0){};
      c1 = decltype(c1){};
      c2 = decltype(c2){};
      c3 = decltype(c3){};
      c4 = decltype(c4){};
      c5 = decltype(c5){};
      for (long r_outer = 0; r_outer < 3; r_outer++) {
        for (long s_outer = 0; s_outer < 3; s_outer++) {
          for (long c_outer = 0; c_outer < 2; c_outer++) {
            b0 = _mm512_loadu_si512((b_tiles + r_outer * 768 + (s_outer * 256) + (c_outer * 128)));
            b1 = _mm512_loadu_si512((b_tiles + 64 + (r_outer * 768) + (s_outer * 256) + (c_outer * 128)));
            a0 = _mm512_broadcastd_epi32(_mm_loadu_si32((in_padded + p_outer * 64 + ((q_outer * 3) * 8) + (r_outer * 64) + (s_outer * 8) + (c_outer * 4))));
            c0 = dot_bytes(c0, a0, b0);
            c3 = dot_bytes(c3, a0, b1);
            a0 = _mm512_broadcastd_epi32(_mm_loadu_si32((in_padded + p_outer * 64 + ((q_outer * 3 + 1) * 8) + (r_outer * 64) + (s_outer * 8) + (c_outer * 4))));
            c1 = dot_bytes(c1, a0, b0);
            c4 = dot_bytes(c4, a0, b1);
            a0 = _mm512_broadcastd_epi32(_mm_loadu_si32((in_padded + p_outer * 64 + ((q_outer * 3 + 2) * 8) + (r_outer * 64) + (s_outer * 8) + (c_outer * 4))));
            c2 = dot_bytes(c2, a0, b0);
            c5 = dot_bytes(c5, a0, b1);
          }
        }
      }
      _mm512_storeu_si512((out + p_outer * 192 + ((q_outer * 3) * 32)), c0);
      _mm512_storeu_si512((out + p_outer * 192 + ((q_outer * 3 + 1) * 32)), c1);
      _mm512_storeu_si512((out + p_outer * 192 + ((q_outer * 3 + 2) * 32)), c2);
      _mm512_storeu_si512((out + 16 + (p_outer * 192) + ((q_outer * 3) * 32)), c3);
      _mm512_storeu_si512((out + 16 + (p_outer * 192) + ((q_outer * 3 + 1) * 32)), c4);
      _mm512_storeu_si512((out + 16 + (p_outer * 192) + ((q_outer * 3 + 2) * 32)), c5);
    }
  }
}

extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  switch (phase) {
    case 0: return phase_0(workspace, tensors, part, parts);
    case 1: return phase_1(workspace, tensors, part, parts);
  }
}
