// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Products of rows, as A, and what a warp has of weights, keys or rows, as B.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 { namespace detail::gemm {

/// sums += a b for one step of 16 inputs, of which the second 8 may be missing. a: what load_matrices gives of a
/// [16, 16] tile of rows. One instruction from sm_80 on, two before.
template <int Target>
WARPRANK_DEVICE void multiply_step(float (&sums)[4], const uint32_t (&a)[4], uint32_t b_low, uint32_t b_high,
                                   bool has_second_half) {
  if constexpr (Target >= 80) {
    const uint32_t b[2] = {b_low, b_high};
    device::mma_m16n8k16(sums, a, b, sums);
  } else {
    const uint32_t a_first[2] = {a[0], a[1]}, a_second[2] = {a[2], a[3]}, b_first[1] = {b_low}, b_second[1] = {b_high};
    device::mma_m16n8k8(sums, a_first, b_first, sums);
    if (has_second_half) device::mma_m16n8k8(sums, a_second, b_second, sums);
  }
}

/// The fragment of rows [0, 16) and inputs [0, 16) of a row-major tile in shared memory. Rows are aligned to 16 bytes;
/// `stride` is an odd number of 16 bytes, so that no two of 8 rows meet in a bank.
WARPRANK_DEVICE void load_rows(uint32_t (&a)[4], const float16* tile, int stride) {
  const int lane = device::lane_index();
  device::load_matrices(a, tile + (lane % 16) * stride + lane / 16 * 8);
}

}}}  // namespace warprank::v0::detail::gemm
