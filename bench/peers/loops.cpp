// The loops of a sum of neighbours, left to the compiler. loops.ts fills in the extents and the sum.
/* @form */
typedef @T T;

struct Tap { int z, y, x, weight; };
static constexpr Tap TAPS[] = {/* @taps */};
static constexpr long I0 = @I0, I1 = @I1, J0 = @J0, J1 = @J1, K0 = @K0, K1 = @K1;

/// A point near the border: what lies outside is 0.
static T guarded(const T* in, const T* w, long i, long j, long k) {
  T sum = 0;
  for (const Tap& t : TAPS) {
    const long z = i + t.z, y = j + t.y, x = k + t.x;
    if (z >= 0 && z < @IN_D && y >= 0 && y < @IN_H && x >= 0 && x < @IN_W) sum += w[t.weight] * in[(z * @IN_H + y) * @IN_WL + x];
  }
  return sum;
}

static void row(T* __restrict out, const T* __restrict in, const T* __restrict w, long i, long j) {
  const long o = (i * @H + j) * @WL;
  if (i < I0 || i >= I1 || j < J0 || j >= J1) {
    for (long k = 0; k < @W; k++) out[o + k] = guarded(in, w, i, j, k);
    return;
  }
  for (long k = 0; k < K0; k++) out[o + k] = guarded(in, w, i, j, k);
  for (long k = K1; k < @W; k++) out[o + k] = guarded(in, w, i, j, k);
#ifdef BY_ROWS
  for (long k = K0; k < K1; k++) out[o + k] = 0;
      /* @row */
#else
  for (long k = K0; k < K1; k++) {
    /* @point */
    out[o + k] = sum;
  }
#endif
}

extern "C" void peer_run(void* const* tensors, int part, int parts) {
  T* out = (T*)tensors[0];
  const T* in = (const T*)tensors[1];
  const T* w = (const T*)tensors[2];
  const long rows = @DL * @H;
  for (long r = rows * part / parts; r < rows * (part + 1) / parts; r++) row(out, in, w, r / @H, r % @H);
}
