/* Times kernels by graphs of calls, in alternating batches. */

static constexpr size_t FLUSH_BYTES = (size_t)256 << 20; /* several times the last cache of any device yet */

/* Finds the number of calls in a batch and captures their graph, unless the cache is flushed before each call. */
static void warm_up(const Request& r, std::vector<Loaded>& kernels, Stopwatch& watch, const std::vector<void*>& tensors) {
  const cudaStream_t stream = watch.stream;
  for (int k = 0; k < (int)kernels.size(); k++) {
    Loaded& kernel = kernels[k];
    if (kernel.failed) continue;
    current_kernel = k;
    answer("at %d warming up", k);
    check_asked(k, (cudaError_t)kernel.prepare(kernel.workspace, tensors.data(), stream));
    auto call = [&] { check(k, (cudaError_t)kernel.launch(kernel.workspace, tensors.data(), stream), "launch"); };
    watch.timed(k, call);
    const double once = watch.timed(k, call);
    if (r.flushed) continue;
    const double wanted = std::max(1.0, std::ceil(r.batch / std::max(once, 1e-7)));
    kernel.calls = (int)std::min<double>(CALLS_OF_A_GRAPH, wanted);
    kernel.launches = (int)std::ceil(wanted / kernel.calls);
    kernel.graph = graph_of(k, kernel.calls, stream, call);
    watch.timed(k, [&] { check(k, cudaGraphLaunch(kernel.graph, stream), "cudaGraphLaunch"); });
  }
}

static double median_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return (samples[(samples.size() - 1) / 2] + samples[samples.size() / 2]) / 2;
}

/* A kernel drops out of a race when every batch exceeded the best median so far, or the goal, by a margin. */
static constexpr double DROP_SECONDS = 0.005, DROP_MARGIN = 1.1;

static void drop_out(const Request& r, std::vector<Loaded>& kernels) {
  double best = r.goal;
  for (const Loaded& kernel : kernels)
    if (kernel.samples.size() >= (size_t)r.least) best = std::min(best, median_of(kernel.samples));
  for (Loaded& kernel : kernels) {
    if (kernel.lost_to || kernel.samples.size() < (size_t)r.least || kernel.spent < DROP_SECONDS) continue;
    if (*std::min_element(kernel.samples.begin(), kernel.samples.end()) > DROP_MARGIN * best) kernel.lost_to = best;
  }
}

/* Times batches of the kernels in turns. A device whose power is capped runs faster after a pause than it goes on: the batches of the first `settle` seconds
 * count for no kernel. */
static void time_batches(const Request& r, std::vector<Loaded>& kernels, Stopwatch& watch, const std::vector<void*>& tensors, unsigned char* flush) {
  const cudaStream_t stream = watch.stream;
  uint64_t shuffle = r.seed;
  /* Seconds of one call in a batch of this kernel. */
  auto batch_of = [&](int k, int round) {
    Loaded& kernel = kernels[k];
    current_kernel = k;
    answer("at %d batch %d", k, round);
    if (r.flushed) {
      check(k, cudaMemsetAsync(flush, round & 255, FLUSH_BYTES, stream), "cudaMemsetAsync");
      return watch.timed(k, [&] { check(k, (cudaError_t)kernel.launch(kernel.workspace, tensors.data(), stream), "launch"); });
    }
    auto batch = [&] {
      for (int i = 0; i < kernel.launches; i++) check(k, cudaGraphLaunch(kernel.graph, stream), "cudaGraphLaunch");
    };
    return watch.timed(k, batch) / (kernel.calls * kernel.launches);
  };
  /* In random order, since a kernel affects the clock of the one after it. */
  auto shuffled = [&](std::vector<int> order) {
    for (size_t i = order.size(); i > 1; i--) {
      shuffle = shuffle * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(order[i - 1], order[(shuffle >> 33) % i]);
    }
    return order;
  };
  auto running = [&](int round) {
    std::vector<int> order;
    for (int k = 0; k < (int)kernels.size(); k++)
      if (!kernels[k].failed && !kernels[k].lost_to && (round < r.least || kernels[k].spent < r.budget)) order.push_back(k);
    return shuffled(order);
  };
  double settled = 0;
  while (settled < r.settle) {
    const std::vector<int> order = running(0);
    if (order.empty()) break;
    for (int k : order) settled += batch_of(k, 0) * kernels[k].calls * kernels[k].launches;
  }
  clock_samples.clear();
  clocks_wanted = true;
  std::thread watcher(watch_clocks);
  for (int round = 0; round < r.most; round++) {
    const std::vector<int> order = running(round);
    if (order.empty()) break;
    for (int k : order) {
      const double seconds = batch_of(k, round);
      kernels[k].samples.push_back(seconds);
      kernels[k].spent += seconds * kernels[k].calls * kernels[k].launches;
    }
    if (r.race) drop_out(r, kernels);
  }
  clocks_wanted = false;
  watcher.join();
}

static void time_kernels(const Request& r, std::vector<Loaded>& kernels, cudaStream_t stream, const std::vector<void*>& tensors, unsigned char* flush) {
  Stopwatch watch(stream);
  warm_up(r, kernels, watch, tensors);
  static std::vector<Loaded>* timed_kernels = nullptr;
  static size_t enough = 0;
  timed_kernels = &kernels, enough = (size_t)r.least;
  tell_what_is_known = [] {
    for (int k = 0; k < (int)timed_kernels->size(); k++)
      if ((*timed_kernels)[k].samples.size() >= enough) answer_samples(k, (*timed_kernels)[k].samples);
  };
  time_batches(r, kernels, watch, tensors, flush);
  for (int k = 0; k < (int)kernels.size(); k++) {
    if (kernels[k].failed) continue;
    answer_clock(k);
    if (kernels[k].lost_to) answer("dropped %d %.9e", k, kernels[k].lost_to);
    answer_samples(k, kernels[k].samples);
  }
  tell_what_is_known = nullptr;
}
