/*
 * out[m,n] += a[m,k] * b[k,n]
 * out: f32[m 5, n 37], element at m*37 + n
 * a: f32[m 5, k 9], element at m*9 + k
 * b: f32[k 9, n 37], element at k*37 + n
 * opencl.fma.f32.broadcast: c f32 wide[n], a f32 wide[n], b f32 wide[n]
 * mapping   n <- m   waste 68.8 %
 * schedule  order m n k; block n 19; placement a in-place, b tiled; threads 3
 * made by   automap
 */
#pragma OPENCL FP_CONTRACT OFF
typedef uchar uint8_t;

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void automap_prepare(global uint8_t* restrict workspace, global float* restrict out, global const float* restrict a, global const float* restrict b) {
  const int part = get_group_id(0), parts = get_num_groups(0);
}

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void automap_phase_0(global uint8_t* restrict workspace, global float* restrict out, global const float* restrict a, global const float* restrict b) {
  const int part = get_group_id(0), parts = get_num_groups(0);
  global float* const b_tiles = (global float*)(workspace + 0);
  for (int k_step = (int)(9L * part / parts); k_step < (int)(9L * (part + 1) / parts); k_step++) {
    for (int n_inner = 0; n_inner < 16; n_inner++) {
      b_tiles[k_step * 16 + n_inner] = (n_inner < 5 ? (n_inner < 5 ? a[n_inner * 9 + k_step] : 0.0f) : 0.0f);
    }
  }
}

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void automap_phase_1(global uint8_t* restrict workspace, global float* restrict out, global const float* restrict a, global const float* restrict b) {
  const int part = get_group_id(0), parts = get_num_groups(0);
  global float* const b_tiles = (global float*)(workspace + 0);
  float c_results[304];
  float16 c0;
  float16 c1;
  float16 c2;
  float16 c3;
  float16 c4;
  float16 c5;
  float16 c6;
  float16 c7;
  float16 c8;
  float16 c9;
  float16 c10;
  float16 c11;
  float16 c12;
  float16 c13;
  float16 c14;
  float16 c15;
  float16 c16;
  float16 c17;
  float16 c18;
  float16 b0;
  float16 a0;
  for (int m_rest = (int)(1L * part / parts); m_rest < (int)(1L * (part + 1) / parts); m_rest++) {
    c0 = 0;
    c1 = 0;
    c2 = 0;
    c3 = 0;
    c4 = 0;
    c5 = 0;
    c6 = 0;
    c7 = 0;
    c8 = 0;
    c9 = 0;
    c10 = 0;
    c11 = 0;
    c12 = 0;
    c13 = 0;
    c14 = 0;
    c15 = 0;
    c16 = 0;
    c17 = 0;
    c18 = 0;
    for (int k_outer = 0; k_outer < 9; k_outer++) {
      b0 = vload16(0, (global const float*)((b_tiles + k_outer * 16)));
      a0 = (float16)(*(global const float*)((b + k_outer * 37)));
      c0 = fma(a0, b0, c0);
      a0 = (float16)(*(global const float*)((b + 1 + (k_outer * 37))));
      c1 = fma(a0, b0, c1);
      a0 = (float16)(*(global const float*)((b + 2 + (k_outer * 37))));
      c2 = fma(a0, b0, c2);
      a0 = (float16)(*(global const float*)((b + 3 + (k_outer * 37))));
      c3 = fma(a0, b0, c3);
      a0 = (float16)(*(global const float*)((b + 4 + (k_outer * 37))));
      c4 = fma(a0, b0, c4);
      a0 = (float16)(*(global const float*)((b + 5 + (k_outer * 37))));
      c5 = fma(a0, b0, c5);
      a0 = (float16)(*(global const float*)((b + 6 + (k_outer * 37))));
      c6 = fma(a0, b0, c6);
      a0 = (float16)(*(global const float*)((b + 7 + (k_outer * 37))));
      c7 = fma(a0, b0, c7);
      a0 = (float16)(*(global const float*)((b + 8 + (k_outer * 37))));
      c8 = fma(a0, b0, c8);
      a0 = (float16)(*(global const float*)((b + 9 + (k_outer * 37))));
      c9 = fma(a0, b0, c9);
      a0 = (float16)(*(global const float*)((b + 10 + (k_outer * 37))));
      c10 = fma(a0, b0, c10);
      a0 = (float16)(*(global const float*)((b + 11 + (k_outer * 37))));
      c11 = fma(a0, b0, c11);
      a0 = (float16)(*(global const float*)((b + 12 + (k_outer * 37))));
      c12 = fma(a0, b0, c12);
      a0 = (float16)(*(global const float*)((b + 13 + (k_outer * 37))));
      c13 = fma(a0, b0, c13);
      a0 = (float16)(*(global const float*)((b + 14 + (k_outer * 37))));
      c14 = fma(a0, b0, c14);
      a0 = (float16)(*(global const float*)((b + 15 + (k_outer * 37))));
      c15 = fma(a0, b0, c15);
      a0 = (float16)(*(global const float*)((b + 16 + (k_outer * 37))));
      c16 = fma(a0, b0, c16);
      a0 = (float16)(*(global const float*)((b + 17 + (k_outer * 37))));
      c17 = fma(a0, b0, c17);
      a0 = (float16)(*(global const float*)((b + 18 + (k_outer * 37))));
      c18 = fma(a0, b0, c18);
    }
    vstore16(c0, 0, (__private float*)((c_results + 0)));
    vstore16(c1, 0, (__private float*)((c_results + 16)));
    vstore16(c2, 0, (__private float*)((c_results + 32)));
    vstore16(c3, 0, (__private float*)((c_results + 48)));
    vstore16(c4, 0, (__private float*)((c_results + 64)));
    vstore16(c5, 0, (__private float*)((c_results + 80)));
    vstore16(c6, 0, (__private float*)((c_results + 96)));
    vstore16(c7, 0, (__private float*)((c_results + 112)));
    vstore16(c8, 0, (__private float*)((c_results + 128)));
    vstore16(c9, 0, (__private float*)((c_results + 144)));
    vstore16(c10, 0, (__private float*)((c_results + 160)));
    vstore16(c11, 0, (__private float*)((c_results + 176)));
    vstore16(c12, 0, (__private float*)((c_results + 192)));
    vstore16(c13, 0, (__private float*)((c_results + 208)));
    vstore16(c14, 0, (__private float*)((c_results + 224)));
    vstore16(c15, 0, (__private float*)((c_results + 240)));
    vstore16(c16, 0, (__private float*)((c_results + 256)));
    vstore16(c17, 0, (__private float*)((c_results + 272)));
    vstore16(c18, 0, (__private float*)((c_results + 288)));
    for (int n_inner = 0; n_inner < 5; n_inner++) {
      for (int n_block = 0; n_block < 19; n_block++) {
        out[n_inner * 37 + n_block] = c_results[n_block * 16 + n_inner];
      }
    }
    c0 = 0;
    c1 = 0;
    c2 = 0;
    c3 = 0;
    c4 = 0;
    c5 = 0;
    c6 = 0;
    c7 = 0;
    c8 = 0;
    c9 = 0;
    c10 = 0;
    c11 = 0;
    c12 = 0;
    c13 = 0;
    c14 = 0;
    c15 = 0;
    c16 = 0;
    c17 = 0;
    for (int k_outer = 0; k_outer < 9; k_outer++) {
      b0 = vload16(0, (global const float*)((b_tiles + k_outer * 16)));
      a0 = (float16)(*(global const float*)((b + 19 + (k_outer * 37))));
      c0 = fma(a0, b0, c0);
      a0 = (float16)(*(global const float*)((b + 20 + (k_outer * 37))));
      c1 = fma(a0, b0, c1);
      a0 = (float16)(*(global const float*)((b + 21 + (k_outer * 37))));
      c2 = fma(a0, b0, c2);
      a0 = (float16)(*(global const float*)((b + 22 + (k_outer * 37))));
      c3 = fma(a0, b0, c3);
      a0 = (float16)(*(global const float*)((b + 23 + (k_outer * 37))));
      c4 = fma(a0, b0, c4);
      a0 = (float16)(*(global const float*)((b + 24 + (k_outer * 37))));
      c5 = fma(a0, b0, c5);
      a0 = (float16)(*(global const float*)((b + 25 + (k_outer * 37))));
      c6 = fma(a0, b0, c6);
      a0 = (float16)(*(global const float*)((b + 26 + (k_outer * 37))));
      c7 = fma(a0, b0, c7);
      a0 = (float16)(*(global const float*)((b + 27 + (k_outer * 37))));
      c8 = fma(a0, b0, c8);
      a0 = (float16)(*(global const float*)((b + 28 + (k_outer * 37))));
      c9 = fma(a0, b0, c9);
      a0 = (float16)(*(global const float*)((b + 29 + (k_outer * 37))));
      c10 = fma(a0, b0, c10);
      a0 = (float16)(*(global const float*)((b + 30 + (k_outer * 37))));
      c11 = fma(a0, b0, c11);
      a0 = (float16)(*(global const float*)((b + 31 + (k_outer * 37))));
      c12 = fma(a0, b0, c12);
      a0 = (float16)(*(global const float*)((b + 32 + (k_outer * 37))));
      c13 = fma(a0, b0, c13);
      a0 = (float16)(*(global const float*)((b + 33 + (k_outer * 37))));
      c14 = fma(a0, b0, c14);
      a0 = (float16)(*(global const float*)((b + 34 + (k_outer * 37))));
      c15 = fma(a0, b0, c15);
      a0 = (float16)(*(global const float*)((b + 35 + (k_outer * 37))));
      c16 = fma(a0, b0, c16);
      a0 = (float16)(*(global const float*)((b + 36 + (k_outer * 37))));
      c17 = fma(a0, b0, c17);
    }
    vstore16(c0, 0, (__private float*)((c_results + 0)));
    vstore16(c1, 0, (__private float*)((c_results + 16)));
    vstore16(c2, 0, (__private float*)((c_results + 32)));
    vstore16(c3, 0, (__private float*)((c_results + 48)));
    vstore16(c4, 0, (__private float*)((c_results + 64)));
    vstore16(c5, 0, (__private float*)((c_results + 80)));
    vstore16(c6, 0, (__private float*)((c_results + 96)));
    vstore16(c7, 0, (__private float*)((c_results + 112)));
    vstore16(c8, 0, (__private float*)((c_results + 128)));
    vstore16(c9, 0, (__private float*)((c_results + 144)));
    vstore16(c10, 0, (__private float*)((c_results + 160)));
    vstore16(c11, 0, (__private float*)((c_results + 176)));
    vstore16(c12, 0, (__private float*)((c_results + 192)));
    vstore16(c13, 0, (__private float*)((c_results + 208)));
    vstore16(c14, 0, (__private float*)((c_results + 224)));
    vstore16(c15, 0, (__private float*)((c_results + 240)));
    vstore16(c16, 0, (__private float*)((c_results + 256)));
    vstore16(c17, 0, (__private float*)((c_results + 272)));
    for (int n_inner = 0; n_inner < 5; n_inner++) {
      for (int n_block = 0; n_block < 18; n_block++) {
        out[n_inner * 37 + (19 + n_block)] = c_results[n_block * 16 + n_inner];
      }
    }
  }
}
