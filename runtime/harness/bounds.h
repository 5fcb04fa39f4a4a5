/*
 * Elements as they lie in memory, and what a float result may be off by: for any order of summation, with or without fused multiply-adds (Higham,
 * Accuracy and Stability, section 4.2). Needs arithmetic.h.
 */

/* Read as the numbers that the interpreter sees. */
template <class T, class Number> struct Stored {
  const T* data;
  AUTOMAP_FUNCTION Number operator[](Int at) const { return Number(data[at]); }
};
struct Half {
  uint16_t bits;
  AUTOMAP_FUNCTION explicit operator double() const {
    const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const double size = exponent == 31 ? (fraction ? not_a_number : infinity)
        : exponent == 0 ? __builtin_ldexp(double(fraction), -24) : __builtin_ldexp(double(fraction + 1024), exponent - 25);
    return bits & 0x8000 ? -size : size;
  }
};
struct Brain {
  uint16_t bits;
  AUTOMAP_FUNCTION explicit operator double() const {
    union { uint32_t word; float value; } both = {(uint32_t)bits << 16};
    return double(both.value);
  }
};

/* BoundRule of error-bound.ts. */
struct Bound {
  double operations, epsilon, smallest, exact_below;
  bool integral;

  /* Of a sum of `terms`, whose sizes add up to `size`; `exact` if its inputs are small integers. */
  AUTOMAP_FUNCTION double tolerance(double terms, double size, double sum, bool exact) const {
    if (exact && integral && size <= exact_below && sum == __builtin_nearbyint(sum)) return 0;
    return (terms + operations + 1) * (epsilon * size + smallest);
  }
};

/* Whether wrong results would show: the tolerance must be less than half of their spread, or of a single result. */
struct Spread {
  double least = infinity, most = -infinity, widest = 0;

  AUTOMAP_FUNCTION void add(const Spread& other) {
    if (other.least < least) least = other.least;
    if (other.most > most) most = other.most;
    if (!(other.widest <= widest)) widest = other.widest;
  }
  AUTOMAP_FUNCTION bool tells(Int results) const {
    const double spread = results == 1 ? __builtin_fabs(most) : most - least;
    return widest == 0 ? least <= most : 2 * widest < spread;
  }
};
