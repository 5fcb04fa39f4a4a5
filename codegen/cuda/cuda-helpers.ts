/**
 * @file Helper functions of a CUDA source for operations that the language does not have: asynchronous copies, matrix
 * loads from shared memory, conversions.
 *
 *     copy_async<16>(&a_ring[i], &x[j]);                 cp.async.cg.shared.global
 *     load_4_matrices(a, b, c, d, &a_ring[i]);           ldmatrix.sync.aligned.m8n8.x4.shared.b16
 *
 * Semantics and requirements: PTX ISA, Data Movement and Conversion Instructions. The same functions for a CPU are in
 * runtime/emulation/cuda-memory.h.
 */

import { upTo } from "../../abstraction/collections.ts";
import { apart, type Code, code, identifier, join, list, NOTHING } from "../../abstraction/source-text.ts";
import { type Helpers, helpersOf, namesCalled, replacedBy } from "../cpp/cpp-helpers.ts";

/**
 * `load_4_matrices(a, b, c, d, row)`: `row` points to this lane's row, and lanes 8*i to 8*i+7 supply the rows of matrix
 * i.
 */
const loadMatrices = (count: 1 | 2 | 4, form: ".trans" | ""): Helpers => {
  const words = (["a", "b", "c", "d"] as const).slice(0, count);
  const outputs = join(
    words.map((_, i) => code`%${i}`),
    code`,`,
  );
  const name = `load_${count}_matri${count === 1 ? "x" : "ces"}${form === "" ? "" : "_transposed"}`;
  const results = list(words.map((w) => code`unsigned& ${w}`));
  const text = code`static __device__ inline void ${identifier(name)}(${results}, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x${count}${form}.shared.b16 {${outputs}}, [%${count}];"
    : ${list(words.map((w) => code`"=r"(${w})`))} : "r"(@shared_address(row)) : "memory");
}`;
  return { [name]: text };
};

/** A statement for each rank, selected by the template parameter. */
function byRank(ranks: readonly number[], statement: (rank: number) => Code): Code {
  return join(
    ranks.map((rank) => code`if constexpr (RANK == ${rank}) ${statement(rank)}`),
    code`\n  `,
  );
}

const INTO = code`shared::cluster.global`;
const operands = (first: number, count: number): Code => list(upTo(count).map((i) => code`%${first + i}`));
const places = (rank: number): Code[] => upTo(rank).map((i) => code`"r"(at[${i}])`);
const taps = (count: number): Code[] => upTo(count).map((i) => code`"h"((uint16_t)offset[${i}])`);

/** A request to the engine for a box or for pixels; `shared`: for every block of a cluster. */
function requested(what: "box" | "pixels", shared: boolean, rank: number): Code {
  const offsets = what === "box" ? 0 : rank - 2;
  const given = list([
    code`"r"(@shared_address(to)), "l"(map), "r"(@shared_address(arrival))`,
    ...places(rank),
    ...taps(offsets),
    ...(shared ? [code`"h"((uint16_t)((1 << BLOCKS) - 1))`] : []),
  ]);
  const mode = what === "box" ? NOTHING : code`.im2col`;
  const to = shared ? code`.multicast::cluster` : NOTHING;
  const off = what === "box" ? NOTHING : code`, {${operands(3 + rank, offsets)}}`;
  const mask = shared ? code`, %${3 + rank + offsets}` : NOTHING;
  return code`asm volatile("cp.async.bulk.tensor.${rank}d.${INTO}${mode}.mbarrier::complete_tx::bytes${to} [%0], [%1, {${operands(3, rank)}}], [%2]${off}${mask};" :: ${given} : "memory");`;
}

/** A box of shared memory as the engine stores it. */
const storedBox = (rank: number): Code =>
  code`asm volatile("cp.async.bulk.tensor.${rank}d.global.shared::cta.bulk_group [%0, {${operands(2, rank)}}], [%1];" :: ${list([code`"l"(map), "r"(@shared_address(from))`, ...places(rank)])} : "memory");`;

/** An instruction on pairs of f16. */
function pairs(name: string, operation: "fma" | "mul" | "add"): Code {
  const parameters = (["a", "b", "c"] as const).slice(0, operation === "fma" ? 3 : 2);
  return code`static __device__ inline uint32_t ${identifier(name)}(${list(parameters.map((p) => code`uint32_t ${p}`))}) {
  uint32_t y;
  asm("${identifier(operation)}.rn.f16x2 ${list(["y", ...parameters].map((_, i) => code`%${i}`))};" : "=r"(y) : ${list(parameters.map((p) => code`"r"(${p})`))});
  return y;
}`;
}

/** PTX and other text for a GPU alone. */
const DEVICE: Helpers = {
  shared_address: code`static __device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }`,
  dynamic_shared: code`static __device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return memory;
}`,
  copy_async: code`template <int BYTES> static __device__ inline void copy_async(void* to, const void* from) {
  if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(@shared_address(to)), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(@shared_address(to)), "l"(from), "n"(BYTES) : "memory");
}`,
  copy_async_where: code`/* Copies elements of a tensor; where they are outside nothing is read, and zeros are written. */
template <int BYTES, class T> static __device__ inline void copy_async_where(bool inside, void* to, const T* tensor, long at) {
  const T* from = inside ? tensor + at : tensor;
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(@shared_address(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(@shared_address(to)), "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0) : "memory");
}`,
  driver_entry: code`#include <cuda.h>
/* A function of the driver, which nothing is linked with; looked up once, whichever thread comes first. */
template <class F> struct driver_entry {
  F call = nullptr;
  cudaError_t error;
  explicit driver_entry(const char* name) {
    cudaDriverEntryPointQueryResult found;
    error = cudaGetDriverEntryPointByVersion(name, (void**)&call, 12000, cudaEnableDefault, &found);
    if (error == cudaSuccess && call == nullptr) error = cudaErrorNotSupported;
  }
};
static inline CUtensorMapDataType bits_of(unsigned bytes) {
  return bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32;
}
static inline CUtensorMapSwizzle swizzle_of(unsigned span) {
  return span == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : span == 32 ? CU_TENSOR_MAP_SWIZZLE_32B : CU_TENSOR_MAP_SWIZZLE_NONE;
}`,
  describe_box: code`/* cuTensorMapEncodeTiled: a tensor, innermost dimension first, and the box that the engine copies at once, its rows swizzled over their width. */
template <int RANK> static inline cudaError_t describe_box(CUtensorMap* map, const void* tensor, unsigned bytes, const uint64_t (&extents)[RANK], const uint64_t (&pitches)[RANK - 1], const unsigned (&box)[RANK]) {
  static const @driver_entry<decltype(&cuTensorMapEncodeTiled)> encode("cuTensorMapEncodeTiled");
  if (encode.error != cudaSuccess) return encode.error;
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  const CUresult result = encode.call(map, bits_of(bytes), RANK, (void*)tensor, (const cuuint64_t*)extents, (const cuuint64_t*)pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box[0] * bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}`,
  describe_pixels: code`/* cuTensorMapEncodeIm2col: a tensor and the walk through its inner dimensions, each from a first position to a last one, relative to the tensor's last, in steps. */
template <int RANK> static inline cudaError_t describe_pixels(CUtensorMap* map, const void* tensor, unsigned bytes, const uint64_t (&extents)[RANK], const uint64_t (&pitches)[RANK - 1], const int (&first)[RANK - 2], const int (&last)[RANK - 2], const unsigned (&step)[RANK - 2], unsigned columns, unsigned count) {
  static const @driver_entry<decltype(&cuTensorMapEncodeIm2col)> encode("cuTensorMapEncodeIm2col");
  if (encode.error != cudaSuccess) return encode.error;
  cuuint32_t steps[] = {1, 1, 1, 1, 1};
  for (int i = 0; i < RANK - 2; i++) steps[i + 1] = step[i];
  const CUresult result = encode.call(map, bits_of(bytes), RANK, (void*)tensor, (const cuuint64_t*)extents, (const cuuint64_t*)pitches, first, last, columns, count, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(columns * bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}`,
  init_arrivals: code`/* Barriers: a phase completes when so many threads have arrived, or when one thread has announced a number of bytes and these have arrived. */
static __device__ inline void init_arrivals(uint64_t* arrivals, int count, unsigned arriving) {
  if (threadIdx.x == 0)
    for (int i = 0; i < count; i++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(@shared_address(&arrivals[i])), "r"(arriving) : "memory");
}`,
  publish_arrivals: code`/* Makes the initialised barriers visible to the block's threads and to the copy engine. */
static __device__ inline void publish_arrivals() {
  if (threadIdx.x == 0) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
}`,
  expect_bytes: code`static __device__ inline void expect_bytes(uint64_t* arrival, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(@shared_address(arrival)), "r"(bytes) : "memory");
}`,
  copy_box: code`/* Copies the box that begins at these positions; zeros where it is outside the tensor. */
template <int RANK> static __device__ inline void copy_box(void* to, const CUtensorMap* map, const int (&at)[RANK], uint64_t* arrival) {
  ${byRank([2, 3, 4, 5], (rank) => requested("box", false, rank))}
}`,
  share_box: code`/* The same for every block of the cluster: into the same place of each, and for the same barrier of each. */
template <int RANK, int BLOCKS> static __device__ inline void share_box(void* to, const CUtensorMap* map, const int (&at)[RANK], uint64_t* arrival) {
  ${byRank([2, 3, 4, 5], (rank) => requested("box", true, rank))}
}`,
  store_box: code`/* Stores the box that begins at these positions from shared memory, as far as it is inside the tensor. */
template <int RANK> static __device__ inline void store_box(const CUtensorMap* map, const int (&at)[RANK], const void* from) {
  ${byRank([2, 3, 4, 5], storedBox)}
}`,
  commit_stores: code`static __device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }`,
  wait_for_stores: code`/* Waits until all but the newest of what this thread stores has been read. */
template <int PENDING> static __device__ inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory"); }`,
  store_4_matrices: code`/* Each thread of a warp names a row of one of four matrices of 8 x 8 words of 16 bits, and gives a pair of each. */
static __device__ inline void store_4_matrices(void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(@shared_address(row)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}`,
  store_2_matrices: code`/* The same for two matrices, of which the first sixteen threads name the rows. */
static __device__ inline void store_2_matrices(void* row, unsigned a, unsigned b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" :: "r"(@shared_address(row)), "r"(a), "r"(b) : "memory");
}`,
  copy_pixels: code`/* Copies pixels along the walk from these positions on, all with the same offset; zeros where they are outside the tensor. */
template <int RANK> static __device__ inline void copy_pixels(void* to, const CUtensorMap* map, const int (&at)[RANK], const int (&offset)[RANK - 2], uint64_t* arrival) {
  ${byRank([3, 4, 5], (rank) => requested("pixels", false, rank))}
}`,
  share_pixels: code`/* The same for every block of the cluster: into the same place of each, and for the same barrier of each. */
template <int RANK, int BLOCKS> static __device__ inline void share_pixels(void* to, const CUtensorMap* map, const int (&at)[RANK], const int (&offset)[RANK - 2], uint64_t* arrival) {
  ${byRank([3, 4, 5], (rank) => requested("pixels", true, rank))}
}`,
  await_arrival: code`/* Waits until the phase of this parity is complete. */
static __device__ inline void await_arrival(uint64_t* arrival, unsigned parity) {
  unsigned there = 0;
  while (there == 0)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(there) : "r"(@shared_address(arrival)), "r"(parity) : "memory");
}`,
  arrive_at: code`/* One thread of each warp arrives, after all that the warp did before. */
static __device__ inline void arrive_at(uint64_t* arrival) {
  if (threadIdx.x % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(@shared_address(arrival)) : "memory");
}`,
  arrive_in_blocks: code`/* One thread of each warp arrives in each block of the cluster, after all that the warp did before. */
template <int BLOCKS> static __device__ inline void arrive_in_blocks(uint64_t* arrival) {
  const unsigned block = threadIdx.x % 32;
  if (block < BLOCKS)
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }"
      :: "r"(@shared_address(arrival)), "r"(block) : "memory");
}`,
  barrier_of_group: code`/* Waits for the four warps of this thread's warpgroup; barrier 0 is that of the block. */
static __device__ inline void barrier_of_group() { asm volatile("bar.sync %0, 128;" :: "r"(1 + threadIdx.x / 128) : "memory"); }`,
  barrier_of_cluster: code`/* Waits for all threads of the cluster; what they wrote to shared memory before is then visible to all. */
static __device__ inline void barrier_of_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}`,
  cluster_has_begun: code`/* Waits until all blocks of the cluster run, so that their shared memory may be written. Orders no earlier writes. */
static __device__ inline void cluster_has_begun() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}`,
  in_block: code`/* The same address in the shared memory of another block of the cluster. */
template <class T> static __device__ inline T* in_block(T* own, unsigned block) {
  uint64_t place;
  asm("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"((uint64_t)own), "r"(block));
  return (T*)place;
}`,
  launch_with: code`/* Launches blocks in clusters. An early launch may start while the kernel before it runs, when that one allows it; this kernel then waits for its end itself. */
template <class K> static cudaError_t launch_with(K* kernel, unsigned cluster, int early, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = cluster, attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = early;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = grid, launch.blockDim = block, launch.dynamicSmemBytes = shared, launch.stream = stream;
  launch.attrs = cluster > 1 ? attributes : attributes + 1, launch.numAttrs = (cluster > 1) + early;
  return cudaLaunchKernelExC(&launch, (const void*)kernel, arguments);
}`,
  begin_next_kernel: code`/* Lets the dependent kernel be launched once every block has come here. */
static __device__ inline void begin_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }`,
  await_kernel_ahead: code`/* Waits until the kernel before has ended and its writes are visible. */
static __device__ inline void await_kernel_ahead() { asm volatile("griddepcontrol.wait;" ::: "memory"); }`,
  commit_copies: code`static __device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }`,
  wait_for_copies: code`/* Waits for all but the newest groups of this thread's copies. */
template <int NEWEST> static __device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(NEWEST) : "memory"); }`,
  use_behind: code`/* Nothing is calculated of a value before a sum is there: ptxas would do so ahead of the products, and wait for memory. No product is this NaN. */
static __device__ inline void use_behind(float& value, float sum) {
  asm volatile("{ .reg .pred p; setp.eq.u32 p, %1, 0x7fa5a5a5; selp.f32 %0, %2, %0, p; }" : "+f"(value) : "r"(__float_as_uint(sum)), "f"(sum));
}`,
  held: code`/* Keeps an address in its register. A compiler that recomputes it between the last products of a loop and their wait serialises the products. */
template <class T> static __device__ inline T held(T place) {
  if constexpr (sizeof place == 8) asm volatile("" : "+l"(place));
  else asm volatile("" : "+r"(place));
  __builtin_assume(place >= 0);
  return place;
}`,
  ...loadMatrices(1, ""),
  ...loadMatrices(2, ""),
  ...loadMatrices(4, ""),
  ...loadMatrices(1, ".trans"),
  ...loadMatrices(2, ".trans"),
  ...loadMatrices(4, ".trans"),
  // Round to nearest, ties to even, as in cpp-helpers.ts. NaN may have other bits.
  to_f16: code`static __device__ inline uint16_t to_f16(float f) { uint16_t x; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(f)); return x; }`,
  from_f16: code`static __device__ inline float from_f16(uint16_t x) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x)); return f; }`,
  to_bf16: code`static __device__ inline uint16_t to_bf16(float f) { uint16_t x; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(x) : "f"(f)); return x; }`,
  prefetch_line: code`static __device__ inline void prefetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }`,
  // Pairs of f16 in a word: half2. Each result is rounded once.
  spread_half: code`static __device__ inline uint32_t spread_half(uint16_t x) { uint32_t y; asm("mov.b32 %0, {%1, %1};" : "=r"(y) : "h"(x)); return y; }`,
  joined_halves: code`/* Two elements of two pairs, by their bytes. */
template <unsigned BYTES> static __device__ inline uint32_t joined_halves(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "n"(BYTES));
  return y;
}`,
  small_halves: code`/* Numbers of a word, below 1024 in each half, as 1024 more in f16. */
template <unsigned MASK> static __device__ inline uint32_t small_halves(uint32_t a) {
  uint32_t y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(a), "n"(MASK), "r"(0x64006400u));
  return y;
}`,
  fma_halves: pairs("fma_halves", "fma"),
  multiplied_halves: pairs("multiplied_halves", "mul"),
  added_halves: pairs("added_halves", "add"),
};

/** Functions for both GPU and CPU. */
const PORTABLE: Helpers = {
  Piece: code`/* Elements that move together. */
template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Piece { T values[N]; typedef T Element; };`,
  exchange_in_quad: code`/* Word i of lane q of four becomes word q of lane i. */
static __device__ inline void exchange_in_quad(unsigned (&words)[4]) {
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = threadIdx.x & bit;
    for (int i = 0; i < 4; i++) {
      if (i & bit) continue;
      const unsigned got = __shfl_xor_sync(~0u, upper ? words[i] : words[i + bit], bit);
      words[i] = upper ? got : words[i];
      words[i + bit] = upper ? words[i + bit] : got;
    }
  }
}`,
  take_words: code`static __device__ inline void take_words(unsigned (&words)[4], const @Piece<unsigned, 4>& from) {
  for (int i = 0; i < 4; i++) words[i] = from.values[i];
}`,
  filled: code`template <class P> static __device__ inline P filled(typename P::Element value) {
  P piece;
  for (auto& element : piece.values) element = value;
  return piece;
}`,
};

/** The GPU features that functions require. */
const FEATURES: Readonly<Record<string, string>> = {
  copy_async: "cp_async",
  copy_async_where: "cp_async",
  driver_entry: "tma",
  init_arrivals: "mbarrier_tx",
  publish_arrivals: "mbarrier_tx",
  expect_bytes: "mbarrier_tx",
  copy_box: "tma",
  copy_pixels: "tma",
  store_box: "tma",
  store_2_matrices: "tma",
  store_4_matrices: "tma",
  await_arrival: "mbarrier_tx",
  arrive_at: "mbarrier_tx",
  share_box: "cluster",
  share_pixels: "cluster",
  arrive_in_blocks: "cluster",
  barrier_of_cluster: "cluster",
  cluster_has_begun: "cluster",
  in_block: "cluster",
  launch_with: "cluster",
  begin_next_kernel: "dependent_launch",
  await_kernel_ahead: "dependent_launch",
  commit_copies: "cp_async",
  wait_for_copies: "cp_async",
  to_bf16: "sm_80",
  load_1_matrix: "ldmatrix",
  load_2_matrices: "ldmatrix",
  load_4_matrices: "ldmatrix",
  load_1_matrix_transposed: "ldmatrix",
  load_2_matrices_transposed: "ldmatrix",
  load_4_matrices_transposed: "ldmatrix",
};

const HELPERS: Helpers = replacedBy({ ...DEVICE, ...PORTABLE }, helpersOf("static __device__ inline"));

/** The functions that texts call, behind those that an instruction requires, and the features of a GPU that they require. */
export function deviceCode(
  texts: readonly Code[],
  required: readonly Code[],
): { readonly text: readonly Code[]; readonly features: readonly string[] } {
  const called = namesCalled(texts, HELPERS);
  const textOf = (name: string): Code => apart(HELPERS[name] ?? NOTHING);
  const device = [...required, ...called.filter((name) => DEVICE[name]).map(textOf)];
  const portable = called.filter((name) => !DEVICE[name]).map(textOf);
  const only = code`#ifdef __CUDACC__ /* for a GPU; an emulation on the host has its own functions */`;
  return {
    text: [...(device.length > 0 ? [only, ...device, code`#endif`] : []), ...portable],
    features: called.flatMap((name) => FEATURES[name] ?? []),
  };
}
