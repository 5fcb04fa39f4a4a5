/*
 * out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s]
 * out: f32[n 1, k 32, p 6, q 6], element at ((n*6 + p)*6 + q)*32 + k
 * in: f32[n 1, c 8, h 6, w 6], element at ((n*6 + h)*6 + w)*8 + c
 * w: f32[k 32, c 8, r 3, s 3], element at ((k*8 + c)*3 + r)*3 + s, packed ahead of time
 * arm.fmla.f32.lane: c f32 v[n], a f32 v[k], b f32 vx4[4*k + n]
 * mapping   n <- k   k <- c   waste 0.0 %
 * schedule  order n k p q r s c; block k 2, q 3; placement a padded, b tiled; threads 1
 * made by   automap
 */
#include <stdint.h>
#include <string.h>
#include <arm_neon.h>

extern "C" unsigned long automap_workspace_bytes(void) { return 11392; }
extern "C" unsigned long automap_scratch_bytes(void) { return 0; }
extern "C" int automap_phases(void) { return 2; }

extern "C" void automap_prepare(void* workspace, const void* const* tensors) __attribute__((cold));
extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  memset(workspace, 0, automap_workspace_bytes());
  const int part = 0, parts = 1;
  float* const b_tiles = (float*)((char*)workspace + 2112);
  const float* const w = (const float*)tensors[2];
  for (long k_step = 8L * part / parts; k_step < 8L * (part + 1) / parts; k_step++) {
    for (long r_step = 0; r_step < 3; r_step++) {
      for (long s_step = 0; s_step < 3; s_step++) {
        for (long c_step = 0; c_step < 2; c_step++) {
          for (long k_inner = 0; k_inner < 4; k_inner++) {
            for (long n_inner = 0; n_inner < 4; n_inner++) {
              b_tiles[(k_step / 2) * 576 + ((k_step % 2) * 16) + (r_step * 192) + (s_step * 64) + (c_step * 32) + (4 * k_inner + n_inner)] = w[(((k_step * 4 + n_inner) * 8 + (c_step * 4 + k_inner)) * 3 + r_step) * 3 + s_step];
            }
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
  float32x4_t c0;
  float32x4_t c1;
  float32x4_t c2;
  float32x4_t c3;
  float32x4_t c4;
  float32x4_t c5;
  float32x4x4_t b0;
  float32x4x4_t b1;
  float32x4_t a0;
  for (long k_outer = 4L * part / parts; k_outer < 4L * (part + 1) / parts; k_outer++) {
    for (long p_outer = 0; p_outer < 6; p_outer++) {
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
              b0 = vld1q_f32_x4((const float*)((b_tiles + k_outer * 576 + (r_outer * 192) + (s_outer * 64) + (c_outer * 32))));
              b1 = vld1q_f32_x4((const float*)((b_tiles + k_outer * 576 + 16 + (r_outer * 192) + (s_outer * 64) + (c_outer * 32))));
              a0 = vld1q_f32((const float*)((in_padded + p_outer * 64 + ((q_outer * 3) * 8) + (r_outer * 64) + (s_outer * 8) + (c_outer * 4))));
              c0 = vfmaq_laneq_f32(c0, b0.val[0], a0, 0); c0 = vfmaq_laneq_f32(c0, b0.val[1], a0, 1); c0 = vfmaq_laneq_f32(c0, b0.val[2], a0, 2); c0 = vfmaq_laneq_f32(c0, b0.val[3], a0, 3);
              c3 = vfmaq_laneq_f32(c3, b1.val[0], a0, 0); c3 = vfmaq_laneq_f32(c3, b1.val[1], a0, 1); c3 = vfmaq_laneq_f32(c3, b1.val[2], a0, 2); c3 = vfmaq_laneq_f32(c3, b1.val[3], a0, 3);
              a0 = vld1q_f32((const float*)((in_padded + p_outer * 64 + ((q_outer * 3 + 1) * 8) + (r_outer * 64) + (s_outer * 8) + (c_outer * 4))));
              c1 = vfmaq_laneq_f32(c1, b0.val[0], a0, 0); c1 = vfmaq_laneq_f32(c1, b0.val[1], a0, 1); c1 = vfmaq_laneq_f32(c1, b0.val[2], a0, 2); c1 = vfmaq_laneq_f32(c1, b0.val[3], a0, 3);
              c4 = vfmaq_laneq_f32(c4, b1.val[0], a0, 0); c4 = vfmaq_laneq_f32(c4, b1.val[1], a0, 1); c4 = vfmaq_laneq_f32(c4, b1.val[2], a0, 2); c4 = vfmaq_laneq_f32(c4, b1.val[3], a0, 3);
              a0 = vld1q_f32((const float*)((in_padded + p_outer * 64 + ((q_outer * 3 + 2) * 8) + (r_outer * 64) + (s_outer * 8) + (c_outer * 4))));
              c2 = vfmaq_laneq_f32(c2, b0.val[0], a0, 0); c2 = vfmaq_laneq_f32(c2, b0.val[1], a0, 1); c2 = vfmaq_laneq_f32(c2, b0.val[2], a0, 2); c2 = vfmaq_laneq_f32(c2, b0.val[3], a0, 3);
              c5 = vfmaq_laneq_f32(c5, b1.val[0], a0, 0); c5 = vfmaq_laneq_f32(c5, b1.val[1], a0, 1); c5 = vfmaq_laneq_f32(c5, b1.val[2], a0, 2); c5 = vfmaq_laneq_f32(c5, b1.val[3], a0, 3);
            }
          }
        }
        vst1q_f32((float*)((out + (k_outer * 2) * 4 + (p_outer * 192) + ((q_outer * 3) * 32))), c0);
        vst1q_f32((float*)((out + (k_outer * 2) * 4 + (p_outer * 192) + ((q_outer * 3 + 1) * 32))), c1);
        vst1q_f32((float*)((out + (k_outer * 2) * 4 + (p_outer * 192) + ((q_outer * 3 + 2) * 32))), c2);
        vst1q_f32((float*)((out + (k_outer * 2 + 1) * 4 + (p_outer * 192) + ((q_outer * 3) * 32))), c3);
        vst1q_f32((float*)((out + (k_outer * 2 + 1) * 4 + (p_outer * 192) + ((q_outer * 3 + 1) * 32))), c4);
        vst1q_f32((float*)((out + (k_outer * 2 + 1) * 4 + (p_outer * 192) + ((q_outer * 3 + 2) * 32))), c5);
      }
    }
  }
}

extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  switch (phase) {
    case 0: return phase_0(workspace, tensors, part, parts);
    case 1: return phase_1(workspace, tensors, part, parts);
  }
}
