/*
 * A oneDNN primitive behind the C interface of abstraction/kernel.ts, so that our harness times it like our kernels.
 * bench/peers/onednn.ts inserts the problem at the marked place; the rest is the same for every configuration.
 *
 * Only dnnl_primitive_execute is timed:
 *
 * - automap_prepare creates the primitive and reorders constant weights.
 * - A `free` tensor lies in the workspace in oneDNN's preferred layout. automap_prepare copies the input there, as if
 *   the previous layer had left it so. The output stays there; the harness's output is rewritten only after it has been
 *   overwritten: by verification before each call and by other kernels between batches, never during a timed batch.
 * - Threads are the harness's own, one pinned to each processor: see Team.
 */

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sched.h>
#include <string>
#include <vector>

using type = dnnl::memory::data_type;
using dnnl::algorithm;
using dnnl::memory;

// ---------------------------------------------------------------------------------------------------- the problem

/** A tensor as the caller stores it. */
struct Tensor {
  int argument; /* of automap_run */
  type dtype;
  memory::dims dims, strides;
  bool free; /* oneDNN may choose the layout */

  memory::desc given() const { return {dims, dtype, strides}; }
  memory::desc wanted() const { return free ? memory::desc(dims, dtype, memory::format_tag::any) : given(); }
};

struct Problem {
  enum class Form { convolution, matmul, inner_product } form;
  algorithm how;                     /* of a convolution */
  memory::dims step, dilation, pad; /* of a convolution */
  int threads;
  int implementation; /* 0: the one it prefers, 1: the next in its list ... */
  std::optional<dnnl::cpu_isa> most; /* instructions oneDNN may use; all this processor has when left out */
  Tensor source, weights, output;
  int scale_argument; /* f32, a factor for each output channel; 0 when there is none */
  bool relu;
  std::vector<size_t> argument_bytes;
};

// @problem

[[noreturn]] static void refuse(const std::string& why) {
  fprintf(stderr, "onednn: %s\n", why.c_str());
  abort();
}

// ---------------------------------------------------------------------------------------------------- threads

static void spin_until(bool (*condition)(unsigned), unsigned value) {
  for (unsigned spins = 0; !condition(value); spins++) {
    if (spins < 1 << 14) __builtin_ia32_pause();
    else sched_yield();
  }
}

/**
 * This oneDNN is built for OpenMP, whose threads would compete for processors with the harness's spinning ones. So this
 * library provides the few libgomp functions that libdnnl calls (the loader looks here first), and a parallel region
 * runs on the threads that are in automap_run anyway. Part 0 executes the primitive; the others serve its regions until
 * it is done. A region spins on a cache line, like libgomp with OMP_WAIT_POLICY=active; one thread never opens one.
 *
 * An inline variable exists once in the process (STB_GNU_UNIQUE), even if several such libraries are loaded.
 */
struct Team {
  static constexpr int MOST = 256;
  int size = 1;          /* what oneDNN is told there are */
  bool gathered = false; /* the others are serving */
  void (*body)(void*) = nullptr;
  void* data = nullptr;
  int members = 1;
  alignas(64) std::atomic<unsigned> orders{0};
  alignas(64) std::atomic<int> busy{0};
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<unsigned> generation{0};
  struct alignas(64) Seat {
    unsigned done = 0;
  } seats[MOST];
};

struct Member {
  int number = 0, of = 1;
};

inline Team team;
inline thread_local Member me;

static void give_order(void (*body)(void*), void* data, int members) {
  team.body = body;
  team.data = data;
  team.members = members;
  team.busy.store(team.size - 1, std::memory_order_relaxed);
  team.orders.fetch_add(1, std::memory_order_release);
}

static void take_part(int number) {
  me = {number, team.members};
  if (number < team.members) team.body(team.data);
  me = {};
}

/** Part 1 and up: runs regions until part 0 is done. */
static void serve(int part) {
  unsigned& done = team.seats[part].done;
  for (;;) {
    spin_until([](unsigned seen) { return team.orders.load(std::memory_order_acquire) != seen; }, done);
    done++;
    if (!team.body) return;
    take_part(part);
    team.busy.fetch_sub(1, std::memory_order_release);
  }
}

extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
  int members = threads == 0 ? team.size : std::min<int>(threads, team.size);
  if (!team.gathered || me.of > 1 || members == 1) {
    Member outside = me;
    me = {};
    body(data);
    me = outside;
    return;
  }
  give_order(body, data, members);
  take_part(0);
  spin_until([](unsigned) { return team.busy.load(std::memory_order_acquire) == 0; }, 0);
}

void GOMP_barrier() {
  if (me.of == 1) return;
  unsigned now = team.generation.load(std::memory_order_acquire);
  if (team.arrived.fetch_add(1, std::memory_order_acq_rel) == me.of - 1) {
    team.arrived.store(0, std::memory_order_relaxed);
    team.generation.store(now + 1, std::memory_order_release);
  } else spin_until([](unsigned seen) { return team.generation.load(std::memory_order_acquire) != seen; }, now);
}

int omp_get_max_threads() { return team.size; }
int omp_get_num_threads() { return me.of; }
int omp_get_thread_num() { return me.number; }
int omp_in_parallel() { return me.of > 1; }
}

// ---------------------------------------------------------------------------------------------------- the primitive

/** The ISA cap of the whole process: oneDNN reads it once. */
inline std::optional<std::optional<dnnl::cpu_isa>> isa_cap;

static const dnnl::engine& engine() {
  static const dnnl::engine cpu = [] {
    if (isa_cap && *isa_cap != PROBLEM.most) refuse("kernels with different ISA caps cannot share a process");
    if (!isa_cap && PROBLEM.most && dnnl::set_max_cpu_isa(*PROBLEM.most) != dnnl::status::success) refuse("the ISA cap came too late");
    isa_cap = PROBLEM.most;
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

static size_t channels() { return PROBLEM.output.dims[1]; }

/** Selects an implementation. Before version 3 its list is read while `what` exists, since oneDNN keeps a pointer to it. */
template <class Operation, class... What>
static dnnl::primitive_desc choose(const dnnl::primitive_attr& attributes, const What&... what) {
#if DNNL_VERSION_MAJOR < 3
  const typename Operation::desc description(what...);
  typename Operation::primitive_desc chosen(description, attributes, engine());
#else
  typename Operation::primitive_desc chosen(engine(), what..., attributes);
#endif
  for (int i = 0; i < PROBLEM.implementation; i++)
    if (!chosen.next_impl()) refuse("there are only " + std::to_string(i + 1) + " implementations");
  return chosen;
}

/** One factor for each output channel. From version 3 on it belongs to the weights, and its values are an argument. */
static void scale_channels(dnnl::primitive_attr& attributes, const std::vector<float>& scales) {
#if DNNL_VERSION_MAJOR < 3
  attributes.set_output_scales(1 << 1, scales);
#else
  const bool is_grouped = PROBLEM.weights.dims.size() > PROBLEM.output.dims.size();
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, is_grouped ? 3 : 1);
#endif
}

static void rectify(dnnl::primitive_attr& attributes) {
  dnnl::post_ops relu;
#if DNNL_VERSION_MAJOR < 3
  relu.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
#else
  relu.append_eltwise(algorithm::eltwise_relu, 0, 0);
#endif
  attributes.set_post_ops(relu);
}

static dnnl::primitive_desc describe(const std::vector<float>& scales) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (PROBLEM.scale_argument) scale_channels(attributes, scales);
  if (PROBLEM.relu) rectify(attributes);
  const memory::desc source = PROBLEM.source.wanted(), weights = PROBLEM.weights.wanted(), output = PROBLEM.output.wanted();
  const auto inference = dnnl::prop_kind::forward_inference;
  const Problem& p = PROBLEM;
  switch (p.form) {
    case Problem::Form::convolution:
      return choose<dnnl::convolution_forward>(attributes, inference, p.how, source, weights, output, p.step, p.dilation, p.pad, p.pad);
    case Problem::Form::matmul: return choose<dnnl::matmul>(attributes, source, weights, output);
    case Problem::Form::inner_product: break;
  }
  return choose<dnnl::inner_product_forward>(attributes, inference, source, weights, output);
}

/** Location of a tensor: the caller's memory or the workspace. */
struct Place {
  memory::desc layout;
  bool own;
  size_t offset;
};

struct Plan {
  Place source, weights, output, scratchpad;
  size_t bytes = 0;

  explicit Plan(const dnnl::primitive_desc& primitive) {
    auto query = [&](dnnl::query what) { return primitive.query_md(what, 0); };
    source = place(query(dnnl::query::src_md), PROBLEM.source.given());
    weights = place(query(dnnl::query::weights_md), PROBLEM.weights.given());
    output = place(query(dnnl::query::dst_md), PROBLEM.output.given());
    scratchpad = place(primitive.scratchpad_desc(), {});
  }

 private:
  Place place(const memory::desc& layout, const memory::desc& given) {
    Place p = {layout, layout != given, bytes};
    if (p.own) bytes += (layout.get_size() + 63) / 64 * 64;
    return p;
  }
};

struct State {
  dnnl::stream stream;
  dnnl::primitive primitive, publish;
  std::vector<memory> memories; /* what the arguments below refer to */
  std::vector<dnnl_exec_arg_t> arguments, publish_arguments;
  bool own_output = false;
  std::vector<const void*> tensors;
  std::vector<char> published; /* the probes of an output that was published */
};
static State state;

static void execute(const dnnl::primitive& primitive, const std::vector<dnnl_exec_arg_t>& arguments) {
  dnnl_status_t status = dnnl_primitive_execute(primitive.get(), state.stream.get(), arguments.size(), arguments.data());
  if (status != dnnl_success) refuse("executing failed with status " + std::to_string(status));
}

/** Four samples of 16 bytes, spread over the output. Poison and another kernel's rounding change them. */
static std::vector<char> probe(const void* output) {
  const size_t bytes = PROBLEM.argument_bytes[0], width = std::min<size_t>(16, bytes);
  std::vector<char> seen;
  for (size_t i = 0; i < 4; i++) {
    const char* at = static_cast<const char*>(output) + (bytes - width) / 3 * i;
    seen.insert(seen.end(), at, at + width);
  }
  return seen;
}

static bool is_published(const void* output) {
  const size_t bytes = PROBLEM.argument_bytes[0], width = std::min<size_t>(16, bytes);
  if (state.published.empty()) return false;
  for (size_t i = 0; i < 4; i++)
    if (memcmp(static_cast<const char*>(output) + (bytes - width) / 3 * i, &state.published[i * width], width)) return false;
  return true;
}

// ---------------------------------------------------------------------------------------------------- the interface

/** Catches oneDNN's exceptions, which must not leave a C function. */
template <class Body> static auto guarded(Body body) {
  try {
    return body();
  } catch (const dnnl::error& e) {
    refuse(std::string(e.what()) + (e.status == dnnl_unimplemented ? " (unimplemented)" : ""));
  }
}

extern "C" unsigned long automap_workspace_bytes(void) {
  return guarded([] {
    team.size = PROBLEM.threads;
    // The real factors are not known yet, but layouts do not depend on them.
    return Plan(describe(std::vector<float>(channels(), 0.5f))).bytes;
  });
}

extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  guarded([=] {
    // 1. The primitive, for all threads.
    team.size = PROBLEM.threads;
    std::vector<float> scales(channels());
    if (PROBLEM.scale_argument) memcpy(scales.data(), tensors[PROBLEM.scale_argument], 4 * scales.size());
    const dnnl::primitive_desc description = describe(scales);
    const Plan plan(description);
    state = {};
    state.stream = dnnl::stream(engine());
    state.primitive = dnnl::primitive(description);
    state.tensors.assign(tensors, tensors + PROBLEM.argument_bytes.size());

    // 2. Its memory: the caller's or the workspace.
    auto caller = [&](const Tensor& t) { return memory(t.given(), engine(), const_cast<void*>(tensors[t.argument])); };
    auto at = [&](const Place& p) { return memory(p.layout, engine(), static_cast<char*>(workspace) + p.offset); };
    const memory source = plan.source.own ? at(plan.source) : caller(PROBLEM.source);
    const memory weights = plan.weights.own ? at(plan.weights) : caller(PROBLEM.weights);
    const memory output = plan.output.own ? at(plan.output) : caller(PROBLEM.output);
    const memory scratchpad = at(plan.scratchpad), published = caller(PROBLEM.output);
    state.memories = {source, weights, output, scratchpad, published};
    state.arguments = {{DNNL_ARG_SRC, source.get()},
                       {DNNL_ARG_WEIGHTS, weights.get()},
                       {DNNL_ARG_DST, output.get()},
                       {DNNL_ARG_SCRATCHPAD, scratchpad.get()}};
#if DNNL_VERSION_MAJOR >= 3
    if (PROBLEM.scale_argument) {
      const auto count = static_cast<memory::dim>(channels());
      const memory::desc factors({count}, type::f32, memory::format_tag::x);
      state.memories.emplace_back(factors, engine(), const_cast<void*>(tensors[PROBLEM.scale_argument]));
      state.arguments.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, state.memories.back().get()});
    }
#endif
    state.own_output = plan.output.own;
    if (plan.output.own) state.publish = dnnl::reorder(output, published);
    state.publish_arguments = {{DNNL_ARG_FROM, output.get()}, {DNNL_ARG_TO, published.get()}};

    // 3. Reorder constants into oneDNN's layouts, on this thread alone.
    team.size = 1;
    auto bring = [&](const Tensor& t, const memory& to) {
      const memory from = caller(t);
      const dnnl::reorder reorder(from, to);
      execute(reorder, {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}});
    };
    if (plan.source.own) bring(PROBLEM.source, source);
    if (plan.weights.own) bring(PROBLEM.weights, weights);
    state.stream.wait();
    team.size = PROBLEM.threads;
  });
}

extern "C" int automap_phases(void) { return 1; }

extern "C" void automap_run(void*, void* const* tensors, int, int part, int parts) {
  if (parts != PROBLEM.threads) refuse("made for " + std::to_string(PROBLEM.threads) + " threads, run with " + std::to_string(parts));
  if (part > 0) return serve(part);
  for (size_t i = 0; i < state.tensors.size(); i++)
    if (tensors[i] != state.tensors[i]) refuse("was prepared for other tensors");
  team.gathered = true;
  execute(state.primitive, state.arguments);
  if (state.own_output && !is_published(tensors[0])) {
    execute(state.publish, state.publish_arguments);
    state.published = probe(tensors[0]);
  }
  team.gathered = false;
  if (parts > 1) give_order(nullptr, nullptr, 1);
}

// --------------------------------------------------------------------------------------------------- what oneDNN chose

#ifdef DESCRIBE
#include <thread>

/** Runs one call on zeros; oneDNN prints what it runs. */
int main() {
  std::vector<void*> tensors;
  for (size_t bytes : PROBLEM.argument_bytes) tensors.push_back(calloc(bytes + 64, 1));
  void* workspace = aligned_alloc(64, (automap_workspace_bytes() + 64) / 64 * 64);
  automap_prepare(workspace, tensors.data());
  dnnl_set_verbose(1);
  std::vector<std::thread> others;
  for (int part = 1; part < PROBLEM.threads; part++)
    others.emplace_back([=] { automap_run(workspace, tensors.data(), 0, part, PROBLEM.threads); });
  automap_run(workspace, tensors.data(), 0, 0, PROBLEM.threads);
  for (std::thread& other : others) other.join();
}
#endif
