/*
 * A recommendation model's interaction as the sequence cat, product, index, cat. It has the interface of one kernel (z
 * from e and d, in 16-bit floats), so that it is checked and timed in turns with the fused kernel.
 *
 *     nvcc -shared -Xcompiler -fPIC -DSAMPLES=32768 -DPRODUCT='"product.cu"' -o sequence.so interaction.cu
 *
 * The product is a generated kernel. The others are written here and move 16 bytes at once where they can.
 * -DTWICE=mask runs steps twice, which only changes the time: 1 cat0, 2 product, 4 index, 8 cat1.
 */

#define automap_workspace_bytes product_workspace_bytes
#define automap_allow product_allow
#define automap_prepare product_prepare
#define automap_launch product_launch
#include PRODUCT
#undef automap_workspace_bytes
#undef automap_allow
#undef automap_prepare
#undef automap_launch

#ifndef TWICE
#define TWICE 0
#endif

enum { VECTORS = 27, WIDTH = 128, ALL = VECTORS * VECTORS, PAIRS = VECTORS * (VECTORS - 1) / 2, OUT = WIDTH + PAIRS };
/* Threads of a block, and samples a block handles one after another. */
enum { THREADS = 256, TURNS = 8 };

struct alignas(16) Sixteen {
  uint16_t values[8];
};

/* Moves pieces of 16 bytes, 16 for each vector. */
static __global__ void cat0(Sixteen* __restrict__ x, const Sixteen* __restrict__ d, const Sixteen* __restrict__ e) {
  const int row = WIDTH / 8;
  for (long piece = blockIdx.x * (long)THREADS + threadIdx.x; piece < (long)SAMPLES * VECTORS * row; piece += (long)gridDim.x * THREADS) {
    const long vector = piece / row, sample = vector / VECTORS;
    const int i = vector % VECTORS, at = piece % row;
    x[piece] = i == 0 ? d[sample * row + at] : e[(sample * (VECTORS - 1) + i - 1) * row + at];
  }
}

static __global__ void index_pairs(uint16_t* __restrict__ pairs, const uint16_t* __restrict__ all) {
  const int pair = threadIdx.x;
  if (pair >= PAIRS) return;
  int i = 1;
  while (i * (i + 1) / 2 <= pair) i++;
  const int from = i * VECTORS + pair - i * (i - 1) / 2;
  for (int turn = 0; turn < TURNS; turn++) {
    const long sample = blockIdx.x * (long)TURNS + turn;
    if (sample < SAMPLES) pairs[sample * PAIRS + pair] = all[sample * ALL + from];
  }
}

static __global__ void cat1(uint16_t* __restrict__ z, const uint16_t* __restrict__ d, const uint16_t* __restrict__ pairs) {
  const int at = threadIdx.x;
  if (at >= OUT) return;
  for (int turn = 0; turn < TURNS; turn++) {
    const long sample = blockIdx.x * (long)TURNS + turn;
    if (sample < SAMPLES) z[sample * OUT + at] = at < WIDTH ? d[sample * WIDTH + at] : pairs[sample * PAIRS + at - WIDTH];
  }
}

template <class... Given, class... Taken> static cudaError_t launch(void (*kernel)(Taken...), int blocks, int threads, cudaStream_t stream, Given... given) {
  const auto with = [&](Taken... taken) {
    void* arguments[] = {(void*)&taken...};
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, stream);
  };
  return with((Taken)given...);
}

static unsigned long whole(unsigned long bytes) { return (bytes + 255) / 256 * 256; }
static const unsigned long X = whole(2ul * SAMPLES * VECTORS * WIDTH), SQUARES = whole(2ul * SAMPLES * ALL), PACKED = whole(2ul * SAMPLES * PAIRS);

extern "C" unsigned long automap_workspace_bytes(void) { return X + SQUARES + PACKED + product_workspace_bytes(); }

extern "C" int automap_prepare(void* workspace, const void* const*, cudaStream_t stream) {
  char* const own = (char*)workspace;
  const void* const tensors[] = {own + X, own};
  return product_prepare(own + X + SQUARES + PACKED, tensors, stream);
}

extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {
  char* const own = (char*)workspace;
  uint16_t* const squares = (uint16_t*)(own + X);
  uint16_t* const pairs = (uint16_t*)(own + X + SQUARES);
  const int blocks = (SAMPLES + TURNS - 1) / TURNS;
  const long needed = ((long)SAMPLES * VECTORS * WIDTH / 8 + THREADS - 1) / THREADS;
  const int dealt = needed < 132 * 8 ? (int)needed : 132 * 8;
  const auto times = [](int step) { return TWICE & step ? 2 : 1; };
  int error = cudaSuccess;
  for (int n = 0; n < times(1) && error == cudaSuccess; n++) error = launch(cat0, dealt, THREADS, stream, own, tensors[2], tensors[1]);
  void* const products[] = {squares, own};
  for (int n = 0; n < times(2) && error == cudaSuccess; n++) error = product_launch(own + X + SQUARES + PACKED, products, stream);
  for (int n = 0; n < times(4) && error == cudaSuccess; n++) error = launch(index_pairs, blocks, 384, stream, pairs, squares);
  for (int n = 0; n < times(8) && error == cudaSuccess; n++) error = launch(cat1, blocks, 480, stream, tensors[0], tensors[2], pairs);
  return error;
}
