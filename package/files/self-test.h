/* Data and memory of a self-test: numbers from a seed, buffers that end at a page nobody may touch. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* exact: small integers, whose float sums are exact in any order, so that a lost term shows. random: integers of the whole range,
   fractions between -1 and 1. extreme: the ends of integer types, which make instructions saturate; floats of very unequal size. */
enum Data { EXACT, RANDOM, EXTREME };
static const char* const DATA_NAMES[] = {"exact", "random", "extreme"};

/* splitmix64 */
static uint64_t random_state = 1;
static uint64_t random_bits() {
  uint64_t z = random_state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static double fraction() { return double(random_bits() >> 11) * 0x1p-53; }
static Int between(Int least, Int most) { return least + Int(random_bits() % uint64_t(most - least + 1)); }
static double sign() { return random_bits() & 1 ? 1 : -1; }

template <int bits, int least> double largest(Float<bits, least>) { return (2 - __builtin_ldexp(1, -bits)) * __builtin_ldexp(1, 1 - least); }
template <int bits, int least> constexpr int fraction_bits(Float<bits, least>) { return bits; }
template <int bits, int least, int most, bool infinite> double largest(ByteFloat<bits, least, most, infinite>) { return most; }
template <int bits, int least, int most, bool infinite> constexpr int fraction_bits(ByteFloat<bits, least, most, infinite>) { return bits; }

/* An input. `large` bounds floats of the extreme set, so that their sums stay finite. */
template <class F> auto draw(Data data, double large) {
  if constexpr (F::integer) {
    if (data == EXACT) return between(F::least < 0 ? -3 : 0, 3);
    if (data == RANDOM) return between(F::least, F::most);
    const Int ends[] = {F::most, F::most, F::most, F::most, F::least, F::least, F::least, F::most - 1, F::least + 1, 1};
    return ends[random_bits() % 10];
  } else {
    const int small = fraction_bits(F()) < 12 ? 1 : 3;
    if (data == EXACT) return double(between(-small, small));
    if (data == RANDOM) return F::wrap(2 * fraction() - 1);
    const double sizes[] = {large, large, 1, 0x1p-6, 0};
    double size = sizes[random_bits() % 5] * (0.5 + fraction() / 2);
    return F::wrap(sign() * (size < largest(F()) ? size : largest(F())));
  }
}

/* An input of an epilogue, of such a size that the output takes all its values. */
template <class F> auto draw_beside(Data data, double aim, double ratio, bool factor, bool divisor) {
  double near = (random_bits() % 8 ? 1 : -1) * (0.25 + 1.5 * fraction());
  double value = divisor ? near / ratio : factor ? near * ratio : (2 * fraction() - 1) * aim;
  if constexpr (F::integer) {
    if (data == EXTREME && random_bits() % 4 == 0) return random_bits() & 1 ? F::least : F::most;
    Int whole = Int(__builtin_rint(value));
    return F::saturate(whole ? whole : Int(1));
  } else {
    return F::wrap(value);
  }
}

/* What the test ends with. */
enum Outcome { RIGHT = 0, WRONG = 4, NOT_TRIED = 6 };

/* Where data lies: behind a page that faults, before one, or only as aligned as its elements. */
enum Place { FIRST, LAST, UNALIGNED };

/* So many bytes between two pages that fault. */
struct Guarded {
  char* pages;
  size_t length;
  char* data;
  Guarded(size_t bytes, Place place, size_t element) {
    size_t page = size_t(sysconf(_SC_PAGESIZE)), inside = (bytes + element + page - 1) / page * page;
    length = inside + 2 * page;
    pages = (char*)mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages, page, PROT_NONE) || mprotect(pages + page + inside, page, PROT_NONE)) {
      perror("memory for the test");
      exit(NOT_TRIED);
    }
    data = pages + page + (place == LAST ? inside - bytes : place == UNALIGNED ? element : 0);
    for (size_t i = 0; i < bytes; i++) data[i] = char(random_bits());
  }
  ~Guarded() { munmap(pages, length); }
};
