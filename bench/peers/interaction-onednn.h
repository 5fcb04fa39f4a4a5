/*
 * The interaction as a user of oneDNN 2 would write it: its concatenation, its batched product of the concatenated
 * vectors with their transpose, a loop that gathers the pairs below the diagonal, and its concatenation again. Each
 * primitive takes all samples at once. One thread: the caller sets OMP_NUM_THREADS.
 */

#include <oneapi/dnnl/dnnl.hpp>

struct OneDnn {
  using memory = dnnl::memory;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::concat first, last;
  dnnl::matmul product;
  memory dense, rows, x, transposed, squares, pairs, z;

  OneDnn(long samples, Element* dense_, Element* rows_, Element* x_, Element* squares_, Element* pairs_, Element* z_) {
    const auto type = sizeof(Element) == 2 ? memory::data_type::bf16 : memory::data_type::f32;
    const auto over = [&](Element* data, memory::dims dims, memory::dims strides) {
      return memory({dims, type, strides}, engine, data);
    };
    dense = over(dense_, {samples, 1, WIDTH}, {WIDTH, WIDTH, 1});
    rows = over(rows_, {samples, VECTORS - 1, WIDTH}, {(VECTORS - 1) * WIDTH, WIDTH, 1});
    x = over(x_, {samples, VECTORS, WIDTH}, {VECTORS * WIDTH, WIDTH, 1});
    transposed = over(x_, {samples, WIDTH, VECTORS}, {VECTORS * WIDTH, 1, WIDTH});
    squares = over(squares_, {samples, VECTORS, VECTORS}, {VECTORS * VECTORS, VECTORS, 1});
    pairs = over(pairs_, {samples, PAIRS}, {PAIRS, 1});
    z = over(z_, {samples, OUT}, {OUT, 1});
    const memory flat = over(dense_, {samples, WIDTH}, {WIDTH, 1});
    first = dnnl::concat({x.get_desc(), 1, {dense.get_desc(), rows.get_desc()}, engine});
    product = dnnl::matmul({dnnl::matmul::desc(x.get_desc(), transposed.get_desc(), squares.get_desc()), engine});
    last = dnnl::concat({z.get_desc(), 1, {flat.get_desc(), pairs.get_desc()}, engine});
  }

  void concatenate() { run(first, {{DNNL_ARG_MULTIPLE_SRC, dense}, {DNNL_ARG_MULTIPLE_SRC + 1, rows}, {DNNL_ARG_DST, x}}); }
  void multiply() { run(product, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, transposed}, {DNNL_ARG_DST, squares}}); }
  void append() { run(last, {{DNNL_ARG_MULTIPLE_SRC, dense}, {DNNL_ARG_MULTIPLE_SRC + 1, pairs}, {DNNL_ARG_DST, z}}); }

 private:
  template <class Primitive> void run(Primitive& primitive, const std::unordered_map<int, memory>& arguments) {
    primitive.execute(stream, arguments);
    stream.wait();
  }
};
