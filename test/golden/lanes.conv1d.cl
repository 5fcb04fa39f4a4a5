/*
 * out[c] += x[c+q] * w[q]
 * out: f32[c 100], element at c
 * x: f32[d0 104], element at d0
 * w: f32[q 5], element at q, packed ahead of time
 * vectors X: 1 x f32[16]
 * vectors Z: 1 x f32[16]
 * for parallel block in 0..9
 *   for lanes lane in 0..16
 *     X[0,lane] = x[12*block+lane]
 *     Z[0,lane] = X[0,lane] * w[0]
 *   for q in 0..4
 *     for lanes lane in 0..16
 *       Z[0,lane] = Z[0,lane-1] + X[0,lane] * w[q+1]
 *   for lanes lane in 0..16
 *     out[12*block+lane-4] = Z[0,lane] where lane >= 4
 * design SBM: lanes hold x, sums move
 */
#pragma OPENCL FP_CONTRACT OFF
typedef uchar uint8_t;

__attribute__((intel_reqd_sub_group_size(16)))
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void automap_prepare(global uint8_t* restrict workspace, global float* restrict out, global const float* restrict x, global const float* restrict w) {
  const int part = get_group_id(0), parts = get_num_groups(0);
  const int lane = get_sub_group_local_id();
}

__attribute__((intel_reqd_sub_group_size(16)))
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void automap_phase_0(global uint8_t* restrict workspace, global float* restrict out, global const float* restrict x, global const float* restrict w) {
  const int part = get_group_id(0), parts = get_num_groups(0);
  const int lane = get_sub_group_local_id();
  for (int step = part; step < 9; step += parts) {
    const int block = step;
    const int lane_ = lane;
    float X0 = 0;
    float Z0 = 0;
    X0 = (12 * block + lane_ < 104 ? x[12 * block + lane_] : 0.0f);
    Z0 = X0 * w[0];
    for (int q = 0; q < 4; q++) {
      Z0 = fma(X0, w[q + 1], sub_group_shuffle_up(Z0, 1));
    }
    if (lane_ >= 4 && 12 * block + lane_ - 4 < 100) out[12 * block + lane_ - 4] = Z0;
  }
}
