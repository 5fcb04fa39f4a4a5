/*
 * The Advanced SIMD instructions of the intrinsics table as plain C++, for machines without an Arm compiler and qemu.
 * Written from the operation sections of the Arm Architecture Reference Manual for A-profile.
 */
#ifndef AUTOMAP_EMULATION_ARM_H
#define AUTOMAP_EMULATION_ARM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

template <class T> struct Quad {
  T lanes[16 / sizeof(T)];
};
typedef Quad<int8_t> int8x16_t;
typedef Quad<uint8_t> uint8x16_t;
typedef Quad<int32_t> int32x4_t;
typedef Quad<uint32_t> uint32x4_t;
typedef Quad<float> float32x4_t;

template <class T> static Quad<T> load_quad(const T* p) {
  Quad<T> q;
  memcpy(q.lanes, p, 16);
  return q;
}
static inline int8x16_t vld1q_s8(const int8_t* p) { return load_quad(p); }
static inline uint8x16_t vld1q_u8(const uint8_t* p) { return load_quad(p); }
static inline int32x4_t vld1q_s32(const int32_t* p) { return load_quad(p); }
static inline uint32x4_t vld1q_u32(const uint32_t* p) { return load_quad(p); }
static inline float32x4_t vld1q_f32(const float* p) { return load_quad(p); }
static inline void vst1q_s32(int32_t* p, int32x4_t q) { memcpy(p, q.lanes, 16); }
static inline void vst1q_u32(uint32_t* p, uint32x4_t q) { memcpy(p, q.lanes, 16); }
static inline void vst1q_f32(float* p, float32x4_t q) { memcpy(p, q.lanes, 16); }
static inline int32x4_t vld1q_dup_s32(const int32_t* p) { return {{*p, *p, *p, *p}}; }
static inline int8x16_t vreinterpretq_s8_s32(int32x4_t q) {
  int8x16_t same;
  memcpy(&same, &q, 16);
  return same;
}

/* xDOT: lane e gains the products of bytes 4*e .. 4*e+3. */
template <class C, class A, class B> static Quad<C> dot_lanes(Quad<C> c, Quad<A> a, Quad<B> b) {
  for (int e = 0; e < 4; e++)
    for (int i = 0; i < 4; i++) c.lanes[e] = (C)((uint32_t)c.lanes[e] + (uint32_t)((int32_t)a.lanes[4 * e + i] * (int32_t)b.lanes[4 * e + i]));
  return c;
}
static inline int32x4_t vdotq_s32(int32x4_t c, int8x16_t a, int8x16_t b) { return dot_lanes(c, a, b); }
static inline uint32x4_t vdotq_u32(uint32x4_t c, uint8x16_t a, uint8x16_t b) { return dot_lanes(c, a, b); }
static inline int32x4_t vusdotq_s32(int32x4_t c, uint8x16_t a, int8x16_t b) { return dot_lanes(c, a, b); }

/* xMMLA: a 2x8 matrix by the transpose of a 2x8 matrix. */
template <class C, class A, class B> static Quad<C> matrix_product(Quad<C> c, Quad<A> a, Quad<B> b) {
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
      for (int k = 0; k < 8; k++)
        c.lanes[2 * i + j] = (C)((uint32_t)c.lanes[2 * i + j] + (uint32_t)((int32_t)a.lanes[8 * i + k] * (int32_t)b.lanes[8 * j + k]));
  return c;
}
static inline int32x4_t vmmlaq_s32(int32x4_t c, int8x16_t a, int8x16_t b) { return matrix_product(c, a, b); }
static inline uint32x4_t vmmlaq_u32(uint32x4_t c, uint8x16_t a, uint8x16_t b) { return matrix_product(c, a, b); }
static inline int32x4_t vusmmlaq_s32(int32x4_t c, uint8x16_t a, int8x16_t b) { return matrix_product(c, a, b); }

static inline float32x4_t vfmaq_f32(float32x4_t c, float32x4_t a, float32x4_t b) {
  for (int i = 0; i < 4; i++) c.lanes[i] = fmaf(a.lanes[i], b.lanes[i], c.lanes[i]);
  return c;
}

#endif
