// ---------------------------------------------------------------------------------------------------- timing

static double clock_tick() {
  double least = 1;
  for (int i = 0; i < 1000; i++) {
    double start = now(), next = start;
    while (next == start) next = now();
    least = std::min(least, next - start);
  }
  return least;
}

/** Takes what a call of a kernel touches out of all caches: its tensors, its scratch and its workspace, not those of the kernels beside it. */
static void flush_caches(const Request& r, const Job& job) {
#if defined(__x86_64__)
  const auto is_touched = [&](const Buffer& b) {
    const auto end = job.tensors + r.arguments.size() + 1;
    return b.data == job.workspace || std::find(job.tensors, end, b.data) != end;
  };
  for (int i = 0; i < buffer_count; i++)
    if (is_touched(buffers[i]))
      for (const char* line = buffers[i].begin(); line < buffers[i].end(); line += 64) _mm_clflush(line);
  _mm_mfence();
#else
  static std::vector<char> sweep(256 << 20);
  for (size_t i = 0; i < sweep.size(); i += 64) sweep[i]++;
#endif
}

/** Seconds of a batch. If flushed, the caches are emptied before every call, which is not timed. */
static double time_batch(const Request& r, Job batch) {
  if (!r.flushed) return run_job(batch, r.threads);
  double sum = 0;
  const long calls = batch.calls;
  batch.calls = 1;
  for (long call = 0; call < calls; call++) {
    flush_caches(r, batch);
    sum += run_job(batch, r.threads);
  }
  return sum;
}

static void sign_of_life(int kernel) {
  static double last = 0;
  double time = now();
  if (time - last < 0.1) return;
  last = time;
  at(kernel, "timing");
}

static void answer_samples(int kernel, const std::vector<double>& samples) {
  std::string line = format("samples %d", kernel);
  for (double seconds : samples) line += format(" %.9g", seconds);
  answer(line);
}

/**
 * A kernel drops out of a race if every batch exceeded the goal by a margin. With a median at the goal, five batches
 * all exceed it (without the margin) with probability 1/32. Most disturbances of a machine end within ten milliseconds, so two batches
 * that take so long each suffice.
 */
static constexpr size_t DROP_BATCHES = 5, DROP_LONG_BATCHES = 2;
static constexpr double DROP_SECONDS = 0.01, DROP_MARGIN = 1.1;

static bool is_lost(const std::vector<double>& samples, double seconds, double goal) {
  const size_t enough = seconds >= DROP_SECONDS * samples.size() ? DROP_LONG_BATCHES : DROP_BATCHES;
  return samples.size() >= enough && seconds >= DROP_SECONDS && *std::min_element(samples.begin(), samples.end()) > DROP_MARGIN * goal;
}

/**
 * A kernel whose calls all took so many times the goal, and so long, is not timed again: its fastest one counts. Data that is not aligned for
 * vectors, as in one of the sets, makes none twice as slow.
 */
static constexpr double HOPELESS = 2;

static double median_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return (samples[(samples.size() - 1) / 2] + samples[samples.size() / 2]) / 2;
}

/** Seconds before measuring: the first kernel of a process wakes the processor, later ones only fill caches. */
static constexpr double WARM_UP = 0.02, WARM_UP_AGAIN = 0.005;

/**
 * Times batches that are long enough for the clock; several kernels take turns in a rotating order.
 * @param goal seconds of a call; clearly slower kernels drop out. Infinite to time all to the end
 * @returns the least median; infinite after a wrong result
 */
static double time_kernels(const Request& r, const std::vector<Kernel>& kernels, double goal = INFINITY) {
  // The usual case is fractions, not the exact set's small integers.
  const InputSet& set = r.sets.size() > 1 && r.sets[0].name == "exact" ? r.sets[1] : r.sets[0];
  std::vector<void*> tensors = place_tensors(r, set, Placement::spread);
  double least = std::max(50 * clock_tick(), r.batch);
  std::vector<Job> jobs;
  // The same, with the scratch of each kernel.
  std::vector<std::vector<void*>> given(kernels.size(), tensors);
  std::vector<std::vector<double>> samples(kernels.size());

  // 1. Warm up, and find how many calls make a batch.
  static bool is_awake = false;
  double longest = 0;
  for (const Kernel& k : kernels) {
    void* workspace = place_workspace(k, Placement::spread);
    at(k.number, "timing");
    std::vector<void*>& own = given[jobs.size()];
    const Buffer& scratch = add_scratch(k, own, Placement::spread);
    memset(scratch.data, POISON[0], scratch.bytes);
    k.prepare(workspace, own.data());
    Job j = {&k, workspace, own.data(), k.phases(), 1};
    double seconds = run_job(j, r.threads), spent = seconds;
    while (seconds < least || spent < (is_awake ? WARM_UP_AGAIN : WARM_UP)) {
      sign_of_life(k.number);
      seconds = time_batch(r, j);
      spent += seconds;
      if (seconds < least) j.calls = std::max<long>(j.calls + 1, std::min(1.1 * j.calls * least / std::max(seconds, 1e-9), 8.0 * j.calls));
    }
    longest = std::max(longest, seconds / j.calls);
    jobs.push_back(j);
  }
  is_awake = true;

  // 2. Measure. If one call exceeds the budget, three are measured.
  int least_batches = longest > r.budget ? std::min(3, r.least_batches) : r.least_batches;
  const double begun = now();
  const auto are_done = [&](int batches) {
    const double spent = (now() - begun) / kernels.size();
    return batches >= r.most_batches || (batches >= least_batches && spent >= r.budget) || (batches >= r.enough_batches && spent >= r.enough_seconds);
  };
  bool is_dropped = false;
  forget_spent(r.threads);
  for (int round = 0; !are_done(round) && !is_dropped; round++) {
    for (size_t turn = 0; turn < jobs.size(); turn++) {
      size_t which = (round + turn) % jobs.size();
      sign_of_life(kernels[which].number);
      if (jobs.size() > 1 && !r.flushed) {
        // Warm up: the previous kernel has used the caches.
        Job warm = jobs[which];
        warm.calls = 1;
        run_job(warm, r.threads);
      }
      samples[which].push_back(time_batch(r, jobs[which]) / jobs[which].calls);
    }
    is_dropped = is_lost(samples[0], now() - begun, goal);
  }

  answer(format("load %.4f", share_of_others(r.threads)));

  // 3. The last result must still be right.
  double fastest = INFINITY;
  for (size_t i = 0; i < kernels.size(); i++) {
    int number = kernels[i].number;
    memset(tensors[0], POISON[0], r.arguments[0].bytes());
    at(number, "call after timing");
    Job last = jobs[i];
    last.calls = 1;
    run_job(last, r.threads);
    std::string harm = damage();
    std::string difference = compare(r.arguments[0], static_cast<char*>(tensors[0]), set, r.forms[number]);
    if (!harm.empty()) answer(format("out-of-bounds %d after timing: ", number) + harm);
    else if (!difference.empty()) answer(format("wrong %d after timing: ", number) + difference);
    else {
      if (is_dropped) answer(format("dropped %d %.9g", number, goal));
      answer_samples(number, samples[i]);
      fastest = std::min(fastest, median_of(samples[i]));
    }
  }
  return fastest;
}

/** Runs kernels one by one. A failure may leave damage, so the rest then need a new process. */
static void race(const Request& r) {
  double goal = r.goal;
  for (size_t i = 0; i < r.kernels.size(); i++) {
    Kernel k = load(i, r.kernels[i]);
    forget_spent(r.threads);
    const double slow = std::max(HOPELESS * goal, DROP_SECONDS);
    const Checked checked = verify(k, r, slow, DROP_SECONDS);
    if (!checked.verdict.empty()) return answer_failure(k, checked.verdict);
    if (checked.fastest > slow) {
      answer(format("load %.4f", share_of_others(r.threads)));
      answer(format("dropped %d %.9g", k.number, goal));
      answer_samples(k.number, {checked.fastest});
      continue;
    }
    double seconds = time_kernels(r, {k}, goal);
    if (std::isinf(seconds)) return;
    goal = std::min(goal, seconds);
    release_all();
  }
}

/** Checks all kernels, then times them in turns. */
static void take_turns(const Request& r) {
  std::vector<Kernel> right;
  for (size_t i = 0; i < r.kernels.size(); i++) {
    Kernel k = load(i, r.kernels[i]);
    const std::string verdict = verify(k, r).verdict;
    if (verdict.empty()) right.push_back(k);
    else {
      release_all();
      answer_failure(k, verdict);
    }
  }
  if (!right.empty()) time_kernels(r, right);
}

/** Times 2^20 dependent steps of eight multiply-adds each: constant work, to detect drift. */
static void time_baseline(const Request& r) {
  std::vector<double> samples;
  volatile double seed = 0.5;
  double until = now() + r.budget;
  for (int batch = 0; batch < r.most_batches && (batch < r.least_batches || now() < until); batch++) {
    double x[8], start = now();
    for (int i = 0; i < 8; i++) x[i] = seed + i;
    for (int step = 0; step < 1 << 20; step++)
      for (int i = 0; i < 8; i++) x[i] = x[i] * 0.999999 + 1e-6;
    for (int i = 0; i < 8; i++) seed = x[i];
    samples.push_back(now() - start);
    seed = 0.5;
  }
  answer_samples(0, samples);
}

