/*
 * Runs rows of the intrinsics table on prepared operands and compares the results with their equations.
 *
 *     ./program data [first row]        one line a row: {"intrinsic": "avx512.vpdpbusd", "status": "ok", "cases": 9}
 *
 * A row works in a frame of memory. It loads each operand from a tile (and stores the result to one), and records the
 * register's contents after the load in an image. `runtime/conformance.ts` writes the data:
 *
 *     row    cases, frame bytes, target's type, dimensions, results; per operand the places of its tile and image, and
 *            the tile element of each register element; the place in the target's tile of each result; of a product
 *            of floats of one byte, k, the fraction bits of its sums, and for each factor its type and the places of
 *            its elements, else k 0
 *     case   its name, every tile's bytes, the expected results and, unless they must be exact, a bound for each
 */
#ifndef AUTOMAP_CONFORMANCE_H
#define AUTOMAP_CONFORMANCE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGE_HEADER = 64, IMAGE_BYTES = 4096 };

#if defined(__CUDACC__) || defined(AUTOMAP_EMULATED_CUDA)

/* Records the parts of 32 lanes: their size, then lane 0's bytes, lane 1's ... */
static __device__ inline void record_lane(unsigned char* image, const void* reg, unsigned bytes) {
  unsigned lane = threadIdx.x % 32;
  if (lane == 0) *(unsigned*)image = 32 * bytes;
  for (unsigned i = 0; i < bytes && 32 * bytes <= IMAGE_BYTES; i++)
    image[IMAGE_HEADER + lane * bytes + i] = ((const unsigned char*)reg)[i];
}

/* Records one thread's variable: its size, then its bytes. */
static __device__ inline void record(unsigned char* image, const void* reg, unsigned bytes) {
  *(unsigned*)image = bytes;
  for (unsigned i = 0; i < bytes && bytes <= IMAGE_BYTES; i++) image[IMAGE_HEADER + i] = ((const unsigned char*)reg)[i];
}

#else

/* Records a register: its size, then its bytes. */
static inline void record(unsigned char* image, const void* reg, unsigned bytes) {
  memcpy(image, &bytes, sizeof bytes);
  memcpy(image + IMAGE_HEADER, reg, bytes < IMAGE_BYTES ? bytes : IMAGE_BYTES);
}

#ifdef AUTOMAP_EMULATED_LANES
/* Records the lanes of a sub-group: component by component, each lane by lane. */
static inline void record_rows(unsigned char* image, const void* reg, unsigned bytes, unsigned component) {
  const unsigned size = bytes * emulation::lanes;
  if (emulation::lane == 0) memcpy(image, &size, sizeof size);
  for (unsigned r = 0; r < bytes / component && size <= IMAGE_BYTES; r++)
    memcpy(image + IMAGE_HEADER + (r * emulation::lanes + emulation::lane) * component, (const char*)reg + r * component, component);
}
#endif

/* An AMX tile register, all of it. */
#define record_tile(image, tile)                   \
  do {                                             \
    unsigned bytes = 1024;                         \
    memcpy(image, &bytes, sizeof bytes);           \
    _tile_stored(tile, (image) + IMAGE_HEADER, 64); \
  } while (0)

#endif

struct Row {
  const char* name;
  void (*run)(unsigned char* frame);
  int threads; /* that issue it together */
};

/* Runs one row on its frame. Returns an error message or null. Defined by the program. */
static const char* run_row(const Row& row, unsigned char* frame, unsigned bytes);

struct Cursor {
  const unsigned char* at;
  template <class T> T next() {
    T value;
    memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  }
  const unsigned char* skip(size_t bytes) {
    const unsigned char* from = at;
    at += bytes;
    return from;
  }
};

static double half_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 0    ? ldexp(fraction, -24)
                     : exponent == 31 ? (fraction ? NAN : INFINITY)
                                      : ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

/* An element of a type, numbered as in DTYPES of abstraction/dtype.ts. */
static double element(const unsigned char* tile, int place, int dtype) {
  enum { U8, S8, U16, S16, U32, S32, E4M3, E5M2, F16, BF16, TF32, F32, F64 };
  Cursor from = {tile};
  switch (dtype) {
    case U8: from.skip(place); return from.next<uint8_t>();
    case S8: from.skip(place); return from.next<int8_t>();
    case U16: from.skip(2 * place); return from.next<uint16_t>();
    case S16: from.skip(2 * place); return from.next<int16_t>();
    case U32: from.skip(4 * place); return from.next<uint32_t>();
    case S32: from.skip(4 * place); return from.next<int32_t>();
    case E4M3: {
      from.skip(place);
      const uint8_t bits = from.next<uint8_t>();
      const double size = (bits & 0x7f) == 0x7f ? NAN : 256 * half_value((uint16_t)((bits & 0x7f) << 7));
      return bits & 0x80 ? -size : size;
    }
    case E5M2: from.skip(place); return half_value((uint16_t)(from.next<uint8_t>() << 8));
    case F16: from.skip(2 * place); return half_value(from.next<uint16_t>());
    case BF16: {
      from.skip(2 * place);
      uint32_t bits = (uint32_t)from.next<uint16_t>() << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      return value;
    }
    case TF32:
    case F32: from.skip(4 * place); return from.next<float>();
    case F64: from.skip(8 * place); return from.next<double>();
    default: return NAN;
  }
}

struct OperandPlan {
  int tile_at, tile_bytes, image_at, element_bytes, register_elements;
  char name[16];
  const unsigned char* map; /* int32 for each register element: the tile element it must equal, or -1 */
};

/* Prints the index of a result, as `[1,3]`. */
static void print_index(char* to, size_t size, int flat, const int* dims, int rank) {
  int digits[8] = {0};
  for (int d = rank - 1; d >= 0; d--) digits[d] = flat % dims[d], flat /= dims[d];
  size_t used = snprintf(to, size, "[");
  for (int d = 0; d < rank; d++) used += snprintf(to + used, size - used, d ? ",%d" : "%d", digits[d]);
  snprintf(to + used, size - used, "]");
}

/* A factor of a row whose products are all tried: its type, and the places of its elements, those along the first axis outermost. */
struct Factor {
  int dtype;
  const unsigned char* places;
  int place(int i) const { return Cursor{places + 4 * (size_t)i}.next<int>(); }
};

/* All products of two floats of one byte: m by n of them in an issue, each beside zeros. The first that is not exact is described in `detail`. */
static bool check_products(const Row& row, const OperandPlan* plans, const Factor* factors, const unsigned char* results, const int* dims,
                           int k, int dtype, unsigned char* frame, int frame_bytes, char* detail, size_t size) {
  const int m = dims[0], n = dims[1];
  unsigned char *a = frame + plans[1].tile_at, *b = frame + plans[2].tile_at;
  for (int first = 0, issues = 0; first < 256; first += m)
    for (int second = 0; second < 256; second += n, issues++) {
      memset(frame, 0, frame_bytes);
      for (int i = 0; i < m; i++) a[factors[0].place(i * k + issues % k)] = (unsigned char)(first + i);
      for (int j = 0; j < n; j++) b[factors[1].place(issues % k * n + j)] = (unsigned char)(second + j);
      if (const char* error = run_row(row, frame, frame_bytes)) {
        snprintf(detail, size, "products: %s", error);
        return false;
      }
      Cursor place = {results};
      for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
          const unsigned char x = (unsigned char)(first + i), y = (unsigned char)(second + j);
          const double is = element(frame + plans[0].tile_at, place.next<int>(), dtype);
          const double should = element(&x, 0, factors[0].dtype) * element(&y, 0, factors[1].dtype);
          if (is == should || (is != is && should != should)) continue;
          snprintf(detail, size, "the product of the bytes %d and %d is %.17g, its equation gives %.17g", x, y, is, should);
          return false;
        }
    }
  return true;
}

/* The byte of a power of two. */
static unsigned char power_of_two(const Factor& factor, int power) {
  for (int i = 0; i < 256; i++) {
    const unsigned char bits = (unsigned char)i;
    if (element(&bits, 0, factor.dtype) == ldexp(1, power)) return bits;
  }
  return 0;
}

/* Fraction bits with which the row adds: how much smaller than the larger of two products the smaller may be without being cut off. */
static int kept_bits(const Row& row, const OperandPlan* plans, const Factor* factors, const unsigned char* results, int n, int k, int dtype,
                     unsigned char* frame, int frame_bytes) {
  const int large = 7, most = 23;
  const int second = k > 1 ? 1 : 0;
  for (int bits = 1; bits <= most; bits++) {
    memset(frame, 0, frame_bytes);
    unsigned char *a = frame + plans[1].tile_at, *b = frame + plans[2].tile_at;
    a[factors[0].place(0)] = power_of_two(factors[0], large);
    b[factors[1].place(0)] = power_of_two(factors[1], large);
    a[factors[0].place(second)] = power_of_two(factors[0], large - bits / 2);
    b[factors[1].place(second * n)] = power_of_two(factors[1], large - bits + bits / 2);
    run_row(row, frame, frame_bytes);
    const double is = element(frame + plans[0].tile_at, Cursor{results}.next<int>(), dtype);
    if (is != ldexp(1, 2 * large) + ldexp(1, 2 * large - bits)) return bits - 1;
  }
  return most;
}

/* Reads a row's cases, and runs them if `run`. Returns false at the first disagreement, described in `detail`. */
static bool check_row(Cursor& data, const Row& row, bool run, int* cases, int* kept, char* detail, size_t size) {
  *cases = data.next<int>();
  int frame_bytes = data.next<int>(), dtype = data.next<int>(), rank = data.next<int>(), dims[8] = {0};
  for (int d = 0; d < rank; d++) dims[d] = data.next<int>();
  int results = data.next<int>(), operands = data.next<int>();
  OperandPlan plans[8];
  for (int o = 0; o < operands; o++) {
    OperandPlan& p = plans[o];
    memcpy(p.name, data.skip(16), 16);
    p.tile_at = data.next<int>(), p.tile_bytes = data.next<int>(), p.image_at = data.next<int>();
    p.element_bytes = data.next<int>(), p.register_elements = data.next<int>();
    p.map = data.skip(4 * (size_t)p.register_elements);
  }
  const unsigned char* places = data.skip(4 * (size_t)results);
  const int k = data.next<int>(), sum_bits = k > 0 ? data.next<int>() : 0;
  Factor factors[2];
  for (int f = 0; f < 2 && k > 0; f++) {
    factors[f].dtype = data.next<int>();
    factors[f].places = data.skip(4 * (size_t)k * dims[f]);
  }

  unsigned char* frame = run ? (unsigned char*)aligned_alloc(64, frame_bytes) : nullptr;
  bool agrees = true;
  for (int c = 0; c < *cases; c++) {
    char label[32];
    memcpy(label, data.skip(32), 32);
    const unsigned char* tiles[8];
    for (int o = 0; o < operands; o++) tiles[o] = data.skip(plans[o].tile_bytes);
    const unsigned char* expected = data.skip(8 * (size_t)results);
    bool exact = data.next<int>() != 0;
    const unsigned char* bounds = exact ? nullptr : data.skip(8 * (size_t)results);
    if (!run || !agrees) continue;

    // 1. Put the tiles in place, poison everything else, and run.
    memset(frame, 0xA5, frame_bytes);
    for (int o = 0; o < operands; o++) memcpy(frame + plans[o].tile_at, tiles[o], plans[o].tile_bytes);
    if (const char* error = run_row(row, frame, frame_bytes)) {
      snprintf(detail, size, "%s: %s", label, error);
      agrees = false;
      continue;
    }

    // 2. Every register must have held what its storage formula says.
    for (int o = 0; o < operands && agrees; o++) {
      const OperandPlan& p = plans[o];
      if (p.register_elements == 0) continue;
      unsigned held = Cursor{frame + p.image_at}.next<unsigned>();
      unsigned said = p.register_elements * p.element_bytes;
      if (held != said) {
        snprintf(detail, size, "%s: the register of %s holds %u bytes, its storage names %u", label, p.name, held, said);
        agrees = false;
      }
      Cursor map = {p.map};
      for (int e = 0; e < p.register_elements && agrees; e++) {
        int from = map.next<int>();
        const unsigned char* in_register = frame + p.image_at + IMAGE_HEADER + e * p.element_bytes;
        if (from < 0 || memcmp(in_register, tiles[o] + from * p.element_bytes, p.element_bytes) == 0) continue;
        snprintf(detail, size, "%s: register element %d of %s is not element %d of its tile, as its storage says", label, e, p.name, from);
        agrees = false;
      }
    }

    // 3. Every result must equal the equation's.
    Cursor place = {places}, want = {expected}, bound = {bounds};
    for (int i = 0; i < results && agrees; i++) {
      double is = element(frame + plans[0].tile_at, place.next<int>(), dtype);
      double should = want.next<double>(), by = exact ? 0 : bound.next<double>();
      if (fabs(is - should) <= by) continue; /* also refuses NaN */
      char index[64];
      print_index(index, sizeof index, i, dims, rank);
      if (exact) snprintf(detail, size, "%s: %s%s is %.17g, its equation gives %.17g", label, plans[0].name, index, is, should);
      else
        snprintf(detail, size, "%s: %s%s is %.9g, its equation gives %.9g within %.2g", label, plans[0].name, index, is, should, by);
      agrees = false;
    }
  }
  if (run && agrees && k > 0) agrees = check_products(row, plans, factors, places, dims, k, dtype, frame, frame_bytes, detail, size);
  if (run && agrees && k > 0) {
    *kept = kept_bits(row, plans, factors, places, dims[1], k, dtype, frame, frame_bytes);
    if (*kept < sum_bits) agrees = false, snprintf(detail, size, "it adds with %d bits of fraction, and is said to add with %d", *kept, sum_bits);
  }
  free(frame);
  return agrees;
}

static int check_rows(const Row* rows, int count, const unsigned char* data, int first) {
  Cursor cursor = {data};
  for (int r = 0; r < count; r++) {
    char detail[256] = "";
    char bits[32] = "";
    int cases = 0, kept = 0;
    bool agrees = check_row(cursor, rows[r], r >= first, &cases, &kept, detail, sizeof detail);
    if (r < first) continue;
    if (kept > 0) snprintf(bits, sizeof bits, ", \"sumBits\": %d", kept);
    printf("{\"intrinsic\": \"%s\", \"status\": \"%s\", \"cases\": %d%s%s%s%s}\n", rows[r].name, agrees ? "ok" : "differs", cases, bits,
           agrees ? "" : ", \"detail\": \"", detail, agrees ? "" : "\"");
    fflush(stdout);
  }
  return 0;
}

#ifndef __CUDACC__ /* a program for a GPU holds its data */
/* Reads a whole file; exits if it cannot. */
static unsigned char* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(2);
  }
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  unsigned char* bytes = (unsigned char*)malloc(size);
  if (fread(bytes, 1, size, file) != (size_t)size) {
    perror(path);
    exit(2);
  }
  fclose(file);
  return bytes;
}
#endif

#endif
