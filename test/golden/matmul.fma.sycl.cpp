/*
 * out[m,n] += a[m,k] * b[k,n]
 * out: f32[m 5, n 37], element at m*37 + n
 * a: f32[m 5, k 9], element at m*9 + k
 * b: f32[k 9, n 37], element at k*37 + n
 * sycl.fma.16.f32.broadcast: c f32 item[n], a f32 item[n], b f32 item[n]
 * mapping   n <- m   waste 68.8 %
 * schedule  order m n k; block n 19; placement a in-place, b tiled; threads 3
 * made by   automap
 */
#include <sycl/sycl.hpp>
#include <stdint.h>
#include <limits>
#if defined(__clang__)
#pragma clang fp contract(off)
#endif

static sycl::event phase_0(sycl::queue& queue, void* workspace, const void* const* tensors) {
  (void)workspace, (void)tensors;
  float* const b_tiles = (float*)((unsigned char*)workspace + 0);
  const float* const a = (const float*)tensors[1];
  return queue.submit([&](sycl::handler& handler) {
    handler.parallel_for(sycl::nd_range<1>(144, 16), [=](sycl::nd_item<1> item) [[sycl::reqd_sub_group_size(16)]] {
      const int part = item.get_group(0), parts = item.get_group_range(0);
      const int lane = item.get_sub_group().get_local_linear_id();
      for (int step = part; step < 9; step += parts) {
        const int k_step = step;
        for (int n_inner = lane; n_inner < 16; n_inner += 16) {
          b_tiles[k_step * 16 + n_inner] = (n_inner < 5 ? (n_inner < 5 ? a[n_inner * 9 + k_step] : 0.0f) : 0.0f);
        }
      }
    });
  });
}

static sycl::event phase_1(sycl::queue& queue, void* workspace, const void* const* tensors) {
  (void)workspace, (void)tensors;
  float* const b_tiles = (float*)((unsigned char*)workspace + 0);
  float* const out = (float*)tensors[0];
  const float* const b = (const float*)tensors[2];
  return queue.submit([&](sycl::handler& handler) {
    sycl::local_accessor<float, 1> c_results(304, handler);
    handler.parallel_for(sycl::nd_range<1>(16, 16), [=](sycl::nd_item<1> item) [[sycl::reqd_sub_group_size(16)]] {
      const int part = item.get_group(0), parts = item.get_group_range(0);
      const int lane = item.get_sub_group().get_local_linear_id();
      float c0;
      float c1;
      float c2;
      float c3;
      float c4;
      float c5;
      float c6;
      float c7;
      float c8;
      float c9;
      float c10;
      float c11;
      float c12;
      float c13;
      float c14;
      float c15;
      float c16;
      float c17;
      float c18;
      float b0;
      float a0;
      for (int step = part; step < 1; step += parts) {
        const int m_rest = step;
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
          b0 = (b_tiles + k_outer * 16)[lane];
          a0 = (b + k_outer * 37)[0];
          c0 = sycl::fma(a0, b0, c0);
          a0 = (b + 1 + (k_outer * 37))[0];
          c1 = sycl::fma(a0, b0, c1);
          a0 = (b + 2 + (k_outer * 37))[0];
          c2 = sycl::fma(a0, b0, c2);
          a0 = (b + 3 + (k_outer * 37))[0];
          c3 = sycl::fma(a0, b0, c3);
          a0 = (b + 4 + (k_outer * 37))[0];
          c4 = sycl::fma(a0, b0, c4);
          a0 = (b + 5 + (k_outer * 37))[0];
          c5 = sycl::fma(a0, b0, c5);
          a0 = (b + 6 + (k_outer * 37))[0];
          c6 = sycl::fma(a0, b0, c6);
          a0 = (b + 7 + (k_outer * 37))[0];
          c7 = sycl::fma(a0, b0, c7);
          a0 = (b + 8 + (k_outer * 37))[0];
          c8 = sycl::fma(a0, b0, c8);
          a0 = (b + 9 + (k_outer * 37))[0];
          c9 = sycl::fma(a0, b0, c9);
          a0 = (b + 10 + (k_outer * 37))[0];
          c10 = sycl::fma(a0, b0, c10);
          a0 = (b + 11 + (k_outer * 37))[0];
          c11 = sycl::fma(a0, b0, c11);
          a0 = (b + 12 + (k_outer * 37))[0];
          c12 = sycl::fma(a0, b0, c12);
          a0 = (b + 13 + (k_outer * 37))[0];
          c13 = sycl::fma(a0, b0, c13);
          a0 = (b + 14 + (k_outer * 37))[0];
          c14 = sycl::fma(a0, b0, c14);
          a0 = (b + 15 + (k_outer * 37))[0];
          c15 = sycl::fma(a0, b0, c15);
          a0 = (b + 16 + (k_outer * 37))[0];
          c16 = sycl::fma(a0, b0, c16);
          a0 = (b + 17 + (k_outer * 37))[0];
          c17 = sycl::fma(a0, b0, c17);
          a0 = (b + 18 + (k_outer * 37))[0];
          c18 = sycl::fma(a0, b0, c18);
        }
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 0)[lane] = c0;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 16)[lane] = c1;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 32)[lane] = c2;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 48)[lane] = c3;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 64)[lane] = c4;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 80)[lane] = c5;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 96)[lane] = c6;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 112)[lane] = c7;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 128)[lane] = c8;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 144)[lane] = c9;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 160)[lane] = c10;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 176)[lane] = c11;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 192)[lane] = c12;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 208)[lane] = c13;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 224)[lane] = c14;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 240)[lane] = c15;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 256)[lane] = c16;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 272)[lane] = c17;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 288)[lane] = c18;
        sycl::group_barrier(item.get_sub_group());
        for (int n_inner = 0; n_inner < 5; n_inner++) {
          for (int n_block = lane; n_block < 19; n_block += 16) {
            out[n_inner * 37 + n_block] = c_results[n_block * 16 + n_inner];
          }
        }
        sycl::group_barrier(item.get_sub_group());
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
          b0 = (b_tiles + k_outer * 16)[lane];
          a0 = (b + 19 + (k_outer * 37))[0];
          c0 = sycl::fma(a0, b0, c0);
          a0 = (b + 20 + (k_outer * 37))[0];
          c1 = sycl::fma(a0, b0, c1);
          a0 = (b + 21 + (k_outer * 37))[0];
          c2 = sycl::fma(a0, b0, c2);
          a0 = (b + 22 + (k_outer * 37))[0];
          c3 = sycl::fma(a0, b0, c3);
          a0 = (b + 23 + (k_outer * 37))[0];
          c4 = sycl::fma(a0, b0, c4);
          a0 = (b + 24 + (k_outer * 37))[0];
          c5 = sycl::fma(a0, b0, c5);
          a0 = (b + 25 + (k_outer * 37))[0];
          c6 = sycl::fma(a0, b0, c6);
          a0 = (b + 26 + (k_outer * 37))[0];
          c7 = sycl::fma(a0, b0, c7);
          a0 = (b + 27 + (k_outer * 37))[0];
          c8 = sycl::fma(a0, b0, c8);
          a0 = (b + 28 + (k_outer * 37))[0];
          c9 = sycl::fma(a0, b0, c9);
          a0 = (b + 29 + (k_outer * 37))[0];
          c10 = sycl::fma(a0, b0, c10);
          a0 = (b + 30 + (k_outer * 37))[0];
          c11 = sycl::fma(a0, b0, c11);
          a0 = (b + 31 + (k_outer * 37))[0];
          c12 = sycl::fma(a0, b0, c12);
          a0 = (b + 32 + (k_outer * 37))[0];
          c13 = sycl::fma(a0, b0, c13);
          a0 = (b + 33 + (k_outer * 37))[0];
          c14 = sycl::fma(a0, b0, c14);
          a0 = (b + 34 + (k_outer * 37))[0];
          c15 = sycl::fma(a0, b0, c15);
          a0 = (b + 35 + (k_outer * 37))[0];
          c16 = sycl::fma(a0, b0, c16);
          a0 = (b + 36 + (k_outer * 37))[0];
          c17 = sycl::fma(a0, b0, c17);
        }
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 0)[lane] = c0;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 16)[lane] = c1;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 32)[lane] = c2;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 48)[lane] = c3;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 64)[lane] = c4;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 80)[lane] = c5;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 96)[lane] = c6;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 112)[lane] = c7;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 128)[lane] = c8;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 144)[lane] = c9;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 160)[lane] = c10;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 176)[lane] = c11;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 192)[lane] = c12;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 208)[lane] = c13;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 224)[lane] = c14;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 240)[lane] = c15;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 256)[lane] = c16;
        (c_results.get_multi_ptr<sycl::access::decorated::no>() + 272)[lane] = c17;
        sycl::group_barrier(item.get_sub_group());
        for (int n_inner = 0; n_inner < 5; n_inner++) {
          for (int n_block = lane; n_block < 18; n_block += 16) {
            out[n_inner * 37 + (19 + n_block)] = c_results[n_block * 16 + n_inner];
          }
        }
        sycl::group_barrier(item.get_sub_group());
      }
    });
  });
}

/* Phases, and calls that share a workspace, must run one after another, as they do in an in-order queue. */
static void require_order(const sycl::queue& queue) {
  if (!queue.is_in_order())
    throw sycl::exception(sycl::make_error_code(sycl::errc::invalid), "automap: make the queue with sycl::property::queue::in_order");
}

extern "C" unsigned long automap_workspace_bytes(void) { return 640; }

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
  last = phase_1(queue, workspace, tensors);
  return last;
}
