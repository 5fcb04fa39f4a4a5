/*
 * out[m,n] += f32(a[m,k]) * f32(b[k,n])
 * out: f32[m 21, n 19], element at m*19 + n
 * a: f16[m 21, k 37], element at m*37 + k
 * b: f16[k 37, n 19], element at k*19 + n
 * sycl.joint.8x16x16.f32.f16: c f32 joint_c, a f16 joint_a, b f16 joint_b
 * mapping   m <- n   n <- m   k <- k   waste 60.0 %
 * schedule  order m n k; block n 2; placement a padded, b tiled; threads 3
 * made by   automap
 */
#include <sycl/sycl.hpp>
#include <stdint.h>
#include <limits>
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
namespace matrix = sycl::ext::oneapi::experimental::matrix;

static sycl::event phase_0(sycl::queue& queue, void* workspace, const void* const* tensors) {
  (void)workspace, (void)tensors;
  uint16_t* const b_padded = (uint16_t*)((unsigned char*)workspace + 0);
  uint16_t* const b_tiles = (uint16_t*)((unsigned char*)workspace + 2368);
  const uint16_t* const a = (const uint16_t*)tensors[1];
  const uint16_t* const b = (const uint16_t*)tensors[2];
  return queue.submit([&](sycl::handler& handler) {
    handler.parallel_for(sycl::nd_range<1>(1536, 16), [=](sycl::nd_item<1> item) [[sycl::reqd_sub_group_size(16)]] {
      const int part = item.get_group(0), parts = item.get_group_range(0);
      const int lane = item.get_sub_group().get_local_linear_id();
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
          b_tiles[m_step * 768 + (k_step * 256) + (k_inner * 16 + n_inner)] = ((m_step * 16 + n_inner < 21 && k_step * 16 + k_inner < 37) ? (m_step * 16 + n_inner < 21 && k_step * 16 + k_inner < 37 ? a[(m_step * 16 + n_inner) * 37 + (k_step * 16 + k_inner)] : (uint16_t)0) : (uint16_t)0);
        }
      }
    });
  });
}

static sycl::event phase_1(sycl::queue& queue, void* workspace, const void* const* tensors) {
  (void)workspace, (void)tensors;
  uint16_t* const b_padded = (uint16_t*)((unsigned char*)workspace + 0);
  uint16_t* const b_tiles = (uint16_t*)((unsigned char*)workspace + 2368);
  float* const out = (float*)tensors[0];
  return queue.submit([&](sycl::handler& handler) {
    sycl::local_accessor<float, 1> c_results(256, handler);
    handler.parallel_for(sycl::nd_range<1>(16, 16), [=](sycl::nd_item<1> item) [[sycl::reqd_sub_group_size(16)]] {
      const int part = item.get_group(0), parts = item.get_group_range(0);
      const int lane = item.get_sub_group().get_local_linear_id();
      matrix::joint_matrix<sycl::sub_group, float, matrix::use::accumulator, 8, 16> c0;
      matrix::joint_matrix<sycl::sub_group, float, matrix::use::accumulator, 8, 16> c1;
      matrix::joint_matrix<sycl::sub_group, sycl::half, matrix::use::b, 16, 16, matrix::layout::row_major> b0;
      matrix::joint_matrix<sycl::sub_group, sycl::half, matrix::use::a, 8, 16, matrix::layout::row_major> a0;
      for (int step = part; step < 1; step += parts) {
        const int m_outer = step;
        matrix::joint_matrix_fill(item.get_sub_group(), c0, 0);
        matrix::joint_matrix_fill(item.get_sub_group(), c1, 0);
        for (int k_outer = 0; k_outer < 3; k_outer++) {
          matrix::joint_matrix_load(item.get_sub_group(), b0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_tiles + k_outer * 256)[0]), 32 / 2);
          matrix::joint_matrix_load(item.get_sub_group(), a0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_padded + k_outer * 16)[0]), 96 / 2);
          matrix::joint_matrix_mad(item.get_sub_group(), c0, a0, b0, c0);
          matrix::joint_matrix_load(item.get_sub_group(), a0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_padded + 384 + (k_outer * 16))[0]), 96 / 2);
          matrix::joint_matrix_mad(item.get_sub_group(), c1, a0, b0, c1);
        }
        matrix::joint_matrix_store(item.get_sub_group(), c0, sycl::address_space_cast<sycl::access::address_space::local_space, sycl::access::decorated::no>((float*)&(c_results.get_multi_ptr<sycl::access::decorated::no>() + 0)[0]), 64 / 4, matrix::layout::row_major);
        matrix::joint_matrix_store(item.get_sub_group(), c1, sycl::address_space_cast<sycl::access::address_space::local_space, sycl::access::decorated::no>((float*)&(c_results.get_multi_ptr<sycl::access::decorated::no>() + 128)[0]), 64 / 4, matrix::layout::row_major);
        sycl::group_barrier(item.get_sub_group());
        for (int n_inner = lane; n_inner < 16; n_inner += 16) {
          for (int n_block = 0; n_block < 2; n_block++) {
            for (int m_inner = 0; m_inner < 8; m_inner++) {
              out[n_inner * 19 + (n_block * 8 + m_inner)] = c_results[n_block * 128 + (m_inner * 16 + n_inner)];
            }
          }
        }
        sycl::group_barrier(item.get_sub_group());
        matrix::joint_matrix_fill(item.get_sub_group(), c0, 0);
        for (int k_outer = 0; k_outer < 3; k_outer++) {
          matrix::joint_matrix_load(item.get_sub_group(), b0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_tiles + k_outer * 256)[0]), 32 / 2);
          matrix::joint_matrix_load(item.get_sub_group(), a0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_padded + 768 + (k_outer * 16))[0]), 96 / 2);
          matrix::joint_matrix_mad(item.get_sub_group(), c0, a0, b0, c0);
        }
        matrix::joint_matrix_store(item.get_sub_group(), c0, sycl::address_space_cast<sycl::access::address_space::local_space, sycl::access::decorated::no>((float*)&(c_results.get_multi_ptr<sycl::access::decorated::no>() + 0)[0]), 64 / 4, matrix::layout::row_major);
        sycl::group_barrier(item.get_sub_group());
        for (int n_inner = lane; n_inner < 16; n_inner += 16) {
          for (int m_inner = 0; m_inner < 3; m_inner++) {
            out[n_inner * 19 + (16 + m_inner)] = c_results[m_inner * 16 + n_inner];
          }
        }
        sycl::group_barrier(item.get_sub_group());
      }
      for (int step = part; step < 1; step += parts) {
        const int m_rest = step;
        matrix::joint_matrix_fill(item.get_sub_group(), c0, 0);
        matrix::joint_matrix_fill(item.get_sub_group(), c1, 0);
        for (int k_outer = 0; k_outer < 3; k_outer++) {
          matrix::joint_matrix_load(item.get_sub_group(), b0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_tiles + 768 + (k_outer * 256))[0]), 32 / 2);
          matrix::joint_matrix_load(item.get_sub_group(), a0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_padded + k_outer * 16)[0]), 96 / 2);
          matrix::joint_matrix_mad(item.get_sub_group(), c0, a0, b0, c0);
          matrix::joint_matrix_load(item.get_sub_group(), a0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_padded + 384 + (k_outer * 16))[0]), 96 / 2);
          matrix::joint_matrix_mad(item.get_sub_group(), c1, a0, b0, c1);
        }
        matrix::joint_matrix_store(item.get_sub_group(), c0, sycl::address_space_cast<sycl::access::address_space::local_space, sycl::access::decorated::no>((float*)&(c_results.get_multi_ptr<sycl::access::decorated::no>() + 0)[0]), 64 / 4, matrix::layout::row_major);
        matrix::joint_matrix_store(item.get_sub_group(), c1, sycl::address_space_cast<sycl::access::address_space::local_space, sycl::access::decorated::no>((float*)&(c_results.get_multi_ptr<sycl::access::decorated::no>() + 128)[0]), 64 / 4, matrix::layout::row_major);
        sycl::group_barrier(item.get_sub_group());
        for (int n_inner = 0; n_inner < 5; n_inner++) {
          for (int n_block = 0; n_block < 2; n_block++) {
            for (int m_inner = lane; m_inner < 8; m_inner += 16) {
              out[(16 + n_inner) * 19 + (n_block * 8 + m_inner)] = c_results[n_block * 128 + (m_inner * 16 + n_inner)];
            }
          }
        }
        sycl::group_barrier(item.get_sub_group());
        matrix::joint_matrix_fill(item.get_sub_group(), c0, 0);
        for (int k_outer = 0; k_outer < 3; k_outer++) {
          matrix::joint_matrix_load(item.get_sub_group(), b0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_tiles + 768 + (k_outer * 256))[0]), 32 / 2);
          matrix::joint_matrix_load(item.get_sub_group(), a0, sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>((const sycl::half*)&(b_padded + 768 + (k_outer * 16))[0]), 96 / 2);
          matrix::joint_matrix_mad(item.get_sub_group(), c0, a0, b0, c0);
        }
        matrix::joint_matrix_store(item.get_sub_group(), c0, sycl::address_space_cast<sycl::access::address_space::local_space, sycl::access::decorated::no>((float*)&(c_results.get_multi_ptr<sycl::access::decorated::no>() + 0)[0]), 64 / 4, matrix::layout::row_major);
        sycl::group_barrier(item.get_sub_group());
        for (int n_inner = lane; n_inner < 5; n_inner += 16) {
          for (int m_inner = 0; m_inner < 3; m_inner++) {
            out[(16 + n_inner) * 19 + (16 + m_inner)] = c_results[m_inner * 16 + n_inner];
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

extern "C" unsigned long automap_workspace_bytes(void) { return 5504; }

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
