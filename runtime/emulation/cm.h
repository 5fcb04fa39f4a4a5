/*
 * The part of C for Metal that the intrinsics table uses: vectors of the register file, dot products and DPAS.
 * Written from the CM language specification; every operand is read before the destination is written.
 */
#ifndef AUTOMAP_EMULATION_CM_H
#define AUTOMAP_EMULATION_CM_H

#include <stdint.h>
#include <string.h>

typedef _Float16 half;
typedef unsigned char uchar;
typedef unsigned short ushort;
struct bf16 {
  uint16_t bits;
};

template <class T, int N> class vector {
  T values[N];

 public:
  vector() {}
  vector(T fill) { *this = fill; }
  T operator()(int i) const { return values[i]; }
  T& operator()(int i) { return values[i]; }
  vector& operator=(T fill) {
    for (int i = 0; i < N; i++) values[i] = fill;
    return *this;
  }
  vector operator*(const vector& other) const {
    vector product;
    for (int i = 0; i < N; i++) product(i) = values[i] * other(i);
    return product;
  }
  vector operator+(const vector& other) const {
    vector sum;
    for (int i = 0; i < N; i++) sum(i) = values[i] + other(i);
    return sum;
  }
  vector& operator+=(const vector& other) { return *this = *this + other; }
  /* The same bytes as elements of another type. */
  template <class T2> vector<T2, N * sizeof(T) / sizeof(T2)> format() const {
    vector<T2, N * sizeof(T) / sizeof(T2)> same;
    static_assert(sizeof same == sizeof *this, "format() keeps the bytes");
    memcpy((void*)&same, (const void*)this, sizeof same);
    return same;
  }
};

/* The dot product of each group of four, in all four elements of the group. */
template <class T, int N> static vector<T, N> cm_dp4(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> d;
  for (int g = 0; g < N; g += 4) {
    T sum = 0;
    for (int j = 0; j < 4; j++) sum += a(g + j) * b(g + j);
    for (int r = 0; r < 4; r++) d(g + r) = sum;
  }
  return d;
}

enum CmPrecisionType {
  CM_PRECISION_U8 = 3,
  CM_PRECISION_S8 = 7,
  CM_PRECISION_BF = 8,
  CM_PRECISION_HF = 9,
  CM_PRECISION_TF32 = 11,
};

namespace emulation {
template <CmPrecisionType P> struct Precision;
template <> struct Precision<CM_PRECISION_U8> {
  enum { bits = 8 };
  static int value(unsigned x) { return (uint8_t)x; }
};
template <> struct Precision<CM_PRECISION_S8> {
  enum { bits = 8 };
  static int value(unsigned x) { return (int8_t)x; }
};
template <> struct Precision<CM_PRECISION_HF> {
  enum { bits = 16 };
  static float value(unsigned x) {
    uint16_t low = (uint16_t)x;
    half h;
    memcpy(&h, &low, sizeof h);
    return h;
  }
};
template <> struct Precision<CM_PRECISION_BF> {
  enum { bits = 16 };
  static float value(unsigned x) {
    x <<= 16;
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
  }
};
template <> struct Precision<CM_PRECISION_TF32> {
  enum { bits = 32 };
  static float value(unsigned x) {
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
  }
};
static inline int multiply_add(int sum, int a, int b) { return (int)((unsigned)sum + (unsigned)a * (unsigned)b); }
static inline float multiply_add(float sum, float a, float b) { return sum + a * b; }
}  // namespace emulation

/*
 * acc[r][n] += sum over s < DEPTH, d < ops of A[r][s*ops + d] * B[s*ops + d][n]: a dword of A is [r*DEPTH + s], a dword of B is
 * [s*N + n], each with `ops` consecutive k from its low bits up. The precision of B (src1) comes first.
 */
template <CmPrecisionType PB, CmPrecisionType PA, int DEPTH, int REPEAT, class T, int NT, int NB, int NA>
static vector<T, NT> cm_dpas(const vector<T, NT>& acc, const vector<int, NB>& b, const vector<int, NA>& a) {
  using namespace emulation;
  const int lanes = NT / REPEAT, widest = (int)Precision<PA>::bits > (int)Precision<PB>::bits ? Precision<PA>::bits : Precision<PB>::bits;
  const int ops = 32 / widest;
  static_assert(NA == REPEAT * DEPTH && NB == DEPTH * (NT / REPEAT), "one dword a step");
  vector<T, NT> result = acc;
  for (int r = 0; r < REPEAT; r++)
    for (int s = 0; s < DEPTH; s++)
      for (int n = 0; n < lanes; n++)
        for (int d = 0; d < ops; d++) {
          unsigned left = (unsigned)a(r * DEPTH + s) >> (widest * d % 32), right = (unsigned)b(s * lanes + n) >> (widest * d % 32);
          result(r * lanes + n) = multiply_add(result(r * lanes + n), (T)Precision<PA>::value(left), (T)Precision<PB>::value(right));
        }
  return result;
}

#endif
