// SPDX-License-Identifier: Apache-2.0
//
// The kernels that the executor runs, compiled unchanged for GPUs.

#include "simt/kernels.hpp"

#include "simt/faults.hpp"

WARPRANK_HIDDEN void launch_all(float* x, int64_t n, uint32_t* counters, uint64_t* keys, const warprank::float16* a,
                                kernels::Row* row) {
  using warprank::device::launch;
  using warprank::device::Order;
  launch({4, kernels::sum_threads}, kernels::sum, x, n, x, counters, x);
  launch({4, 128}, kernels::insert, keys, n, keys, 16u, counters);
  launch({1, kernels::gemm_threads, kernels::gemm_shared_bytes}, kernels::gemm<8>, a, a, x);
  launch({1, kernels::gemm_threads, kernels::gemm_shared_bytes}, kernels::gemm<16>, a, a, x);
  launch({1, 64}, kernels::update_row, row, 1u);
  launch({1, 64}, kernels::read_row, row, counters);
  launch({4, 256}, kernels::scale, x, n, 2.f);
  launch({2, 1}, kernels::message<Order::release, Order::acquire, true>, counters, counters);
  launch({2, 32}, faults::release_weakened<false>, x, counters);
  launch({2, 64}, faults::missing_fence<false>, x, counters);
  launch({1, 64, 2048}, faults::early_reuse<false>, x);
}
