// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/mix_tokens.cuh: which kernel mixes tokens, and how a row is divided.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/mix_tokens/arguments.cuh"
#include "warprank/ops/detail/mix_tokens/general.cuh"
#include "warprank/ops/detail/mix_tokens/tokens.cuh"

namespace warprank { inline namespace v0 { namespace detail::mix_tokens {

/// The division of tokens whose values stay in registers; none where what is read and written at once is not aligned,
/// or vectors do not divide so. Each number of steps is a kernel.
template <class Out>
TokenLanes divide_tokens(const Arguments<Out>& arguments, const Vectors& vectors) {
  const int in_token = arguments.columns / vector_size;
  const auto is_aligned = [](const float* vector) {
    return vector != nullptr && reinterpret_cast<uintptr_t>(vector) % (vector_size * sizeof(float)) == 0;
  };
  const auto are_aligned = [&](const NormVectors& norm) { return is_aligned(norm.gamma) && is_aligned(norm.beta); };
  const bool can_be = std::is_same_v<Out, float16> && rows_are_aligned(arguments.x) && rows_are_aligned(arguments.y) &&
                      arguments.part % vector_size == 0 && are_aligned(vectors.of_sums) &&
                      (!arguments.norms_input || are_aligned(vectors.of_input));
  if (!can_be) return {};
  int lanes = device::warp_size;
  while (in_token % lanes != 0) lanes /= 2;
  const int steps = in_token / lanes;
  if (steps > 8 || steps == 5 || steps == 7) return {};
  return {lanes, steps, 1 / static_cast<float>(arguments.columns), 1 / static_cast<float>(arguments.part)};
}

template <class Out>
struct Plan {
  Arguments<Out> arguments;
  TokenLanes division;  ///< of mix_tokens_kernel; without lanes: the general kernel
  int multiprocessors = 0;
};

template <class Out>
Plan<Out> plan_mix_tokens(const Arguments<Out>& arguments, const Vectors& vectors, int num_multiprocessors) {
  return {arguments, divide_tokens(arguments, vectors), num_multiprocessors};
}

template <class Out>
WARPRANK_HIDDEN void launch(const Plan<Out>& plan, const Vectors* vectors, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_MIX_TOKENS)
template <bool NormsInput, class Out>
void launch_for(const Plan<Out>& plan, const Vectors* vectors, device::Stream stream) {
  const Arguments<Out>& arguments = plan.arguments;
  const auto config_of = [&](Block block, int lanes) {
    const int64_t wanted = int64_t{arguments.tokens} * lanes;
    const int64_t whole_warps = (wanted + device::warp_size - 1) / device::warp_size * device::warp_size;
    const int64_t threads = std::min<int64_t>(whole_warps, block.max_threads);
    const int64_t resident = plan.multiprocessors * (block.max_threads * block.min_blocks / threads);
    return device::LaunchConfig(static_cast<unsigned>(std::min<int64_t>(arguments.y.rows, resident)),
                                static_cast<unsigned>(threads),
                                NormsInput ? arguments.x.cols * int64_t{sizeof(float16)} : 0, stream);
  };
  if constexpr (std::is_same_v<Out, float16>) {
    const auto launch_steps = [&](auto steps) {
      device::launch_overlapping(config_of(block_of(steps()), plan.division.lanes),
                                 mix_tokens_kernel<NormsInput, steps()>, arguments, plan.division, vectors);
    };
    switch (plan.division.steps) {
      case 1:
        return launch_steps(std::integral_constant<int, 1>());
      case 2:
        return launch_steps(std::integral_constant<int, 2>());
      case 3:
        return launch_steps(std::integral_constant<int, 3>());
      case 4:
        return launch_steps(std::integral_constant<int, 4>());
      case 6:
        return launch_steps(std::integral_constant<int, 6>());
      case 8:
        return launch_steps(std::integral_constant<int, 8>());
    }
  }
  device::launch_overlapping(config_of(any_block, device::warp_size), mix_any_tokens_kernel<NormsInput, Out>, arguments,
                             vectors);
}

template <class Out>
void launch(const Plan<Out>& plan, const Vectors* vectors, device::Stream stream) {
  if (plan.arguments.norms_input)
    launch_for<true>(plan, vectors, stream);
  else
    launch_for<false>(plan, vectors, stream);
}
#endif
#if defined(WARPRANK_KERNELS_OF_MIX_TOKENS)
template void launch(const Plan<float>& plan, const Vectors* vectors, device::Stream stream);
template void launch(const Plan<float16>& plan, const Vectors* vectors, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::mix_tokens
