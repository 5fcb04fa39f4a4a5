/*
 * out[i,j] += f32(x[i,l]) * f32(y[l,j])
 * out: f32[i 64, j 32], element at i*32 + j
 * x: f16[i 64, l 64], element at i*64 + l
 * y: f16[l 64, j 32], element at l*32 + j
 * mma.m16n8k16.f32.f16: c f32 frag[4*(4*(m%8) + n/2) + 2*(m/8) + n%2], a f16 frag[8*(4*(m%8) + k%8/2) + 4*(k/8) + 2*(m/8) + k%2], b f16 frag[4*(4*n + k%8/2) + 2*(k/8) + k%2]
 * mapping   m <- i   n <- j   k <- l
 * schedule  tile m 32, n 16, k 16; warps m 2; stage 3
 */
#include <stdint.h>
#include <string.h>
#ifdef __CUDACC__ /* for a GPU; an emulation on the host has its own functions */
#ifndef AUTOMAP_FRAGMENT
#define AUTOMAP_FRAGMENT
/* A memory tile is the fragment: lane 0's registers, then lane 1's ... */
template <class T, int N> __device__ inline void load_fragment(T (&reg)[N], const void* tile) {
  for (int i = 0; i < N; i++) reg[i] = ((const T*)tile)[N * (threadIdx.x % 32) + i];
}
template <class T, int N> __device__ inline void store_fragment(void* tile, const T (&reg)[N]) {
  for (int i = 0; i < N; i++) ((T*)tile)[N * (threadIdx.x % 32) + i] = reg[i];
}
#endif

__device__ inline void mma_m16n8k16_f32_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
template <int BYTES> static __device__ inline void copy_async(void* to, const void* from) {
  if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(shared_address(to)), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(shared_address(to)), "l"(from), "n"(BYTES) : "memory");
}
static __device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits for all but the newest groups of this thread's copies. */
template <int NEWEST> static __device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(NEWEST) : "memory"); }
static __device__ inline void load_4_matrices(unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(row)) : "memory");
}
static __device__ inline void load_4_matrices_transposed(unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(row)) : "memory");
}
#endif
/* Elements that move together. */
template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Piece { T values[N]; typedef T Element; };

static __global__ void __launch_bounds__(64) phase_0(float* __restrict__ out, const uint16_t* __restrict__ x, const uint16_t* __restrict__ y) {
  __shared__ __align__(128) uint16_t a_ring[1536];
  __shared__ __align__(128) uint16_t b_ring[768];
  const int m_tile = blockIdx.x / 2;
  const int n_tile = blockIdx.x % 2;
  const int warp_m = threadIdx.x / 32;
  const int thread = threadIdx.x % 64;
  const int lane = threadIdx.x % 32;
  float c[2][4];
  unsigned a[1][4];
  unsigned b[2][2];
  const int a_ring_to = 16 * (thread / 2) + 8 * ((thread % 2) ^ (thread / 8 % 2));
  const int x_from = 2048 * m_tile + 64 * (thread / 2) + 8 * (thread % 2);
  const int b_ring_to = 16 * (thread / 2) + 8 * ((thread % 2) ^ (thread / 8 % 2));
  const int y_from = 32 * (thread / 2) + 16 * n_tile + 8 * (thread % 2);
  const int a_ring_row = 256 * warp_m + 16 * (lane % 16) + 8 * ((lane / 16) ^ (lane / 4 % 2));
  const int b_ring_row = 16 * (lane % 16) + 8 * ((lane / 16) ^ (lane / 4 % 2));
  const int out_to = 1024 * m_tile + 512 * warp_m + 32 * (lane / 4) + 16 * n_tile + 2 * (lane % 4);
  // for unrolled j in 0..2
  //   c{j} <- identity
  for (auto& word : c[0]) word = 0;
  for (auto& word : c[1]) word = 0;
  // copy m_in 32, k_in 16 by 8, async, by block   a_ring[0,m_in,k_in] = x[32*m_tile+m_in,k_in]
  copy_async<16>(&a_ring[a_ring_to], &x[x_from]);
  // copy k_in 16, n_in 16 by 8, async, by block   b_ring[0,k_in,n_in] = y[k_in,16*n_tile+n_in]
  if (thread < 32) copy_async<16>(&b_ring[b_ring_to], &y[y_from]);
  commit_copies();
  // copy m_in 32, k_in 16 by 8, async, by block   a_ring[1,m_in,k_in] = x[32*m_tile+m_in,16+k_in]
  copy_async<16>(&a_ring[a_ring_to + 512], &x[x_from + 16]);
  // copy k_in 16, n_in 16 by 8, async, by block   b_ring[1,k_in,n_in] = y[16+k_in,16*n_tile+n_in]
  if (thread < 32) copy_async<16>(&b_ring[b_ring_to + 256], &y[y_from + 512]);
  commit_copies();
  #pragma unroll 1
  for (int k_tile = 0, k_tile_2_in_3 = 2, k_tile_in_3 = 0; k_tile < 4; k_tile++) {
    wait_for_copies<1>();
    __syncthreads();
    // copy m_in 32, k_in 16 by 8, async, by block where k_tile+2 < 4   a_ring[(k_tile+2)%3,m_in,k_in] = x[32*m_tile+m_in,16*(k_tile+2)+k_in]
    if (k_tile + 2 < 4) {
      copy_async<16>(&a_ring[a_ring_to + 512 * k_tile_2_in_3], &x[x_from + 16 * k_tile + 32]);
    }
    // copy k_in 16, n_in 16 by 8, async, by block where k_tile+2 < 4   b_ring[(k_tile+2)%3,k_in,n_in] = y[16*(k_tile+2)+k_in,16*n_tile+n_in]
    if (k_tile + 2 < 4) {
      if (thread < 32) copy_async<16>(&b_ring[b_ring_to + 256 * k_tile_2_in_3], &y[y_from + 512 * k_tile + 1024]);
    }
    commit_copies();
    load_4_matrices(a[0][0], a[0][1], a[0][2], a[0][3], &a_ring[a_ring_row + 512 * k_tile_in_3]);
    load_4_matrices_transposed(b[0][0], b[0][1], b[1][0], b[1][1], &b_ring[b_ring_row + 256 * k_tile_in_3]);
    // for unrolled j in 0..2
    //   c{j} <- mma.m16n8k16.f32.f16(a{0}, b{j})
    mma_m16n8k16_f32_f16(c[0], a[0], b[0]);
    mma_m16n8k16_f32_f16(c[1], a[0], b[1]);
    k_tile_2_in_3 = k_tile_2_in_3 == 2 ? 0 : k_tile_2_in_3 + 1;
    k_tile_in_3 = k_tile_in_3 == 2 ? 0 : k_tile_in_3 + 1;
  }
  // for unrolled j in 0..2
  //   for x_m, x_n of c{j}   out[32*m_tile+16*warp_m+x_m,16*n_tile+8*j+x_n] = sum[]
  *(Piece<float, 2>*)&out[out_to] = {{c[0][0], c[0][1]}};
  *(Piece<float, 2>*)&out[out_to + 256] = {{c[0][2], c[0][3]}};
  *(Piece<float, 2>*)&out[out_to + 8] = {{c[1][0], c[1][1]}};
  *(Piece<float, 2>*)&out[out_to + 264] = {{c[1][2], c[1][3]}};
}

extern "C" unsigned long automap_workspace_bytes(void) { return 64; }

extern "C" int automap_allow(void) {
  return cudaSuccess;
}

extern "C" int automap_prepare(void* workspace, const void* const* tensors, cudaStream_t stream) {
  (void)workspace, (void)tensors, (void)stream;
  return automap_allow();
}

extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {
  (void)workspace;
  if ((uintptr_t)tensors[0] % 8 != 0 || (uintptr_t)tensors[1] % 16 != 0 || (uintptr_t)tensors[2] % 16 != 0) return cudaErrorMisalignedAddress;
  cudaError_t error = cudaSuccess;
  {
    float* out = (float*)tensors[0];
    const uint16_t* x = (const uint16_t*)tensors[1];
    const uint16_t* y = (const uint16_t*)tensors[2];
    void* arguments[] = {(void*)&out, (void*)&x, (void*)&y};
    error = cudaLaunchKernel(phase_0, dim3(4), dim3(64), arguments, 0, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
