/*
 * The Advanced SIMD and SVE instructions of the intrinsics table as plain C++, for machines without Arm tools.
 * Written from the operation sections of the Arm Architecture Reference Manual for A-profile and its SVE supplement.
 * Scalable vectors have 512 bits here.
 */
#ifndef AUTOMAP_EMULATION_ARM_H
#define AUTOMAP_EMULATION_ARM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- elements: a bf16 is its bits */
typedef _Float16 float16_t;
struct bfloat16_t { uint16_t bits; };
static inline float number(bfloat16_t x) {
  /* Subnormal factors count as zeros. */
  const uint32_t bits = (x.bits & 0x7f80) ? (uint32_t)x.bits << 16 : (uint32_t)(x.bits & 0x8000) << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
template <class T> static inline T number(T x) { return x; }

/* c + a * b: integers wrap, floats are rounded once. */
static inline int32_t add_product(int32_t c, int32_t a, int32_t b) { return (int32_t)((uint32_t)c + (uint32_t)a * (uint32_t)b); }
static inline uint32_t add_product(uint32_t c, int32_t a, int32_t b) { return c + (uint32_t)a * (uint32_t)b; }
static inline float add_product(float c, float a, float b) { return fmaf(a, b, c); }
static inline double add_product(double c, double a, double b) { return fma(a, b, c); }
static inline float16_t add_product(float16_t c, float16_t a, float16_t b) { return (float16_t)((double)a * (double)b + (double)c); }

/* ---- registers of N bytes, and tuples of them */
template <class T, int N = 16> struct Vector { T lanes[N / sizeof(T)]; };
template <class V, int COUNT> struct Tuple { V val[COUNT]; };

template <class T, int N> static Vector<T, N> load(const T* p) {
  Vector<T, N> v;
  memcpy(v.lanes, p, N);
  return v;
}
template <class T, int N, int COUNT> static Tuple<Vector<T, N>, COUNT> load_several(const T* p) {
  Tuple<Vector<T, N>, COUNT> t;
  memcpy(&t, p, sizeof t);
  return t;
}
template <class T> static Vector<T> same(const T* p) {
  Vector<T> v;
  for (T& lane : v.lanes) memcpy(&lane, p, sizeof(T));
  return v;
}
template <class To, class V> static To as(V from) {
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

#define TYPES(type, word, count) \
  typedef Vector<type> word##x##count##_t; \
  typedef Tuple<word##x##count##_t, 2> word##x##count##x2_t; \
  typedef Tuple<word##x##count##_t, 4> word##x##count##x4_t
TYPES(int8_t, int8, 16);
TYPES(uint8_t, uint8, 16);
TYPES(int32_t, int32, 4);
TYPES(uint32_t, uint32, 4);
TYPES(float16_t, float16, 8);
TYPES(bfloat16_t, bfloat16, 8);
TYPES(float, float32, 4);
TYPES(double, float64, 2);
typedef Vector<float16_t, 8> float16x4_t;

#define MEMORY(type, suffix) \
  static inline Vector<type> vld1q_##suffix(const type* p) { return load<type, 16>(p); } \
  static inline Tuple<Vector<type>, 2> vld1q_##suffix##_x2(const type* p) { return load_several<type, 16, 2>(p); } \
  static inline Tuple<Vector<type>, 4> vld1q_##suffix##_x4(const type* p) { return load_several<type, 16, 4>(p); } \
  static inline Vector<type> vld1q_dup_##suffix(const type* p) { return same(p); } \
  static inline void vst1q_##suffix(type* p, Vector<type> v) { memcpy(p, v.lanes, 16); }
MEMORY(int8_t, s8)
MEMORY(uint8_t, u8)
MEMORY(int32_t, s32)
MEMORY(uint32_t, u32)
MEMORY(float16_t, f16)
MEMORY(bfloat16_t, bf16)
MEMORY(float, f32)
MEMORY(double, f64)
static inline float16x4_t vld1_f16(const float16_t* p) { return load<float16_t, 8>(p); }
static inline int8x16_t vreinterpretq_s8_s32(int32x4_t v) { return as<int8x16_t>(v); }
static inline uint8x16_t vreinterpretq_u8_u32(uint32x4_t v) { return as<uint8x16_t>(v); }
static inline bfloat16x8_t vreinterpretq_bf16_u32(uint32x4_t v) { return as<bfloat16x8_t>(v); }

/* ---- dot products: lane e adds the products of elements P*e .. P*e + P-1 */
template <class C, class A, class B, int N> static Vector<C, N> dot_lanes(Vector<C, N> c, Vector<A, N> a, Vector<B, N> b) {
  constexpr int P = sizeof(C) / sizeof(A);
  for (unsigned e = 0; e < N / sizeof(C); e++)
    for (int i = 0; i < P; i++) c.lanes[e] = add_product(c.lanes[e], number(a.lanes[P * e + i]), number(b.lanes[P * e + i]));
  return c;
}
/* By element: lane i of each 128 bits of `b` (or of all of a shorter `b`) is used for every lane. */
template <class C, class A, class B, int N, int M> static Vector<C, N> by_lane(Vector<C, N> c, Vector<A, N> a, Vector<B, M> b, int i) {
  constexpr int P = sizeof(C) / sizeof(A), LANES = (M < 16 ? M : 16) / sizeof(C);
  Vector<B, N> repeated;
  for (unsigned e = 0; e < N / sizeof(C); e++)
    for (int j = 0; j < P; j++) repeated.lanes[P * e + j] = b.lanes[P * (e * sizeof(C) / 16 * (M < 16 ? 0 : LANES) + i) + j];
  return dot_lanes(c, a, repeated);
}
/* xMMLA: in each 128 bits, two rows times the transpose of two rows. */
template <class C, class A, class B, int N> static Vector<C, N> matrix_product(Vector<C, N> c, Vector<A, N> a, Vector<B, N> b) {
  constexpr int K = 8 / sizeof(A);
  for (int s = 0; s < N / 16; s++)
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++)
        for (int k = 0; k < K; k++) {
          C& sum = c.lanes[4 * s + 2 * i + j];
          sum = add_product(sum, number(a.lanes[2 * K * s + K * i + k]), number(b.lanes[2 * K * s + K * j + k]));
        }
  return c;
}

static inline int32x4_t vdotq_s32(int32x4_t c, int8x16_t a, int8x16_t b) { return dot_lanes(c, a, b); }
static inline uint32x4_t vdotq_u32(uint32x4_t c, uint8x16_t a, uint8x16_t b) { return dot_lanes(c, a, b); }
static inline int32x4_t vusdotq_s32(int32x4_t c, uint8x16_t a, int8x16_t b) { return dot_lanes(c, a, b); }
static inline float32x4_t vbfdotq_f32(float32x4_t c, bfloat16x8_t a, bfloat16x8_t b) { return dot_lanes(c, a, b); }
static inline int32x4_t vdotq_laneq_s32(int32x4_t c, int8x16_t a, int8x16_t b, int i) { return by_lane(c, a, b, i); }
static inline uint32x4_t vdotq_laneq_u32(uint32x4_t c, uint8x16_t a, uint8x16_t b, int i) { return by_lane(c, a, b, i); }
static inline int32x4_t vsudotq_laneq_s32(int32x4_t c, int8x16_t a, uint8x16_t b, int i) { return by_lane(c, a, b, i); }
static inline float32x4_t vbfdotq_laneq_f32(float32x4_t c, bfloat16x8_t a, bfloat16x8_t b, int i) { return by_lane(c, a, b, i); }
static inline int32x4_t vmmlaq_s32(int32x4_t c, int8x16_t a, int8x16_t b) { return matrix_product(c, a, b); }
static inline uint32x4_t vmmlaq_u32(uint32x4_t c, uint8x16_t a, uint8x16_t b) { return matrix_product(c, a, b); }
static inline int32x4_t vusmmlaq_s32(int32x4_t c, uint8x16_t a, int8x16_t b) { return matrix_product(c, a, b); }
static inline float32x4_t vbfmmlaq_f32(float32x4_t c, bfloat16x8_t a, bfloat16x8_t b) { return matrix_product(c, a, b); }

static inline float32x4_t vfmaq_f32(float32x4_t c, float32x4_t a, float32x4_t b) { return dot_lanes(c, a, b); }
static inline float64x2_t vfmaq_f64(float64x2_t c, float64x2_t a, float64x2_t b) { return dot_lanes(c, a, b); }
static inline float16x8_t vfmaq_f16(float16x8_t c, float16x8_t a, float16x8_t b) { return dot_lanes(c, a, b); }
static inline float32x4_t vfmaq_laneq_f32(float32x4_t c, float32x4_t a, float32x4_t b, int i) { return by_lane(c, a, b, i); }
static inline float64x2_t vfmaq_laneq_f64(float64x2_t c, float64x2_t a, float64x2_t b, int i) { return by_lane(c, a, b, i); }
static inline float16x8_t vfmaq_lane_f16(float16x8_t c, float16x8_t a, float16x4_t b, int i) { return by_lane(c, a, b, i); }

/* u8 times s8 through SDOT, as the prelude of its rows (intrinsics/arm.ts) builds it from single instructions. */
static inline int32x4_t dot_mixed(int32x4_t c, uint8x16_t a, int8x16_t b) { return dot_lanes(c, a, b); }
static inline int32x4_t dot_mixed(int32x4_t c, uint8x16_t a, int8x16x4_t b) {
  for (int i = 0; i < 4; i++) c = by_lane(c, b.val[i], a, i);
  return c;
}

/* ---- SVE */
static constexpr int SCALABLE = 64;
#define SCALABLE_TYPES(type, word) \
  typedef Vector<type, SCALABLE> sv##word##_t; \
  typedef Tuple<sv##word##_t, 2> sv##word##x2_t; \
  typedef Tuple<sv##word##_t, 4> sv##word##x4_t
SCALABLE_TYPES(int8_t, int8);
SCALABLE_TYPES(uint8_t, uint8);
SCALABLE_TYPES(int32_t, int32);
SCALABLE_TYPES(uint32_t, uint32);
SCALABLE_TYPES(float16_t, float16);
SCALABLE_TYPES(bfloat16_t, bfloat16);
SCALABLE_TYPES(float, float32);
SCALABLE_TYPES(double, float64);
typedef Vector<uint64_t, SCALABLE> svuint64_t;

/* A predicate is the number of active lanes, from the first: all of a shape, or none if the vector has fewer. */
enum svpattern { SV_VL2 = 2, SV_VL4 = 4, SV_VL8 = 8, SV_VL16 = 16, SV_VL32 = 32, SV_VL64 = 64 };
struct svbool_t { int active; };
template <int BYTES> static inline svbool_t first_lanes(int count) { return {count * BYTES <= SCALABLE ? count : 0}; }
static inline svbool_t svptrue_pat_b8(svpattern p) { return first_lanes<1>(p); }
static inline svbool_t svptrue_pat_b16(svpattern p) { return first_lanes<2>(p); }
static inline svbool_t svptrue_pat_b32(svpattern p) { return first_lanes<4>(p); }
static inline svbool_t svptrue_pat_b64(svpattern p) { return first_lanes<8>(p); }
static inline svbool_t svptrue_b8() { return {SCALABLE}; }
static inline svbool_t svptrue_b16() { return {SCALABLE / 2}; }
static inline svbool_t svptrue_b32() { return {SCALABLE / 4}; }
static inline svbool_t svptrue_b64() { return {SCALABLE / 8}; }

template <class T> static Vector<T, SCALABLE> load_scalable(svbool_t p, const T* from) {
  Vector<T, SCALABLE> v = {};
  memcpy(v.lanes, from, p.active * sizeof(T));
  return v;
}
template <class T> static Vector<T, SCALABLE> load_repeated(const T* from) {
  Vector<T, SCALABLE> v;
  for (int at = 0; at < SCALABLE; at += 16) memcpy((char*)v.lanes + at, from, 16);
  return v;
}
#define SCALABLE_MEMORY(type, suffix, word) \
  static inline word##_t svld1_##suffix(svbool_t p, const type* from) { return load_scalable(p, from); } \
  static inline word##_t svld1rq_##suffix(svbool_t, const type* from) { return load_repeated(from); } \
  static inline void svst1_##suffix(svbool_t p, type* to, word##_t v) { memcpy(to, v.lanes, p.active * sizeof(type)); } \
  static inline word##x2_t svcreate2_##suffix(word##_t a, word##_t b) { return {{a, b}}; } \
  static inline word##x4_t svcreate4_##suffix(word##_t a, word##_t b, word##_t c, word##_t d) { return {{a, b, c, d}}; } \
  static inline word##_t svget2_##suffix(word##x2_t t, int i) { return t.val[i]; } \
  static inline word##_t svget4_##suffix(word##x4_t t, int i) { return t.val[i]; }
SCALABLE_MEMORY(int8_t, s8, svint8)
SCALABLE_MEMORY(uint8_t, u8, svuint8)
SCALABLE_MEMORY(int32_t, s32, svint32)
SCALABLE_MEMORY(uint32_t, u32, svuint32)
SCALABLE_MEMORY(float16_t, f16, svfloat16)
SCALABLE_MEMORY(bfloat16_t, bf16, svbfloat16)
SCALABLE_MEMORY(float, f32, svfloat32)
SCALABLE_MEMORY(double, f64, svfloat64)
static inline svuint64_t svdup_u64(uint64_t x) {
  svuint64_t v;
  for (uint64_t& lane : v.lanes) lane = x;
  return v;
}
static inline svfloat16_t svreinterpret_f16_u64(svuint64_t v) { return as<svfloat16_t>(v); }

static inline svint32_t svdot_lane_s32(svint32_t c, svint8_t a, svint8_t b, int i) { return by_lane(c, a, b, i); }
static inline svuint32_t svdot_lane_u32(svuint32_t c, svuint8_t a, svuint8_t b, int i) { return by_lane(c, a, b, i); }
static inline svint32_t svsudot_lane_s32(svint32_t c, svint8_t a, svuint8_t b, int i) { return by_lane(c, a, b, i); }
static inline svfloat32_t svbfdot_lane_f32(svfloat32_t c, svbfloat16_t a, svbfloat16_t b, int i) { return by_lane(c, a, b, i); }
static inline svfloat32_t svmla_lane_f32(svfloat32_t c, svfloat32_t a, svfloat32_t b, int i) { return by_lane(c, a, b, i); }
static inline svfloat64_t svmla_lane_f64(svfloat64_t c, svfloat64_t a, svfloat64_t b, int i) { return by_lane(c, a, b, i); }
static inline svfloat16_t svmla_lane_f16(svfloat16_t c, svfloat16_t a, svfloat16_t b, int i) { return by_lane(c, a, b, i); }
static inline svint32_t svmmla_s32(svint32_t c, svint8_t a, svint8_t b) { return matrix_product(c, a, b); }
static inline svuint32_t svmmla_u32(svuint32_t c, svuint8_t a, svuint8_t b) { return matrix_product(c, a, b); }
static inline svint32_t svusmmla_s32(svint32_t c, svuint8_t a, svint8_t b) { return matrix_product(c, a, b); }
static inline svfloat32_t svbfmmla_f32(svfloat32_t c, svbfloat16_t a, svbfloat16_t b) { return matrix_product(c, a, b); }

#endif
