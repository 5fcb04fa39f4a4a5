/*
 * out[m,n] += f32(a[m,k]) * f32(b[k,n])
 * out: f32[m 21, n 19], element at m*19 + n
 * a: f16[m 21, k 37], element at m*37 + k
 * b: f16[k 37, n 19], element at k*19 + n
 * opencl.dpas.8x16.f32.f16: c f32 dwords[16*m + n], a f16 words[16*m + k], b f16 dwords[32*(k/2) + 2*n + k%2]
 * mapping   m <- n   n <- m   k <- k   waste 60.0 %
 * schedule  order m n k; block n 2; placement a padded, b tiled; threads 3
 * made by   automap
 */
#pragma OPENCL FP_CONTRACT OFF
typedef uchar uint8_t;
typedef ushort uint16_t;
#ifdef __OPENCL_VERSION__
__attribute__((overloadable)) float8 intel_sub_group_f16_f16_matrix_mad_k16(short8, int8, float8);
#endif
static inline short8 global_short8(global const void* from, int stride) {
  global const uchar* row = (global const uchar*)from + 2 * get_sub_group_local_id();
  short8 tile;
  tile.s0 = as_short(vload2(0, row + 0 * stride));
  tile.s1 = as_short(vload2(0, row + 1 * stride));
  tile.s2 = as_short(vload2(0, row + 2 * stride));
  tile.s3 = as_short(vload2(0, row + 3 * stride));
  tile.s4 = as_short(vload2(0, row + 4 * stride));
  tile.s5 = as_short(vload2(0, row + 5 * stride));
  tile.s6 = as_short(vload2(0, row + 6 * stride));
  tile.s7 = as_short(vload2(0, row + 7 * stride));
  return tile;
}
static inline short8 local_short8(local const void* from, int stride) {
  local const uchar* row = (local const uchar*)from + 2 * get_sub_group_local_id();
  short8 tile;
  tile.s0 = as_short(vload2(0, row + 0 * stride));
  tile.s1 = as_short(vload2(0, row + 1 * stride));
  tile.s2 = as_short(vload2(0, row + 2 * stride));
  tile.s3 = as_short(vload2(0, row + 3 * stride));
  tile.s4 = as_short(vload2(0, row + 4 * stride));
  tile.s5 = as_short(vload2(0, row + 5 * stride));
  tile.s6 = as_short(vload2(0, row + 6 * stride));
  tile.s7 = as_short(vload2(0, row + 7 * stride));
  return tile;
}
static inline short8 block_short8(global const void* from, int stride) {
  global const ushort* row = (global const ushort*)from;
  if (stride == 32) return as_short8(intel_sub_group_block_read_us8(row));
  short8 tile;
  tile.s0 = as_short(intel_sub_group_block_read_us(row + 0 * (stride / 2)));
  tile.s1 = as_short(intel_sub_group_block_read_us(row + 1 * (stride / 2)));
  tile.s2 = as_short(intel_sub_group_block_read_us(row + 2 * (stride / 2)));
  tile.s3 = as_short(intel_sub_group_block_read_us(row + 3 * (stride / 2)));
  tile.s4 = as_short(intel_sub_group_block_read_us(row + 4 * (stride / 2)));
  tile.s5 = as_short(intel_sub_group_block_read_us(row + 5 * (stride / 2)));
  tile.s6 = as_short(intel_sub_group_block_read_us(row + 6 * (stride / 2)));
  tile.s7 = as_short(intel_sub_group_block_read_us(row + 7 * (stride / 2)));
  return tile;
}
static inline int8 global_int8(global const void* from, int stride) {
  global const uchar* row = (global const uchar*)from + 4 * get_sub_group_local_id();
  int8 tile;
  tile.s0 = as_int(vload4(0, row + 0 * stride));
  tile.s1 = as_int(vload4(0, row + 1 * stride));
  tile.s2 = as_int(vload4(0, row + 2 * stride));
  tile.s3 = as_int(vload4(0, row + 3 * stride));
  tile.s4 = as_int(vload4(0, row + 4 * stride));
  tile.s5 = as_int(vload4(0, row + 5 * stride));
  tile.s6 = as_int(vload4(0, row + 6 * stride));
  tile.s7 = as_int(vload4(0, row + 7 * stride));
  return tile;
}
static inline int8 local_int8(local const void* from, int stride) {
  local const uchar* row = (local const uchar*)from + 4 * get_sub_group_local_id();
  int8 tile;
  tile.s0 = as_int(vload4(0, row + 0 * stride));
  tile.s1 = as_int(vload4(0, row + 1 * stride));
  tile.s2 = as_int(vload4(0, row + 2 * stride));
  tile.s3 = as_int(vload4(0, row + 3 * stride));
  tile.s4 = as_int(vload4(0, row + 4 * stride));
  tile.s5 = as_int(vload4(0, row + 5 * stride));
  tile.s6 = as_int(vload4(0, row + 6 * stride));
  tile.s7 = as_int(vload4(0, row + 7 * stride));
  return tile;
}
static inline int8 block_int8(global const void* from, int stride) {
  global const uint* row = (global const uint*)from;
  if (stride == 64) return as_int8(intel_sub_group_block_read8(row));
  int8 tile;
  tile.s0 = as_int(intel_sub_group_block_read(row + 0 * (stride / 4)));
  tile.s1 = as_int(intel_sub_group_block_read(row + 1 * (stride / 4)));
  tile.s2 = as_int(intel_sub_group_block_read(row + 2 * (stride / 4)));
  tile.s3 = as_int(intel_sub_group_block_read(row + 3 * (stride / 4)));
  tile.s4 = as_int(intel_sub_group_block_read(row + 4 * (stride / 4)));
  tile.s5 = as_int(intel_sub_group_block_read(row + 5 * (stride / 4)));
  tile.s6 = as_int(intel_sub_group_block_read(row + 6 * (stride / 4)));
  tile.s7 = as_int(intel_sub_group_block_read(row + 7 * (stride / 4)));
  return tile;
}
static inline float8 global_sums(global const void* from, int stride) {
  global const float* row = (global const float*)from + get_sub_group_local_id();
  float8 tile;
  tile.s0 = row[0 * (stride / 4)];
  tile.s1 = row[1 * (stride / 4)];
  tile.s2 = row[2 * (stride / 4)];
  tile.s3 = row[3 * (stride / 4)];
  tile.s4 = row[4 * (stride / 4)];
  tile.s5 = row[5 * (stride / 4)];
  tile.s6 = row[6 * (stride / 4)];
  tile.s7 = row[7 * (stride / 4)];
  return tile;
}
static inline void global_put(global void* to, int stride, float8 tile) {
  global float* row = (global float*)to + get_sub_group_local_id();
  row[0 * (stride / 4)] = tile.s0;
  row[1 * (stride / 4)] = tile.s1;
  row[2 * (stride / 4)] = tile.s2;
  row[3 * (stride / 4)] = tile.s3;
  row[4 * (stride / 4)] = tile.s4;
  row[5 * (stride / 4)] = tile.s5;
  row[6 * (stride / 4)] = tile.s6;
  row[7 * (stride / 4)] = tile.s7;
}
static inline float8 local_sums(local const void* from, int stride) {
  local const float* row = (local const float*)from + get_sub_group_local_id();
  float8 tile;
  tile.s0 = row[0 * (stride / 4)];
  tile.s1 = row[1 * (stride / 4)];
  tile.s2 = row[2 * (stride / 4)];
  tile.s3 = row[3 * (stride / 4)];
  tile.s4 = row[4 * (stride / 4)];
  tile.s5 = row[5 * (stride / 4)];
  tile.s6 = row[6 * (stride / 4)];
  tile.s7 = row[7 * (stride / 4)];
  return tile;
}
static inline void local_put(local void* to, int stride, float8 tile) {
  local float* row = (local float*)to + get_sub_group_local_id();
  row[0 * (stride / 4)] = tile.s0;
  row[1 * (stride / 4)] = tile.s1;
  row[2 * (stride / 4)] = tile.s2;
  row[3 * (stride / 4)] = tile.s3;
  row[4 * (stride / 4)] = tile.s4;
  row[5 * (stride / 4)] = tile.s5;
  row[6 * (stride / 4)] = tile.s6;
  row[7 * (stride / 4)] = tile.s7;
}

__attribute__((intel_reqd_sub_group_size(16)))
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void automap_prepare(global uint8_t* restrict workspace, global float* restrict out, global const uint16_t* restrict a, global const uint16_t* restrict b) {
  const int part = get_group_id(0), parts = get_num_groups(0);
  const int lane = get_sub_group_local_id();
}

__attribute__((intel_reqd_sub_group_size(16)))
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void automap_phase_0(global uint8_t* restrict workspace, global float* restrict out, global const uint16_t* restrict a, global const uint16_t* restrict b) {
  const int part = get_group_id(0), parts = get_num_groups(0);
  const int lane = get_sub_group_local_id();
  global uint16_t* const b_padded = (global uint16_t*)(workspace + 0);
  global uint16_t* const b_tiles = (global uint16_t*)(workspace + 2368);
  for (int step = part; step < 19; step += parts) {
    const int n_copy = step;
    for (int k_copy = lane; k_copy < 37; k_copy += 16) {
      b_padded[n_copy * 48 + k_copy] = b[k_copy * 19 + n_copy];
    }
  }
  for (int step = part; step < 96; step += parts) {
    const int m_step = step / 48;
    const int k_step = step / 16 % 3;
    const int k_inner = step % 16;
    for (int n_inner = lane; n_inner < 16; n_inner += 16) {
      b_tiles[m_step * 768 + (k_step * 256) + (32 * (k_inner / 2) + (2 * n_inner) + (k_inner % 2))] = ((m_step * 16 + n_inner < 21 && k_step * 16 + k_inner < 37) ? (m_step * 16 + n_inner < 21 && k_step * 16 + k_inner < 37 ? a[(m_step * 16 + n_inner) * 37 + (k_step * 16 + k_inner)] : (uint16_t)0) : (uint16_t)0);
    }
  }
}

__attribute__((intel_reqd_sub_group_size(16)))
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void automap_phase_1(global uint8_t* restrict workspace, global float* restrict out, global const uint16_t* restrict a, global const uint16_t* restrict b) {
  const int part = get_group_id(0), parts = get_num_groups(0);
  const int lane = get_sub_group_local_id();
  global uint16_t* const b_padded = (global uint16_t*)(workspace + 0);
  global uint16_t* const b_tiles = (global uint16_t*)(workspace + 2368);
  __local float c_results[256];
  const int once = get_num_groups(1); /* 1; keeps the compiler from unrolling further */
  float8 c0;
  float8 c1;
  int8 b0;
  short8 a0;
  for (int step = part; step < 1; step += parts) {
    const int m_outer = step;
    c0 = 0;
    c1 = 0;
    for (int k_outer = 0; k_outer < 3 * once; k_outer++) {
      b0 = block_int8((b_tiles + k_outer * 256), 64);
      a0 = block_short8((b_padded + k_outer * 16), 96);
      c0 = intel_sub_group_f16_f16_matrix_mad_k16(a0, b0, c0);
      a0 = block_short8((b_padded + 384 + (k_outer * 16)), 96);
      c1 = intel_sub_group_f16_f16_matrix_mad_k16(a0, b0, c1);
    }
    local_put((c_results + 0), 64, c0);
    local_put((c_results + 128), 64, c1);
    sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (int n_inner = lane; n_inner < 16; n_inner += 16) {
      for (int n_block = 0; n_block < 2; n_block++) {
        for (int m_inner = 0; m_inner < 8; m_inner++) {
          out[n_inner * 19 + (n_block * 8 + m_inner)] = c_results[n_block * 128 + (16 * m_inner + n_inner)];
        }
      }
    }
    sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    c0 = 0;
    for (int k_outer = 0; k_outer < 3 * once; k_outer++) {
      b0 = block_int8((b_tiles + k_outer * 256), 64);
      a0 = block_short8((b_padded + 768 + (k_outer * 16)), 96);
      c0 = intel_sub_group_f16_f16_matrix_mad_k16(a0, b0, c0);
    }
    local_put((c_results + 0), 64, c0);
    sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (int n_inner = lane; n_inner < 16; n_inner += 16) {
      for (int m_inner = 0; m_inner < 3; m_inner++) {
        out[n_inner * 19 + (16 + m_inner)] = c_results[16 * m_inner + n_inner];
      }
    }
    sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  }
  for (int step = part; step < 1; step += parts) {
    const int m_rest = step;
    c0 = 0;
    c1 = 0;
    for (int k_outer = 0; k_outer < 3 * once; k_outer++) {
      b0 = block_int8((b_tiles + 768 + (k_outer * 256)), 64);
      a0 = block_short8((b_padded + k_outer * 16), 96);
      c0 = intel_sub_group_f16_f16_matrix_mad_k16(a0, b0, c0);
      a0 = block_short8((b_padded + 384 + (k_outer * 16)), 96);
      c1 = intel_sub_group_f16_f16_matrix_mad_k16(a0, b0, c1);
    }
    local_put((c_results + 0), 64, c0);
    local_put((c_results + 128), 64, c1);
    sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (int n_inner = 0; n_inner < 5; n_inner++) {
      for (int n_block = 0; n_block < 2; n_block++) {
        for (int m_inner = lane; m_inner < 8; m_inner += 16) {
          out[(16 + n_inner) * 19 + (n_block * 8 + m_inner)] = c_results[n_block * 128 + (16 * m_inner + n_inner)];
        }
      }
    }
    sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    c0 = 0;
    for (int k_outer = 0; k_outer < 3 * once; k_outer++) {
      b0 = block_int8((b_tiles + 768 + (k_outer * 256)), 64);
      a0 = block_short8((b_padded + 768 + (k_outer * 16)), 96);
      c0 = intel_sub_group_f16_f16_matrix_mad_k16(a0, b0, c0);
    }
    local_put((c_results + 0), 64, c0);
    sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (int n_inner = lane; n_inner < 5; n_inner += 16) {
      for (int m_inner = 0; m_inner < 3; m_inner++) {
        out[(16 + n_inner) * 19 + (16 + m_inner)] = c_results[16 * m_inner + n_inner];
      }
    }
    sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  }
}
