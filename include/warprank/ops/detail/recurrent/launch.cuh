// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/recurrent.cuh.

#include <cstdint>
#include <type_traits>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/recurrent/arguments.cuh"
#include "warprank/ops/detail/recurrent/kernel.cuh"

namespace warprank { inline namespace v0 { namespace detail::recurrent {

template <class Out>
WARPRANK_HIDDEN void launch(const Arguments<Out>& arguments, int target, const Weights* weights, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_RECURRENT)
template <class Out>
void launch(const Arguments<Out>& arguments, int target, const Weights* weights, device::Stream stream) {
  device::dispatch_target<75, 80>(target, [&](auto target) {
    const auto queue = [&](auto* kernel) {
      const int64_t blocks = (arguments.max_rows() + rows_of_block - 1) / rows_of_block;
      device::launch_overlapping(
          {device::Dim3{static_cast<unsigned>(blocks)}, static_cast<unsigned>(arguments.tiles) * device::warp_size,
           arguments.shared_bytes(), stream},
          kernel, arguments, weights);
    };
    const auto queue_for = [&](auto attends) {
      if (arguments.steps <= 2) return queue(recurrent_kernel<target(), 2, attends(), Out>);
      if (arguments.steps <= 4) return queue(recurrent_kernel<target(), 4, attends(), Out>);
      return queue(recurrent_kernel<target(), 8, attends(), Out>);
    };
    return arguments.attends ? queue_for(std::true_type()) : queue_for(std::false_type());
  });
}
#endif
#if defined(WARPRANK_KERNELS_OF_RECURRENT)
template void launch(const Arguments<float>& arguments, int target, const Weights* weights, device::Stream stream);
template void launch(const Arguments<float16>& arguments, int target, const Weights* weights, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::recurrent
