// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/field_linear.cuh: how columns are cut into tiles.

#include <algorithm>
#include <cstdint>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/field_linear/arguments.cuh"
#include "warprank/ops/detail/field_linear/kernel.cuh"

namespace warprank { inline namespace v0 { namespace detail::field_linear {

template <class Out>
struct Plan {
  Arguments<Out> arguments;
  int target = 0;
  int strips = 0;  ///< of 8 columns in a tile

  int64_t row_tiles() const {
    return (arguments.y.rows * arguments.dim + arguments.tile_columns - 1) / arguments.tile_columns;
  }
  int64_t output_tiles() const { return (arguments.num_outputs + tile_outputs - 1) / tile_outputs; }
  int64_t shared_bytes() const { return std::max(operand_bytes(arguments, strips), sum_bytes(strips)); }
};

template <class Out>
int columns_of_tile(const Arguments<Out>& arguments, int strips) {
  const bool has_sums = arguments.first_summed < arguments.num_outputs;
  return has_sums ? 8 * strips / arguments.dim * arguments.dim : 8 * strips;
}

/// The largest tile with two blocks for each multiprocessor, as larger ones read weights less often, and which leaves
/// shared memory for two at once; else the smallest. A layer of few steps has few weights to read: more than three
/// blocks of the largest tile, which run in turns, are better twice as many. Sums are in the same order whatever the
/// tile.
template <class Out>
Plan<Out> plan_field_linear(const Arguments<Out>& arguments, int target, int num_multiprocessors) {
  constexpr int few_steps = 8;
  Plan<Out> plan{arguments, target, 16};
  const auto is_too_large = [&] {
    const int64_t blocks = plan.row_tiles() * plan.output_tiles();
    return plan.shared_bytes() > shared_bytes_of_two || blocks < 2 * num_multiprocessors ||
           (plan.strips == 8 && arguments.num_steps <= few_steps && blocks > 3 * num_multiprocessors);
  };
  do {
    plan.strips /= 2;
    plan.arguments.tile_columns = columns_of_tile(arguments, plan.strips);
  } while (columns_of_tile(arguments, plan.strips / 2) > 0 && plan.strips > 2 && is_too_large());
  return plan;
}

template <class Out>
WARPRANK_HIDDEN void launch(const Plan<Out>& plan, const Weights* weights, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_FIELD_LINEAR)
template <class Out>
void launch(const Plan<Out>& plan, const Weights* weights, device::Stream stream) {
  device::dispatch_target<75, 80>(plan.target, [&](auto target) {
    const auto queue = [&](auto* kernel) {
      const device::Dim3 grid{static_cast<unsigned>(plan.row_tiles()), static_cast<unsigned>(plan.output_tiles())};
      device::launch_overlapping({grid, threads, plan.shared_bytes(), stream}, kernel, plan.arguments, weights);
    };
    switch (plan.strips) {
      case 8:
        return queue(field_linear_kernel<target(), 8, Out>);
      case 4:
        return queue(field_linear_kernel<target(), 4, Out>);
      default:
        return queue(field_linear_kernel<target(), 2, Out>);
    }
  });
}
#endif
#if defined(WARPRANK_KERNELS_OF_FIELD_LINEAR)
template void launch(const Plan<float>& plan, const Weights* weights, device::Stream stream);
template void launch(const Plan<float16>& plan, const Weights* weights, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::field_linear
