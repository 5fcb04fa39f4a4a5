/*
 * The x86 vector and tile instructions of the intrinsics table as plain C++, for CPUs that lack them. Written from the
 * pseudo-code of Intel SDM vol. 2, without anything from immintrin.h, which must not be included beside it.
 */
#ifndef AUTOMAP_EMULATION_X86_H
#define AUTOMAP_EMULATION_X86_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- registers are bytes ----------------------------------------------------------------------------------------- */

template <int BYTES> struct Register {
  unsigned char bytes[BYTES];
  template <class T> T get(int i) const {
    T value;
    memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T> void set(int i, T value) { memcpy(bytes + i * sizeof(T), &value, sizeof(T)); }
};

struct __m128i : Register<16> {};
struct __m256 : Register<32> {};
struct __m256d : Register<32> {};
struct __m256i : Register<32> {};
struct __m256bh : Register<32> {
  __m256bh() {}
  explicit __m256bh(const __m256i& other) { memcpy(bytes, other.bytes, 32); }
  explicit operator __m256i() const {
    __m256i other;
    memcpy(other.bytes, bytes, 32);
    return other;
  }
};
struct __m512 : Register<64> {};
struct __m512d : Register<64> {};
struct __m512i : Register<64> {};
struct __m512h : Register<64> {};
struct __m512bh : Register<64> {
  __m512bh() {}
  explicit __m512bh(const __m512i& other) { memcpy(bytes, other.bytes, 64); }
};

template <class R> static R load_register(const void* from) {
  R reg;
  memcpy(reg.bytes, from, sizeof reg.bytes);
  return reg;
}
template <class R, class T> static R fill_register(T value) {
  R reg;
  for (unsigned i = 0; i < sizeof reg.bytes / sizeof(T); i++) reg.set(i, value);
  return reg;
}

static inline __m256 _mm256_loadu_ps(const float* p) { return load_register<__m256>(p); }
static inline __m256d _mm256_loadu_pd(const double* p) { return load_register<__m256d>(p); }
static inline __m128i _mm_loadu_si128(const __m128i* p) { return load_register<__m128i>(p); }
static inline __m256i _mm256_loadu_si256(const __m256i* p) { return load_register<__m256i>(p); }
static inline __m512 _mm512_loadu_ps(const void* p) { return load_register<__m512>(p); }
static inline __m512d _mm512_loadu_pd(const void* p) { return load_register<__m512d>(p); }
static inline __m512h _mm512_loadu_ph(const void* p) { return load_register<__m512h>(p); }
static inline __m512i _mm512_loadu_si512(const void* p) { return load_register<__m512i>(p); }

static inline void _mm256_storeu_ps(float* p, __m256 r) { memcpy(p, r.bytes, 32); }
static inline void _mm256_storeu_pd(double* p, __m256d r) { memcpy(p, r.bytes, 32); }
static inline void _mm256_storeu_si256(__m256i* p, __m256i r) { memcpy((void*)p, r.bytes, 32); }
static inline void _mm512_storeu_ps(void* p, __m512 r) { memcpy(p, r.bytes, 64); }
static inline void _mm512_storeu_pd(void* p, __m512d r) { memcpy(p, r.bytes, 64); }
static inline void _mm512_storeu_ph(void* p, __m512h r) { memcpy(p, r.bytes, 64); }
static inline void _mm512_storeu_si512(void* p, __m512i r) { memcpy(p, r.bytes, 64); }

static inline __m256 _mm256_broadcast_ss(const float* p) { return fill_register<__m256>(*p); }
static inline __m256d _mm256_broadcast_sd(const double* p) { return fill_register<__m256d>(*p); }
static inline __m512 _mm512_set1_ps(float x) { return fill_register<__m512>(x); }
struct __m128 : Register<16> {};
static inline __m128 _mm_load_ss(const float* p) {
  __m128 reg = {};
  memcpy(reg.bytes, p, 4);
  return reg;
}
static inline __m512 _mm512_mask_broadcastss_ps(__m512 source, unsigned mask, __m128 a) {
  for (int i = 0; i < 16; i++)
    if (mask >> i & 1) source.set(i, a.get<float>(0));
  return source;
}
static inline __m512 _mm512_maskz_loadu_ps(unsigned mask, const void* p) {
  __m512 reg = {};
  for (int i = 0; i < 16; i++)
    if (mask >> i & 1) memcpy(reg.bytes + 4 * i, (const char*)p + 4 * i, 4);
  return reg;
}
static inline __m512 _mm512_permute_ps(__m512 a, int control) {
  __m512 reg;
  for (int i = 0; i < 16; i++) reg.set(i, a.get<float>(i / 4 * 4 + (control >> i % 4 * 2 & 3)));
  return reg;
}
/* Lanes added by halves, as intrinsics/avx512-inner.ts does. */
static inline float sum_of_lanes(__m512 reg) {
  for (int lanes = 8; lanes > 0; lanes /= 2)
    for (int i = 0; i < lanes; i++) reg.set(i, reg.get<float>(i) + reg.get<float>(i + lanes));
  return reg.get<float>(0);
}
static inline __m512 broadcast_element(const float* element) { return fill_register<__m512>(*element); }
static inline __m512d _mm512_set1_pd(double x) { return fill_register<__m512d>(x); }
static inline __m512h _mm512_set1_ph(_Float16 x) { return fill_register<__m512h>(x); }
static inline __m128i _mm_loadu_si32(const void* p) {
  __m128i reg = {};
  memcpy(reg.bytes, p, 4);
  return reg;
}
static inline __m128i _mm_loadu_si16(const void* p) {
  __m128i reg = {};
  memcpy(reg.bytes, p, 2);
  return reg;
}
static inline __m128i _mm_broadcastw_epi16(__m128i r) { return fill_register<__m128i>(r.get<int16_t>(0)); }
static inline __m256i _mm256_broadcastd_epi32(__m128i r) { return fill_register<__m256i>(r.get<int32_t>(0)); }
static inline __m512i _mm512_broadcastd_epi32(__m128i r) { return fill_register<__m512i>(r.get<int32_t>(0)); }

/* ---- VPMOVZX, VPMOVSX, VPSLLD: 16 elements widened to 32 bits ---------------------------------------------------- */

template <class T, class R> static __m512i widen_lanes(R from) {
  __m512i reg;
  for (int i = 0; i < 16; i++) reg.set(i, (int32_t)from.template get<T>(i));
  return reg;
}
static inline __m512i _mm512_cvtepu8_epi32(__m128i r) { return widen_lanes<uint8_t>(r); }
static inline __m512i _mm512_cvtepi8_epi32(__m128i r) { return widen_lanes<int8_t>(r); }
static inline __m512 _mm512_cvtepi32_ps(__m512i r) {
  __m512 reg;
  for (int i = 0; i < 16; i++) reg.set(i, (float)r.get<int32_t>(i));
  return reg;
}
static inline __m128i _mm_loadl_epi64(const __m128i* p) {
  __m128i reg = {};
  memcpy(reg.bytes, (const void*)p, 8);
  return reg;
}
template <class T> static __m256i widen_half(__m128i from) {
  __m256i reg;
  for (int i = 0; i < 8; i++) reg.set(i, (int32_t)from.get<T>(i));
  return reg;
}
static inline __m256i _mm256_cvtepu8_epi32(__m128i r) { return widen_half<uint8_t>(r); }
static inline __m256i _mm256_cvtepi8_epi32(__m128i r) { return widen_half<int8_t>(r); }
static inline __m256 _mm256_cvtepi32_ps(__m256i r) {
  __m256 reg;
  for (int i = 0; i < 8; i++) reg.set(i, (float)r.get<int32_t>(i));
  return reg;
}

/* ---- numbers of half a byte, shifted to the low bits of a lane each, and what is made of them -------------------------- */

template <class R> static R shift_lanes(R r, R counts) {
  for (unsigned i = 0; i < sizeof r.bytes / 4; i++) {
    const uint32_t count = counts.template get<uint32_t>(i);
    r.set(i, count < 32 ? r.template get<uint32_t>(i) >> count : 0);
  }
  return r;
}
template <class R, class T, class... Rest> static R lanes_of(T first, Rest... rest) {
  const T values[] = {first, (T)rest...};
  return load_register<R>(values);
}
template <class... T> static __m512i _mm512_setr_epi32(T... lanes) { return lanes_of<__m512i>((int32_t)lanes...); }
template <class... T> static __m256i _mm256_setr_epi32(T... lanes) { return lanes_of<__m256i>((int32_t)lanes...); }
template <class... T> static __m512 _mm512_setr_ps(T... lanes) { return lanes_of<__m512>((float)lanes...); }
static inline __m512i _mm512_broadcastq_epi64(__m128i r) { return fill_register<__m512i>(r.get<int64_t>(0)); }
static inline __m512i _mm512_srlv_epi32(__m512i r, __m512i counts) { return shift_lanes(r, counts); }
static inline __m256i _mm256_srlv_epi32(__m256i r, __m256i counts) { return shift_lanes(r, counts); }
static inline __m256i _mm256_set1_epi32(int x) { return fill_register<__m256i>((int32_t)x); }
static inline __m256i _mm256_and_si256(__m256i a, __m256i b) {
  for (int i = 0; i < 32; i++) a.bytes[i] &= b.bytes[i];
  return a;
}
static inline __m512 _mm512_permutexvar_ps(__m512i places, __m512 table) {
  __m512 reg;
  for (int i = 0; i < 16; i++) reg.set(i, table.get<float>(places.get<int32_t>(i) & 15));
  return reg;
}
template <class R, class F> static R each_lane(R a, R b, F of) {
  for (unsigned i = 0; i < sizeof a.bytes / 4; i++) a.set(i, of(a.template get<float>(i), b.template get<float>(i)));
  return a;
}
static inline float sum(float a, float b) { return a + b; }
static inline float difference(float a, float b) { return a - b; }
static inline float product(float a, float b) { return a * b; }
static inline __m512 _mm512_add_ps(__m512 a, __m512 b) { return each_lane(a, b, sum); }
static inline __m512 _mm512_sub_ps(__m512 a, __m512 b) { return each_lane(a, b, difference); }
static inline __m512 _mm512_mul_ps(__m512 a, __m512 b) { return each_lane(a, b, product); }
static inline __m256 _mm256_add_ps(__m256 a, __m256 b) { return each_lane(a, b, sum); }
static inline __m256 _mm256_sub_ps(__m256 a, __m256 b) { return each_lane(a, b, difference); }
static inline __m256 _mm256_mul_ps(__m256 a, __m256 b) { return each_lane(a, b, product); }
static inline __m256 _mm256_set1_ps(float x) { return fill_register<__m256>(x); }

static inline __m512i _mm512_cvtepu16_epi32(__m256i r) { return widen_lanes<uint16_t>(r); }
static inline __m512i _mm512_slli_epi32(__m512i r, int count) {
  for (int i = 0; i < 16; i++) r.set(i, r.get<uint32_t>(i) << count);
  return r;
}
static inline __m512 _mm512_castsi512_ps(__m512i r) { return load_register<__m512>(r.bytes); }

/* ---- VFMADD: one rounding ---------------------------------------------------------------------------------------- */

static inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
static inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }
/* The product is exact in a double. The sum may be rounded twice, within the bound that the table states. */
static inline _Float16 multiply_add(_Float16 a, _Float16 b, _Float16 c) { return (_Float16)((double)a * (double)b + (double)c); }

template <class T, class R> static R multiply_add_lanes(R a, R b, R c) {
  R d;
  for (unsigned i = 0; i < sizeof d.bytes / sizeof(T); i++) d.set(i, multiply_add(a.template get<T>(i), b.template get<T>(i), c.template get<T>(i)));
  return d;
}
static inline __m256 _mm256_fmadd_ps(__m256 a, __m256 b, __m256 c) { return multiply_add_lanes<float>(a, b, c); }
static inline __m256d _mm256_fmadd_pd(__m256d a, __m256d b, __m256d c) { return multiply_add_lanes<double>(a, b, c); }
static inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) { return multiply_add_lanes<float>(a, b, c); }
static inline __m512 add_product(__m512 c, __m512 a, __m512 b) { return multiply_add_lanes<float>(a, b, c); }
static inline __m512 add_products(__m512 c, __m512 a, __m512 b) { return add_product(c, a, b); }
static inline __m512d _mm512_fmadd_pd(__m512d a, __m512d b, __m512d c) { return multiply_add_lanes<double>(a, b, c); }
static inline __m512h _mm512_fmadd_ph(__m512h a, __m512h b, __m512h c) { return multiply_add_lanes<_Float16>(a, b, c); }

/* ---- VPDPBUSD, VPDPBUSDS ----------------------------------------------------------------------------------------- */

template <class R> static R byte_dot_products(R c, R a, R b, bool saturate) {
  for (unsigned lane = 0; lane < sizeof c.bytes / 4; lane++) {
    int64_t sum = c.template get<int32_t>(lane);
    for (unsigned j = 4 * lane; j < 4 * lane + 4; j++) sum += (int64_t)a.template get<uint8_t>(j) * b.template get<int8_t>(j);
    if (saturate) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    c.set(lane, (uint32_t)sum);
  }
  return c;
}
static inline __m256i _mm256_dpbusd_epi32(__m256i c, __m256i a, __m256i b) { return byte_dot_products(c, a, b, false); }
static inline __m256i _mm256_dpbusd_avx_epi32(__m256i c, __m256i a, __m256i b) { return byte_dot_products(c, a, b, false); }
static inline __m256i _mm256_dpbusds_avx_epi32(__m256i c, __m256i a, __m256i b) { return byte_dot_products(c, a, b, true); }
static inline __m512i dot_bytes(__m512i c, __m512i a, __m512i b) { return byte_dot_products(c, a, b, false); }
static inline __m512i dot_bytes_saturating(__m512i c, __m512i a, __m512i b) { return byte_dot_products(c, a, b, true); }

/* ---- VPDPWSSD ---------------------------------------------------------------------------------------------------- */

static inline __m512i dot_words(__m512i c, __m512i a, __m512i b) {
  for (int lane = 0; lane < 16; lane++) {
    int64_t sum = c.get<int32_t>(lane);
    for (int j = 2 * lane; j < 2 * lane + 2; j++) sum += (int64_t)a.get<int16_t>(j) * b.get<int16_t>(j);
    c.set(lane, (uint32_t)sum);
  }
  return c;
}

/* ---- dot products of signed bytes, as intrinsics/signed-bytes.ts writes them ---------------------------------------- */

/* a * b = (a + 128) * b - 128 * b; sums wrap. */
template <class R> static R moved_dot_products(R c, R a, R b) {
  R raised;
  for (unsigned i = 0; i < sizeof raised.bytes; i++) raised.bytes[i] = a.bytes[i] ^ 0x80;
  R extra = byte_dot_products(fill_register<R>(0), fill_register<R>((uint8_t)0x80), b, false);
  R sums = byte_dot_products(c, raised, b, false);
  for (unsigned i = 0; i < sizeof sums.bytes / 4; i++) sums.set(i, sums.template get<uint32_t>(i) - extra.template get<uint32_t>(i));
  return sums;
}
static inline __m512i dot_signed_bytes(__m512i c, __m512i a, __m512i b) { return moved_dot_products(c, a, b); }
static inline __m256i dot_signed_bytes(__m256i c, __m256i a, __m256i b) { return moved_dot_products(c, a, b); }

/* Dot products of 32 bytes, scaled, as intrinsics/avx512-dot.ts writes them. */
struct eight_vectors { __m512i at[8]; };
static inline eight_vectors load_eight(const void* from) {
  eight_vectors all;
  for (int i = 0; i < 8; i++) all.at[i] = _mm512_loadu_si512((const char*)from + 64 * i);
  return all;
}
static inline __m512 add_scaled_dots(__m512 c, const void* a, const eight_vectors& b, __m512 s, __m512 t) {
  __m512i sum = fill_register<__m512i>(0);
  for (int i = 0; i < 8; i++) {
    uint32_t four;
    memcpy(&four, (const char*)a + 4 * i, sizeof four);
    sum = moved_dot_products(sum, b.at[i], fill_register<__m512i>(four));
  }
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(s, t), c);
}

/* VPMOVSXBW, VPMADDWD. */
static inline __m256i dot_signed_bytes(__m256i c, __m128i a, __m128i b) {
  for (int i = 0; i < 16; i++) c.set(i / 2, c.get<uint32_t>(i / 2) + (uint32_t)((int32_t)a.get<int8_t>(i) * b.get<int8_t>(i)));
  return c;
}

/* ---- bf16: subnormal inputs and results are zero ----------------------------------------------------------------- */

static inline float flushed(float x) { return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x; }
static inline float bf16_value(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return flushed(value);
}
static inline float bf16_multiply_add(float c, uint16_t a, uint16_t b) {
  return flushed(fmaf(bf16_value(a), bf16_value(b), flushed(c)));
}

/* VDPBF16PS: the odd element first. */
template <class Sums, class Pairs> static Sums dot_bf16(Sums c, Pairs a, Pairs b) {
  for (int i = 0; i < (int)sizeof c.bytes / 4; i++) {
    float sum = c.template get<float>(i);
    sum = bf16_multiply_add(sum, a.template get<uint16_t>(2 * i + 1), b.template get<uint16_t>(2 * i + 1));
    sum = bf16_multiply_add(sum, a.template get<uint16_t>(2 * i), b.template get<uint16_t>(2 * i));
    c.set(i, sum);
  }
  return c;
}
static inline __m256 _mm256_dpbf16_ps(__m256 c, __m256bh a, __m256bh b) { return dot_bf16(c, a, b); }
static inline __m512 _mm512_dpbf16_ps(__m512 c, __m512bh a, __m512bh b) { return dot_bf16(c, a, b); }

/* ---- AMX: eight tiles of 16 rows of 64 bytes --------------------------------------------------------------------- */

static Register<1024> tiles[8];
static inline void amx_begin(void) { memset(tiles, 0, sizeof tiles); }
static inline void _tile_zero(int t) { memset(tiles[t].bytes, 0, 1024); }
static inline void _tile_loadd(int t, const void* base, long stride) {
  for (int row = 0; row < 16; row++) memcpy(tiles[t].bytes + 64 * row, (const char*)base + row * stride, 64);
}
static inline void _tile_stored(int t, void* base, long stride) {
  for (int row = 0; row < 16; row++) memcpy((char*)base + row * stride, tiles[t].bytes + 64 * row, 64);
}

/* TDPBxxD: dword k of row m of `a` times dword n of row k of `b`. */
template <class A, class B> static void tile_byte_product(int c, int a, int b) {
  for (int m = 0; m < 16; m++)
    for (int k = 0; k < 16; k++)
      for (int n = 0; n < 16; n++) {
        uint32_t sum = tiles[c].get<uint32_t>(16 * m + n);
        for (int j = 0; j < 4; j++)
          sum += (uint32_t)((int32_t)tiles[a].get<A>(64 * m + 4 * k + j) * (int32_t)tiles[b].get<B>(64 * k + 4 * n + j));
        tiles[c].set(16 * m + n, sum);
      }
}
static inline void _tile_dpbssd(int c, int a, int b) { tile_byte_product<int8_t, int8_t>(c, a, b); }
static inline void _tile_dpbsud(int c, int a, int b) { tile_byte_product<int8_t, uint8_t>(c, a, b); }
static inline void _tile_dpbusd(int c, int a, int b) { tile_byte_product<uint8_t, int8_t>(c, a, b); }
static inline void _tile_dpbuud(int c, int a, int b) { tile_byte_product<uint8_t, uint8_t>(c, a, b); }

/* TDPBF16PS: even and odd k are summed separately, then together, then added to the tile. */
static inline void _tile_dpbf16ps(int c, int a, int b) {
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      float even = 0, odd = 0;
      for (int k = 0; k < 16; k++) {
        even = bf16_multiply_add(even, tiles[a].get<uint16_t>(32 * m + 2 * k), tiles[b].get<uint16_t>(32 * k + 2 * n));
        odd = bf16_multiply_add(odd, tiles[a].get<uint16_t>(32 * m + 2 * k + 1), tiles[b].get<uint16_t>(32 * k + 2 * n + 1));
      }
      float sum = flushed(even + odd);
      tiles[c].set(16 * m + n, flushed(flushed(tiles[c].get<float>(16 * m + n)) + sum));
    }
}

#endif
