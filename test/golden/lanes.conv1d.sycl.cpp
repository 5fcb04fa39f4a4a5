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
#include <sycl/sycl.hpp>
#include <stdint.h>
#include <limits>
#if defined(__clang__)
#pragma clang fp contract(off)
#endif

static sycl::event phase_0(sycl::queue& queue, void* workspace, const void* const* tensors) {
  (void)workspace, (void)tensors;
  float* const out = (float*)tensors[0];
  const float* const x = (const float*)tensors[1];
  const float* const w = (const float*)tensors[2];
  return queue.submit([&](sycl::handler& handler) {
    handler.parallel_for(sycl::nd_range<1>(144, 16), [=](sycl::nd_item<1> item) [[sycl::reqd_sub_group_size(16)]] {
      const int part = item.get_group(0), parts = item.get_group_range(0);
      const int lane = item.get_sub_group().get_local_linear_id();
      for (int step = part; step < 9; step += parts) {
        const int block = step;
        const int lane_ = lane;
        float X0 = 0;
        float Z0 = 0;
        X0 = (12 * block + lane_ < 104 ? x[12 * block + lane_] : 0.0f);
        Z0 = X0 * w[0];
        for (int q = 0; q < 4; q++) {
          Z0 = sycl::fma(X0, w[q + 1], sycl::shift_group_right(item.get_sub_group(), Z0, 1));
        }
        if (lane_ >= 4 && 12 * block + lane_ - 4 < 100) out[12 * block + lane_ - 4] = Z0;
      }
    });
  });
}

/* Phases, and calls that share a workspace, must run one after another, as they do in an in-order queue. */
static void require_order(const sycl::queue& queue) {
  if (!queue.is_in_order())
    throw sycl::exception(sycl::make_error_code(sycl::errc::invalid), "automap: make the queue with sycl::property::queue::in_order");
}

extern "C" unsigned long automap_workspace_bytes(void) { return 64; }

extern "C" sycl::event automap_prepare(sycl::queue& queue, void* workspace, const void* const* tensors) {
  (void)tensors;
  require_order(queue);
  sycl::event last = queue.memset(workspace, 0, automap_workspace_bytes());
  return last;
}

extern "C" sycl::event automap_launch(sycl::queue& queue, void* workspace, void* const* tensors) {
  require_order(queue);
  sycl::event last;
  last = phase_0(queue, workspace, tensors);
  return last;
}
