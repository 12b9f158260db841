// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/field_attention.cuh.

#include <cstdint>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/field_attention/arguments.cuh"
#include "warprank/ops/detail/field_attention/kernel.cuh"

namespace warprank { inline namespace v0 { namespace detail::field_attention {

template <class Out>
WARPRANK_HIDDEN void launch(const Arguments<Out>& arguments, int target, const Weights* weights, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_FIELD_ATTENTION)
template <class Out>
void launch(const Arguments<Out>& arguments, int target, const Weights* weights, device::Stream stream) {
  device::dispatch_target<75, 80>(target, [&](auto target) {
    const auto queue = [&](auto* kernel) {
      const int64_t row_blocks = (arguments.y.rows + arguments.rows_of_block - 1) / arguments.rows_of_block;
      const device::Dim3 grid{static_cast<unsigned>(row_blocks), static_cast<unsigned>(arguments.heads)};
      const auto threads = static_cast<unsigned>(arguments.num_warps() * device::warp_size);
      device::launch_overlapping({grid, threads, arguments.shared_bytes(), stream}, kernel, arguments, weights);
    };
    if (arguments.warps_of_row <= 2) return queue(field_attention_kernel<target(), 2, Out>);
    if (arguments.warps_of_row <= 4) return queue(field_attention_kernel<target(), 4, Out>);
    return queue(field_attention_kernel<target(), 8, Out>);
  });
}
#endif
#if defined(WARPRANK_KERNELS_OF_FIELD_ATTENTION)
template void launch(const Arguments<float>& arguments, int target, const Weights* weights, device::Stream stream);
template void launch(const Arguments<float16>& arguments, int target, const Weights* weights, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::field_attention
