/*
 * out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s]
 * out: f32[n 1, k 32, p 6, q 6], element at ((n*6 + p)*6 + q)*32 + k
 * in: f32[n 1, c 8, h 6, w 6], element at ((n*6 + h)*6 + w)*8 + c
 * w: f32[k 32, c 8, r 3, s 3], element at ((k*8 + c)*3 + r)*3 + s, packed ahead of time
 * avx512.fma.f32.broadcast: c f32 zmm[n], a f32 zmm[n], b f32 zmm[n]
 * mapping   n <- k   waste 0.0 %
 * schedule  order n k p q r s c; block k 2, q 4; placement a padded, b tiled; threads 1
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


extern "C" unsigned long automap_workspace_bytes(void) { return 11392; }
extern "C" unsigned long automap_scratch_bytes(void) { return 0; }
extern "C" int automap_phases(void) { return 2; }

extern "C" void automap_prepare(void* workspace, const void* const* tensors) __attribute__((cold));
extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  memset(workspace, 0, automap_workspace_bytes());
  const int part = 0, parts = 1;
  float* const b_tiles = (float*)((char*)workspace + 2112);
  const float* const w = (const float*)tensors[2];
  for (long k_step = 2L * part / parts; k_step < 2L * (part + 1) / parts; k_step++) {
    for (long r_step = 0; r_step < 3; r_step++) {
      for (long s_step = 0; s_step < 3; s_step++) {
        for (long c_step = 0; c_step < 8; c_step++) {
          for (long n_inner = 0; n_inner < 16; n_inner++) {
            b_tiles[(k_step / 2) * 2304 + ((k_step % 2) * 16) + (r_step * 768) + (s_step * 256) + (c_step * 32) + n_inner] = w[(((k_step * 16 + n_inner) * 8 + c_step) * 3 + r_step) * 3 + s_step];
          }
        }
      }
    }
  }
}

static __attribute__((noinline)) void phase_0(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  float* const in_padded = (float*)((char*)workspace + 0);
  const float* const in = (const float*)tensors[1];
  for (long h_copy = 6L * part / parts; h_copy < 6L * (part + 1) / parts; h_copy++) {
    memcpy(in_padded + (h_copy + 1) * 64 + 8, in + (h_copy * 6) * 8, 192);
  }
}

static void phase_1(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  float* const in_padded = (float*)((char*)workspace + 0);
  float* const b_tiles = (float*)((char*)workspace + 2112);
  float* const out = (float*)tensors[0];
  __m512 c0;
  __m512 c1;
  __m512 c2;
  __m512 c3;
  __m512 c4;
  __m512 c5;
  __m512 c6;
  __m512 c7;
  __m512 b0;
  __m512 b1;
  __m512 a0;
  for (long p_outer = 6L * part / parts; p_outer < 6L * (part + 1) / parts; p_outer++) {
    c0 = decltype(c0){};
    c1 = decltype(c1){};
    c2 = decltype(c2){};
    c3 = decltype(c3){};
    c4 = decltype(c4){};
    c5 = decltype(c5){};
    c6 = decltype(c6){};
    c7 = decltype(c7){};
    for (long r_outer = 0; r_outer < 3; r_outer++) {
      for (long s_outer = 0; s_outer < 3; s_outer++) {
        for (long c_outer = 0; c_outer < 8; c_outer++) {
          b0 = _mm512_loadu_ps((b_tiles + r_outer * 768 + (s_outer * 256) + (c_outer * 32)));
          b1 = _mm512_loadu_ps((b_tiles + 16 + (r_outer * 768) + (s_outer * 256) + (c_outer * 32)));
          a0 = broadcast_element((const float*)((in_padded + p_outer * 64 + (r_outer * 64) + (s_outer * 8) + c_outer)));
          c0 = add_product(c0, a0, b0);
          c4 = add_product(c4, a0, b1);
          a0 = broadcast_element((const float*)((in_padded + p_outer * 64 + 8 + (r_outer * 64) + (s_outer * 8) + c_outer)));
          c1 = add_product(c1, a0, b0);
          c5 = add_product(c5, a0, b1);
          a0 = broadcast_element((const float*)((in_padded + p_outer * 64 + 16 + (r_outer * 64) + (s_outer * 8) + c_outer)));
          c2 = add_product(c2, a0, b0);
          c6 = add_product(c6, a0, b1);
          a0 = broadcast_element((const float*)((in_padded + p_outer * 64 + 24 + (r_outer * 64) + (s_outer * 8) + c_outer)));
          c3 = add_product(c3, a0, b0);
          c7 = add_product(c7, a0, b1);
        }
      }
    }
    _mm512_storeu_ps((out + p_outer * 192), c0);
    _mm512_storeu_ps((out + p_outer * 192 + 32), c1);
    _mm512_storeu_ps((out + p_outer * 192 + 64), c2);
    _mm512_storeu_ps((out + p_outer * 192 + 96), c3);
    _mm512_storeu_ps((out + 16 + (p_outer * 192)), c4);
    _mm512_storeu_ps((out + 16 + (p_outer * 192) + 32), c5);
    _mm512_storeu_ps((out + 16 + (p_outer * 192) + 64), c6);
    _mm512_storeu_ps((out + 16 + (p_outer * 192) + 96), c7);
    c0 = decltype(c0){};
    c1 = decltype(c1){};
    c4 = decltype(c4){};
    c5 = decltype(c5){};
    for (long r_outer = 0; r_outer < 3; r_outer++) {
      for (long s_outer = 0; s_outer < 3; s_outer++) {
        for (long c_outer = 0; c_outer < 8; c_outer++) {
          b0 = _mm512_loadu_ps((b_tiles + r_outer * 768 + (s_outer * 256) + (c_outer * 32)));
          b1 = _mm512_loadu_ps((b_tiles + 16 + (r_outer * 768) + (s_outer * 256) + (c_outer * 32)));
          a0 = broadcast_element((const float*)((in_padded + p_outer * 64 + 32 + (r_outer * 64) + (s_outer * 8) + c_outer)));
          c0 = add_product(c0, a0, b0);
          c4 = add_product(c4, a0, b1);
          a0 = broadcast_element((const float*)((in_padded + p_outer * 64 + 40 + (r_outer * 64) + (s_outer * 8) + c_outer)));
          c1 = add_product(c1, a0, b0);
          c5 = add_product(c5, a0, b1);
        }
      }
    }
    _mm512_storeu_ps((out + p_outer * 192 + 128), c0);
    _mm512_storeu_ps((out + p_outer * 192 + 160), c1);
    _mm512_storeu_ps((out + 16 + (p_outer * 192) + 128), c4);
    _mm512_storeu_ps((out + 16 + (p_outer * 192) + 160), c5);
  }
}

extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  switch (phase) {
    case 0: return phase_0(workspace, tensors, part, parts);
    case 1: return phase_1(workspace, tensors, part, parts);
  }
}
