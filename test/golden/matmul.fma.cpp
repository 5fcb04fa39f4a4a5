/*
 * out[m,n] += a[m,k] * b[k,n]
 * out: f32[m 5, n 37], element at m*37 + n
 * a: f32[m 5, k 9], element at m*9 + k
 * b: f32[k 9, n 37], element at k*37 + n
 * avx512.fma.f32.broadcast: c f32 zmm[n], a f32 zmm[n], b f32 zmm[n]
 * mapping   n <- m   waste 68.8 %
 * schedule  order m n k; block n 19; placement a in-place, b tiled; threads 3
 * made by   automap
 */
#include <stdint.h>
#include <string.h>
#include <immintrin.h>
static inline __m512 add_product(__m512 c, __m512 a, __m512 b) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
/* volatile: g++ would keep what one step has broadcast for the next, in memory. */
static inline __m512 broadcast_element(const float* element) {
  __m512 all;
  asm volatile("vbroadcastss %1, %0" : "=v"(all) : "m"(*element));
  return all;
}


extern "C" unsigned long automap_workspace_bytes(void) { return 64; }
extern "C" unsigned long automap_scratch_bytes(void) { return 640; }
extern "C" int automap_phases(void) { return 2; }

extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  memset(workspace, 0, automap_workspace_bytes());
  (void)tensors;
}

static __attribute__((noinline)) void phase_0(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  float* const b_tiles = (float*)((char*)tensors[3] + 0);
  const float* const a = (const float*)tensors[1];
  for (long k_step = 9L * part / parts; k_step < 9L * (part + 1) / parts; k_step++) {
    for (long n_inner = 0; n_inner < 16; n_inner++) {
      b_tiles[k_step * 16 + n_inner] = (n_inner < 5 ? (n_inner < 5 ? a[n_inner * 9 + k_step] : 0.0f) : 0.0f);
    }
  }
}

static void phase_1(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  alignas(64) float c_results[304];
  float* const b_tiles = (float*)((char*)tensors[3] + 0);
  float* const out = (float*)tensors[0];
  const float* const b = (const float*)tensors[2];
  __m512 c0;
  __m512 c1;
  __m512 c2;
  __m512 c3;
  __m512 c4;
  __m512 c5;
  __m512 c6;
  __m512 c7;
  __m512 c8;
  __m512 c9;
  __m512 c10;
  __m512 c11;
  __m512 c12;
  __m512 c13;
  __m512 c14;
  __m512 c15;
  __m512 c16;
  __m512 c17;
  __m512 c18;
  __m512 b0;
  __m512 a0;
  for (long m_rest = 1L * part / parts; m_rest < 1L * (part + 1) / parts; m_rest++) {
    c0 = decltype(c0){};
    c1 = decltype(c1){};
    c2 = decltype(c2){};
    c3 = decltype(c3){};
    c4 = decltype(c4){};
    c5 = decltype(c5){};
    c6 = decltype(c6){};
    c7 = decltype(c7){};
    c8 = decltype(c8){};
    c9 = decltype(c9){};
    c10 = decltype(c10){};
    c11 = decltype(c11){};
    c12 = decltype(c12){};
    c13 = decltype(c13){};
    c14 = decltype(c14){};
    c15 = decltype(c15){};
    c16 = decltype(c16){};
    c17 = decltype(c17){};
    c18 = decltype(c18){};
    for (long k_outer = 0; k_outer < 9; k_outer++) {
      b0 = _mm512_loadu_ps((b_tiles + k_outer * 16));
      a0 = broadcast_element((const float*)((b + k_outer * 37)));
      c0 = add_product(c0, a0, b0);
      a0 = broadcast_element((const float*)((b + 1 + (k_outer * 37))));
      c1 = add_product(c1, a0, b0);
      a0 = broadcast_element((const float*)((b + 2 + (k_outer * 37))));
      c2 = add_product(c2, a0, b0);
      a0 = broadcast_element((const float*)((b + 3 + (k_outer * 37))));
      c3 = add_product(c3, a0, b0);
      a0 = broadcast_element((const float*)((b + 4 + (k_outer * 37))));
      c4 = add_product(c4, a0, b0);
      a0 = broadcast_element((const float*)((b + 5 + (k_outer * 37))));
      c5 = add_product(c5, a0, b0);
      a0 = broadcast_element((const float*)((b + 6 + (k_outer * 37))));
      c6 = add_product(c6, a0, b0);
      a0 = broadcast_element((const float*)((b + 7 + (k_outer * 37))));
      c7 = add_product(c7, a0, b0);
      a0 = broadcast_element((const float*)((b + 8 + (k_outer * 37))));
      c8 = add_product(c8, a0, b0);
      a0 = broadcast_element((const float*)((b + 9 + (k_outer * 37))));
      c9 = add_product(c9, a0, b0);
      a0 = broadcast_element((const float*)((b + 10 + (k_outer * 37))));
      c10 = add_product(c10, a0, b0);
      a0 = broadcast_element((const float*)((b + 11 + (k_outer * 37))));
      c11 = add_product(c11, a0, b0);
      a0 = broadcast_element((const float*)((b + 12 + (k_outer * 37))));
      c12 = add_product(c12, a0, b0);
      a0 = broadcast_element((const float*)((b + 13 + (k_outer * 37))));
      c13 = add_product(c13, a0, b0);
      a0 = broadcast_element((const float*)((b + 14 + (k_outer * 37))));
      c14 = add_product(c14, a0, b0);
      a0 = broadcast_element((const float*)((b + 15 + (k_outer * 37))));
      c15 = add_product(c15, a0, b0);
      a0 = broadcast_element((const float*)((b + 16 + (k_outer * 37))));
      c16 = add_product(c16, a0, b0);
      a0 = broadcast_element((const float*)((b + 17 + (k_outer * 37))));
      c17 = add_product(c17, a0, b0);
      a0 = broadcast_element((const float*)((b + 18 + (k_outer * 37))));
      c18 = add_product(c18, a0, b0);
    }
    _mm512_storeu_ps((c_results + 0), c0);
    _mm512_storeu_ps((c_results + 16), c1);
    _mm512_storeu_ps((c_results + 32), c2);
    _mm512_storeu_ps((c_results + 48), c3);
    _mm512_storeu_ps((c_results + 64), c4);
    _mm512_storeu_ps((c_results + 80), c5);
    _mm512_storeu_ps((c_results + 96), c6);
    _mm512_storeu_ps((c_results + 112), c7);
    _mm512_storeu_ps((c_results + 128), c8);
    _mm512_storeu_ps((c_results + 144), c9);
    _mm512_storeu_ps((c_results + 160), c10);
    _mm512_storeu_ps((c_results + 176), c11);
    _mm512_storeu_ps((c_results + 192), c12);
    _mm512_storeu_ps((c_results + 208), c13);
    _mm512_storeu_ps((c_results + 224), c14);
    _mm512_storeu_ps((c_results + 240), c15);
    _mm512_storeu_ps((c_results + 256), c16);
    _mm512_storeu_ps((c_results + 272), c17);
    _mm512_storeu_ps((c_results + 288), c18);
    for (long n_inner = 0; n_inner < 5; n_inner++) {
      #ifdef __AVX512BW__
      _mm512_storeu_ps(out + n_inner * 37, _mm512_i32gather_ps(_mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240), c_results + n_inner, 4));
      _mm512_mask_storeu_ps(out + n_inner * 37 + 16, 0x7, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0x7, _mm512_setr_epi32(0, 16, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32), c_results + 256 + n_inner, 4));
      #else
      for (long n_block = 0; n_block < 19; n_block++) {
        out[n_inner * 37 + n_block] = c_results[n_block * 16 + n_inner];
      }
      #endif
    }
    c0 = decltype(c0){};
    c1 = decltype(c1){};
    c2 = decltype(c2){};
    c3 = decltype(c3){};
    c4 = decltype(c4){};
    c5 = decltype(c5){};
    c6 = decltype(c6){};
    c7 = decltype(c7){};
    c8 = decltype(c8){};
    c9 = decltype(c9){};
    c10 = decltype(c10){};
    c11 = decltype(c11){};
    c12 = decltype(c12){};
    c13 = decltype(c13){};
    c14 = decltype(c14){};
    c15 = decltype(c15){};
    c16 = decltype(c16){};
    c17 = decltype(c17){};
    for (long k_outer = 0; k_outer < 9; k_outer++) {
      b0 = _mm512_loadu_ps((b_tiles + k_outer * 16));
      a0 = broadcast_element((const float*)((b + 19 + (k_outer * 37))));
      c0 = add_product(c0, a0, b0);
      a0 = broadcast_element((const float*)((b + 20 + (k_outer * 37))));
      c1 = add_product(c1, a0, b0);
      a0 = broadcast_element((const float*)((b + 21 + (k_outer * 37))));
      c2 = add_product(c2, a0, b0);
      a0 = broadcast_element((const float*)((b + 22 + (k_outer * 37))));
      c3 = add_product(c3, a0, b0);
      a0 = broadcast_element((const float*)((b + 23 + (k_outer * 37))));
      c4 = add_product(c4, a0, b0);
      a0 = broadcast_element((const float*)((b + 24 + (k_outer * 37))));
      c5 = add_product(c5, a0, b0);
      a0 = broadcast_element((const float*)((b + 25 + (k_outer * 37))));
      c6 = add_product(c6, a0, b0);
      a0 = broadcast_element((const float*)((b + 26 + (k_outer * 37))));
      c7 = add_product(c7, a0, b0);
      a0 = broadcast_element((const float*)((b + 27 + (k_outer * 37))));
      c8 = add_product(c8, a0, b0);
      a0 = broadcast_element((const float*)((b + 28 + (k_outer * 37))));
      c9 = add_product(c9, a0, b0);
      a0 = broadcast_element((const float*)((b + 29 + (k_outer * 37))));
      c10 = add_product(c10, a0, b0);
      a0 = broadcast_element((const float*)((b + 30 + (k_outer * 37))));
      c11 = add_product(c11, a0, b0);
      a0 = broadcast_element((const float*)((b + 31 + (k_outer * 37))));
      c12 = add_product(c12, a0, b0);
      a0 = broadcast_element((const float*)((b + 32 + (k_outer * 37))));
      c13 = add_product(c13, a0, b0);
      a0 = broadcast_element((const float*)((b + 33 + (k_outer * 37))));
      c14 = add_product(c14, a0, b0);
      a0 = broadcast_element((const float*)((b + 34 + (k_outer * 37))));
      c15 = add_product(c15, a0, b0);
      a0 = broadcast_element((const float*)((b + 35 + (k_outer * 37))));
      c16 = add_product(c16, a0, b0);
      a0 = broadcast_element((const float*)((b + 36 + (k_outer * 37))));
      c17 = add_product(c17, a0, b0);
    }
    _mm512_storeu_ps((c_results + 0), c0);
    _mm512_storeu_ps((c_results + 16), c1);
    _mm512_storeu_ps((c_results + 32), c2);
    _mm512_storeu_ps((c_results + 48), c3);
    _mm512_storeu_ps((c_results + 64), c4);
    _mm512_storeu_ps((c_results + 80), c5);
    _mm512_storeu_ps((c_results + 96), c6);
    _mm512_storeu_ps((c_results + 112), c7);
    _mm512_storeu_ps((c_results + 128), c8);
    _mm512_storeu_ps((c_results + 144), c9);
    _mm512_storeu_ps((c_results + 160), c10);
    _mm512_storeu_ps((c_results + 176), c11);
    _mm512_storeu_ps((c_results + 192), c12);
    _mm512_storeu_ps((c_results + 208), c13);
    _mm512_storeu_ps((c_results + 224), c14);
    _mm512_storeu_ps((c_results + 240), c15);
    _mm512_storeu_ps((c_results + 256), c16);
    _mm512_storeu_ps((c_results + 272), c17);
    for (long n_inner = 0; n_inner < 5; n_inner++) {
      #ifdef __AVX512BW__
      _mm512_storeu_ps(out + n_inner * 37 + 19, _mm512_i32gather_ps(_mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240), c_results + n_inner, 4));
      _mm512_mask_storeu_ps(out + n_inner * 37 + 35, 0x3, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0x3, _mm512_setr_epi32(0, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16), c_results + 256 + n_inner, 4));
      #else
      for (long n_block = 0; n_block < 18; n_block++) {
        out[n_inner * 37 + (19 + n_block)] = c_results[n_block * 16 + n_inner];
      }
      #endif
    }
  }
}

extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  switch (phase) {
    case 0: return phase_0(workspace, tensors, part, parts);
    case 1: return phase_1(workspace, tensors, part, parts);
  }
}
