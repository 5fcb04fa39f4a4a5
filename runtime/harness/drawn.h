/*
 * Inputs drawn from a counter, so that threads can share the work, and files mapped into memory. Needs arithmetic.h.
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Elements in their storage format; the interpreter's numbers have the same values. */
template <class T> struct Plain {
  T* data = nullptr;
  T operator[](Int at) const { return data[at]; }
  template <class V> void set(Int at, V value) { data[at] = T(value); }
};

/* Sums, each moved by a distance: the ends of what they may be. */
template <class T> struct Moved {
  const T* data = nullptr;
  double by = 0;
  double operator[](Int at) const { return double(data[at]) + by; }
};

/* One sum of plain loops, where it belongs among the others, and what it starts from. */
template <class T> struct Single {
  T begun = 0, value = 0;
  Int at = -1;
  T operator[](Int) const { return begun; }
  template <class V> void set(Int place, V sum) { at = place, value = T(sum); }
  void compare(const T* sums) const {
    if (at < 0 || sums[at] == value || (sums[at] != sums[at] && value != value)) return;
    fprintf(stderr, "sum %lld is %.17g, and %.17g by plain loops\n", (long long)at, double(sums[at]), double(value));
    exit(1);
  }
};

[[noreturn]] inline void end_with(const char* what, int error) {
  errno = error;
  perror(what);
  exit(1);
}

template <class T> T* zeros(size_t count) {
  auto* memory = static_cast<T*>(calloc(count, sizeof(T)));
  if (!memory) end_with("planes", ENOMEM);
  return memory;
}

/* Maps a new file of `count` zero elements. Allocates it, so that a full disk is an error here, not a fault later. */
template <class T> T* mapped(const char* path, size_t count) {
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) end_with(path, errno);
  if (const int error = posix_fallocate(file, 0, count * sizeof(T))) end_with(path, error);
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) end_with(path, errno);
  close(file);
  return static_cast<T*>(memory);
}

/* Maps an existing file. */
template <class T> T* given(const char* path, size_t count) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) end_with(path, errno);
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ, MAP_PRIVATE, file, 0);
  if (memory == MAP_FAILED) end_with(path, errno);
  close(file);
  return static_cast<T*>(memory);
}

/* Calls `each(first, last)` on parts of 0 to extent, shared among threads. */
template <class Each> void in_parts(int threads, Int extent, Each each) {
  struct Part {
    Each* each;
    Int first, last;
    pthread_t thread;
  };
  threads = threads < 1 ? 1 : threads > extent ? int(extent) : threads;
  auto* parts = zeros<Part>(threads);
  auto work = [](void* given) -> void* {
    auto* part = static_cast<Part*>(given);
    (*part->each)(part->first, part->last);
    return nullptr;
  };
  for (int i = 0; i < threads; i++) {
    parts[i] = {&each, i * extent / threads, (i + 1) * extent / threads, {}};
    if (const int error = pthread_create(&parts[i].thread, nullptr, work, &parts[i])) end_with("threads", error);
  }
  for (int i = 0; i < threads; i++) pthread_join(parts[i].thread, nullptr);
  free(parts);
}

/* Every result bit depends on every input bit (lowbias32; Chris Wellons, Hash Prospector, public domain). */
inline uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

/* An index for the i-th sample: the first, the last, or any. */
inline Int sampled(Int i, int d, Int extent) {
  const uint32_t bits = mixed(mixed(uint32_t(i)) + d);
  return (bits & 7) == 0 ? 0 : (bits & 7) == 1 ? extent - 1 : Int(uint64_t(mixed(bits)) * extent >> 32);
}

/*
 *            floats                                      integers
 * exact      whole numbers from -large to large, 1 to 3      the same, unsigned ones from 0
 * random     between -1 and 1                            of the whole range
 * extreme    of very unequal size, up to `large`         mostly the largest or the smallest
 */
enum Set { EXACT, RANDOM, EXTREME };

/* Calls `put(i, value)` for the elements of a part. */
template <class T, class Put> void draw_each(Int first, Int last, Set set, uint32_t key, double large, Put put) {
  /* The counter has only 32 bits, so each block of 2^16 has its own key. */
  for (Int begin = first; begin < last;) {
    const Int end = (begin | 0xffff) + 1 < last ? (begin | 0xffff) + 1 : last;
    const uint32_t own = mixed(key + uint32_t(begin >> 16) * 0x9e3779b9u);
    if constexpr (T(0.5) == T(0)) {
      constexpr int spare = 32 - 8 * int(sizeof(T));
      constexpr bool is_signed = T(-1) < T(0);
      constexpr T most = T((1ull << (8 * sizeof(T) - is_signed)) - 1), least = is_signed ? T(-Int(most) - 1) : T(0);
      /* Two neighbours of the largest value saturate a sum of two products. */
      const T ends[] = {most, most, most, most, least, least, least, T(most - 1), T(least + 1), T(1)};
      const int whole = int(large), values = 2 * whole + 1;
      const auto small = [=](uint32_t bits) { return int((bits >> 16) * values >> 16) - whole; };
      if (set == EXACT)
        for (Int i = begin; i < end; i++) {
          const int value = small(mixed(own + uint32_t(i)));
          put(i, T(is_signed || value > 0 ? value : 0));
        }
      else if (set == RANDOM)
        for (Int i = begin; i < end; i++) put(i, T(mixed(own + uint32_t(i)) >> spare));
      else
        for (Int i = begin; i < end; i++) put(i, ends[(mixed(own + uint32_t(i)) >> 16) * 10 >> 16]);
      begin = end;
      continue;
    }
    const T most = T(large);
    const int whole = int(large), values = 2 * whole + 1;
    if (set == EXACT)
      for (Int i = begin; i < end; i++) put(i, T(int((mixed(own + uint32_t(i)) >> 16) * values >> 16) - whole));
    else if (set == RANDOM)
      for (Int i = begin; i < end; i++) put(i, T(int(mixed(own + uint32_t(i)) >> 7) - (1 << 24)) * T(0x1p-24));
    else
      for (Int i = begin; i < end; i++) {
        const uint32_t bits = mixed(own + uint32_t(i)), pick = (bits & 0xff) * 5 >> 8;
        const T size = pick < 2 ? most : pick < 3 ? T(1) : pick < 4 ? T(0x1p-6) : T(0);
        put(i, (bits & 0x100 ? -size : size) * (T(0.5) + T(int(bits >> 9)) * T(0x1p-24)));
      }
    begin = end;
  }
}

template <class T> void draw(T* to, Int first, Int last, Set set, uint32_t key, double large) {
  draw_each<T>(first, last, set, key, large, [=](Int i, T value) { to[i] = value; });
}

inline float float_of(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t bits_of(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Floats of 16 bits as they are stored. The values are those of the type, rounded before. */
inline float decoded(bf16, uint16_t bits) { return float_of(uint32_t(bits) << 16); }
inline uint16_t encoded(bf16, float value) { return uint16_t(bits_of(value) >> 16); }
inline double largest(bf16) { return 0x1.fep127; }

inline float decoded(f16, uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 0) return (sign ? -1 : 1) * float(fraction) * 0x1p-24f;
  return float_of(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}
inline uint16_t encoded(f16, float value) {
  const uint32_t wide = bits_of(value), sign = wide >> 16 & 0x8000, exponent = wide >> 23 & 255;
  if (exponent == 255) return uint16_t(sign | 0x7c00 | (value != value ? 0x200 : 0));
  if (exponent < 113) return uint16_t(sign | uint32_t(__builtin_fabsf(value) * 0x1p24f));
  return uint16_t(sign | (exponent - 112) << 10 | (wide >> 13 & 1023));
}
inline double largest(f16) { return 65504; }

/* Elements as they are stored, as numbers. */
template <class F, class T> struct Coded {
  const T* data = nullptr;
  float operator[](Int at) const { return decoded(F{}, data[at]); }
};

/* Floats of one byte. */
template <int F, int E, int most, bool I> float decoded(ByteFloat<F, E, most, I>, uint8_t bits) {
  return float(ByteFloat<F, E, most, I>::decoded(bits));
}
template <int F, int E, int most, bool I> uint8_t encoded(ByteFloat<F, E, most, I>, float value) {
  return ByteFloat<F, E, most, I>::encoded(value);
}
template <int F, int E, int most, bool I> double largest(ByteFloat<F, E, most, I>) { return most; }

/* Wider floats are stored as they are. */
inline float encoded(tf32, float value) { return value; }
inline double largest(tf32) { return 0x1.ffcp127; }
inline float encoded(f32, float value) { return value; }
inline double largest(f32) { return 0x1.fffffep127; }
inline double encoded(f64, double value) { return value; }
inline double largest(f64) { return 0x1.fffffffffffffp1023; }

/* For types with fewer fraction bits than their elements are drawn with. */
template <class F, class T> void draw_rounded(F kind, T* to, Int first, Int last, Set set, uint32_t key, double large) {
  const double most = large < largest(kind) ? large : largest(kind);
  draw_each<float>(first, last, set, key, most, [=](Int i, float value) { to[i] = encoded(kind, float(F::wrap(double(value)))); });
}

/* What an epilogue does with an input, which decides how large it is drawn. */
enum Role { TERM, FACTOR, DIVISOR };

/* Draws an input of an epilogue such that the results cover `aim`: sums times `ratio` are about as large. */
template <class F, class T>
void draw_beside(F kind, T* to, Int first, Int last, Set set, uint32_t key, Role role, double aim, double ratio) {
  for (Int i = first; i < last; i++) {
    const uint32_t bits = mixed(mixed(key + uint32_t(i >> 16) * 0x9e3779b9u) + uint32_t(i));
    const double unit = double(mixed(bits ^ 0x9e3779b9u)) * 0x1p-32;
    const double factor = (bits & 7 ? 1 : -1) * (0.25 + 1.5 * unit);
    const double value = role == DIVISOR ? factor / ratio : role == FACTOR ? factor * ratio : (2 * unit - 1) * aim;
    if constexpr (F::integer) {
      const Int whole = F::saturate(round_even(value)), end = bits & 8 ? F::most : F::least;
      to[i] = T(set == EXTREME && (bits >> 4 & 3) == 0 ? end : whole ? whole : 1);
    } else {
      const double most = largest(kind);
      to[i] = encoded(kind, F::wrap(value < -most ? -most : value > most ? most : value));
    }
  }
}

/* The root mean square of a sample; 1 if all are 0. */
template <class T> double spread_of(const T* sums, Int count) {
  const Int step = count / 65536 + 1;
  double total = 0, taken = 0;
  for (Int i = 0; i < count; i += step) total += double(sums[i]) * double(sums[i]), taken++;
  return total > 0 ? __builtin_sqrt(total / taken) : 1;
}

/* The largest difference; not a number if one of them is. */
template <class T> double furthest(const T* a, const T* b, Int count) {
  double most = 0;
  for (Int i = 0; i < count; i++) {
    const double apart = __builtin_fabs(double(a[i]) - double(b[i]));
    most = apart > most || is_nan(apart) ? apart : most;
  }
  return most;
}

/*
 * Reports least and greatest value and whether all are finite, which shows whether wrong answers can be detected; and how
 * far off a right answer may be, of the equation and of a form of it.
 */
template <class T> void report(const T* values, Int count, double within, double looser) {
  T least = values[0], most = values[0];
  bool finite = true;
  for (Int i = 0; i < count; i++) {
    least = values[i] < least ? values[i] : least;
    most = values[i] > most ? values[i] : most;
    finite &= values[i] - values[i] == 0;
  }
  printf("%.17g %.17g %d %.17g %.17g\n", double(least), double(most), int(finite), within, looser);
}
