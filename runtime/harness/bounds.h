/*
 * What a float result may be off by, for any order of summation, with or without fused multiply-adds (Higham, Accuracy and Stability, section 4.2), and
 * whether wrong results would show. Needs arithmetic.h.
 */

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
