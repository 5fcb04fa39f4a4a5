/*
 * The expected plane of a stencil's time steps: one step launched repeatedly. Needs bounds.h and cuda-reference.h.
 *
 * The two planes of the steps are in the memory that receives the bounds at the end. The tolerance follows from the largest element of the first plane
 * (step-growth.ts). Results may have decayed below it, so that zeros would be accepted. All bounds are then set to ones that nothing satisfies,
 * infinity to -infinity, from which the comparison sees that these inputs reveal nothing (`tells` in cuda-elements.h).
 */

/* Threads that search the first plane and the results, each in a part. What they find in results is in memory of the program. */
static constexpr Int MOST_PARTS = 65536, MOST_SPREADS = 4096;
template <class Step> static constexpr Int PARTS = Step::points < MOST_PARTS ? Step::points : MOST_PARTS;
template <class Step> static constexpr Int SPREADS = Step::points < MOST_SPREADS ? Step::points : MOST_SPREADS;

static __device__ double largest;
static __device__ Spread spreads[MOST_SPREADS];
static __device__ bool tells_apart;

template <class Step> __global__ void find_parts(const typename Step::Element* plane, double* parts) {
  const Int part = own_point();
  if (part >= PARTS<Step>) return;
  double most = 0;
  for (Int i = part; i < Step::points; i += PARTS<Step>) {
    const double size = __builtin_fabs((double)plane[i]);
    if (size > most) most = size;
  }
  parts[part] = most;
}
template <class Step> __global__ void find_largest(const double* parts) {
  double most = 0;
  for (Int part = 0; part < PARTS<Step>; part++) most = parts[part] > most ? parts[part] : most;
  largest = most;
}

template <class Step> __global__ void one_step(Step step, typename Step::Element* to) {
  const Int point = own_point();
  if (point < Step::points) step.move(point, to);
}
template <class Step> __global__ void keep(const typename Step::Element* from, double* high) {
  const Int point = own_point();
  if (point < Step::points) high[point] = (double)from[point];
}

template <class Step> __global__ void find_spreads(const double* values, int exact) {
  const Int part = own_point();
  if (part >= SPREADS<Step>) return;
  Spread all;
  for (Int i = part; i < Step::points; i += SPREADS<Step>) {
    const double value = values[i];
    /* NaN marks memory that holds no element. */
    if (value == value) all.add({value, value, Step::tolerance(largest, value, exact)});
  }
  spreads[part] = all;
}
template <class Step> __global__ void find_spread() {
  Spread all;
  for (Int part = 0; part < SPREADS<Step>; part++) all.add(spreads[part]);
  tells_apart = all.tells(Step::points);
}
template <class Step> __global__ void bounds_of_steps(double* low, double* high, int exact) {
  const Int point = own_point();
  if (point >= Step::points) return;
  const double value = high[point], tolerance = Step::tolerance(largest, value, exact);
  low[point] = tells_apart ? value - tolerance : infinity;
  high[point] = tells_apart ? value + tolerance : -infinity;
}

template <class Step> static int bounds_after(Step step, int steps, double* low, double* high, int exact, cudaStream_t stream) {
  using Element = typename Step::Element;
  const Element* from = step.plane();
  /* Two planes of 32-bit elements fit into the memory of one bound. */
  Element* const planes[] = {(Element*)low, sizeof(Element) < 8 ? (Element*)low + Step::points : (Element*)high};
  int error = launch(find_parts<Step>, PARTS<Step>, stream, from, low);
  if (!error) error = launch(find_largest<Step>, 1, stream, (const double*)low);
  for (int t = 0; t < steps && !error; t++) {
    step.plane() = from;
    error = launch(one_step<Step>, Step::points, stream, step, planes[t % 2]);
    from = planes[t % 2];
  }
  if (!error) error = launch(keep<Step>, Step::points, stream, from, high);
  if (!error) error = launch(find_spreads<Step>, SPREADS<Step>, stream, (const double*)high, exact);
  if (!error) error = launch(find_spread<Step>, 1, stream);
  return error ? error : launch(bounds_of_steps<Step>, Step::points, stream, low, high, exact);
}
