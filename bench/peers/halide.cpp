// A sum of neighbours in Halide, compiled by its caller. halide.ts inserts extents and taps, innermost dimension first.
#include <Halide.h>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <vector>

typedef @T T;
static const std::vector<int> OUT = {/* @out */}, IN = {/* @in */};
struct Tap { std::vector<int> shift; int weight; };
static const std::vector<Tap> TAPS = {/* @taps */};
static const int WEIGHTS = @WEIGHTS;
static const std::string SCHEDULE = "@SCHEDULE";

/* Schedulers are libraries beside that of Halide. */
static void load(const std::string& name) {
  Dl_info info;
  if (!dladdr((void*)&Halide::get_host_target, &info)) abort();
  const std::string file = info.dli_fname;
  Halide::load_plugin(file.substr(0, file.rfind('/')) + "/halide14/libautoschedule_" + name + ".so");
}

struct Program {
  Halide::ImageParam in{Halide::type_of<T>(), (int)IN.size()}, weights{Halide::type_of<T>(), 1};
  Halide::Func out{"out"};
  Halide::Pipeline pipeline;

  Program() {
    using namespace Halide;
    std::vector<Var> vars = {Var("x"), Var("y"), Var("z")};
    vars.resize(OUT.size());
    Region box;
    for (int extent : IN) box.emplace_back(0, extent);
    const Func around = BoundaryConditions::constant_exterior(in, cast<T>(0), box);
    Expr sum = cast<T>(0);
    for (const Tap& tap : TAPS) {
      std::vector<Expr> at;
      for (size_t d = 0; d < vars.size(); d++) at.push_back(vars[d] + tap.shift[d]);
      sum += weights(tap.weight) * around(at);
    }
    out(vars) = sum;
    for (size_t d = 0; d < OUT.size(); d++) {
      in.dim(d).set_bounds(0, IN[d]).set_estimate(0, IN[d]);
      out.set_estimate(vars[d], 0, OUT[d]);
    }
    weights.dim(0).set_bounds(0, WEIGHTS).set_estimate(0, WEIGHTS);
    for (int d = 1, pitch = 1; d < (int)IN.size(); d++) in.dim(d).set_stride(pitch *= IN[d - 1]);
    pipeline = Pipeline(out);
    const Target target = get_jit_target_from_environment();
    if (SCHEDULE == "by hand") {
      const int lanes = target.natural_vector_size<T>();
      Var xi("xi"), yi("yi");
      if (OUT.size() == 1) out.split(vars[0], vars[0], xi, 4 * lanes).vectorize(xi, lanes).unroll(xi);
      else  // taps of 2-D windows share the rows of a tile
        out.tile(vars[0], vars[1], xi, yi, 2 * lanes, 4).vectorize(xi, lanes).unroll(xi).unroll(yi);
    } else {
      load(SCHEDULE == "Adams2019" ? "adams2019" : "mullapudi2016");
      pipeline.auto_schedule(SCHEDULE, target, MachineParams(1, 1 << 20, 40));
    }
    pipeline.compile_jit(target);
  }
};

/* Parts run on the caller's threads, each with its own program: Halide's threads would share one pinned processor. */
extern "C" void peer_run(void* const* tensors, int part, int parts) {
  static std::mutex building;
  static Program* programs[64];
  Program*& program = programs[part % 64];
  if (!program) {
    const std::lock_guard<std::mutex> alone(building);
    setenv("HL_NUM_THREADS", "1", 1);
    program = new Program;
  }
  program->in.set(Halide::Buffer<T>((T*)tensors[1], IN));
  program->weights.set(Halide::Buffer<T>((T*)tensors[2], WEIGHTS));
  const int last = OUT.size() - 1, from = (long)OUT[last] * part / parts, to = (long)OUT[last] * (part + 1) / parts;
  Halide::Buffer<T> out((T*)tensors[0], OUT);
  out.crop(last, from, to - from);
  if (to > from) program->pipeline.realize(out);
}
