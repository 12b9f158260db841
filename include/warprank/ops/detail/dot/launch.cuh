// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/dot.cuh: which kernel computes a dot, and how its rows are divided.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/dot/general.cuh"
#include "warprank/ops/detail/dot/rows.cuh"
#include "warprank/ops/launch_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::dot {

template <class Out>
struct Plan {
  Arguments<Out> general;
  RowArguments<Out> rows;
  int groups = 0;  ///< of fields, which dot_rows_kernel is compiled for; 0: the general kernel
  int64_t blocks = 0;
  int warps = 0;
};

/// Whether there is a dot_rows_kernel for these inputs: dims of 8 to 128 that are powers of two, up to 64 fields (48 of
/// 128), rows that begin at multiples of 16 bytes. Every input has a row to be read before counts are known.
template <class Out>
bool has_rows_kernel(const Arguments<Out>& general) {
  const int fields = general.num_ancestor_fields + general.num_own_fields;
  bool has = general.aligned && general.dim >= 8 && general.dim <= 128 && (general.dim & (general.dim - 1)) == 0 &&
             general.y.rows <= max_rows_of_warps && fields > 0 &&
             fields <= max_groups_of(static_cast<int>(general.dim)) * fields_of_group;
  for (int i = 0; i < general.num_inputs; ++i) has = has && has_rows_for_warps(general.inputs[i]);
  return has;
}

/// Plans a dot that was checked. One row for each warp as long as they run at the same time: each further row costs a
/// trip to memory (the prototype: 1.1 to 1.6 us). Then several, which share what they have of ancestors.
template <class Out>
Plan<Out> plan_dot(const Arguments<Out>& general, Span<const AxisInput<float16>> inputs, int64_t num_multiprocessors,
                   const LaunchPolicies& policies) {
  Plan<Out> plan{general, {}};
  if (!has_rows_kernel(general)) return plan;
  RowArguments<Out>& to = plan.rows;
  to.num_inputs = general.num_inputs;
  to.num_fields = general.num_ancestor_fields + general.num_own_fields;
  to.num_left = general.num_left;
  to.places = places_for(general.order, general.self, to.num_fields);
  uint32_t own_groups = 0;
  int field = 0;
  for (int i = 0; i < to.num_inputs; ++i) {
    const AxisInput<float16>& input = inputs[i];
    to.inputs[i] = input;
    to.first_field[i] = field;
    const int end = field + static_cast<int>(input.values.cols / general.dim);
    for (int f = field; f < end && !input.on_ancestor(); ++f) {
      const int counted = to.places.direction > 0 ? f : to.num_fields - 1 - f;
      own_groups |= 1u << counted / fields_of_group;
    }
    field = end;
  }
  to.rows_of_inputs = rows_of_inputs(to.inputs, to.num_inputs);
  to.shared_groups = ~own_groups;
  to.padded = general.order == DotOrder::lower_padded;
  to.y = general.y;
  to.num_rows = general.num_rows;
  to.row_bytes =
      static_cast<int>(((to.y.cols + device::warp_size) * static_cast<int64_t>(sizeof(Out)) + 15 + 15) / 16 * 16);

  const bool in_one_wave = to.y.rows <= policies.dot_rows_of_one_each * num_multiprocessors;
  to.rows_per_warp = in_one_wave ? 1 : general.dim <= 32 ? policies.dot_rows_per_warp : policies.dot_rows_per_warp_wide;
  plan.warps = to.y.rows <= 2 * num_multiprocessors ? 1 : warps_of_block;
  const int64_t rows_of_block = int64_t{plan.warps} * to.rows_per_warp;
  plan.blocks = (to.y.rows + rows_of_block - 1) / rows_of_block;
  plan.groups = (to.num_fields + 2 * fields_of_group - 1) / (2 * fields_of_group) * 2;
  return plan;
}

template <class Out>
WARPRANK_HIDDEN void launch(const Plan<Out>& plan, int target, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_DOT)
/// f(std::integral_constant<int, V>{}) for the V that is `value`, of those listed.
template <int... Values, class F>
void dispatch_value(int value, F&& f) {
  ((value == Values ? f(std::integral_constant<int, Values>{}) : void()), ...);
}

template <class Out>
void launch(const Plan<Out>& plan, int target, device::Stream stream) {
  if (plan.general.y.cols == 0) return;
  if (plan.groups == 0) return launch_general(plan.general, target, stream);
  const device::LaunchConfig config(static_cast<unsigned>(plan.blocks),
                                    static_cast<unsigned>(plan.warps * device::warp_size),
                                    int64_t{plan.warps} * plan.rows.row_bytes, stream);
  device::dispatch_target<75, 80>(target, [&](auto chosen) {
    dispatch_value<8, 16, 32, 64, 128>(plan.general.dim, [&](auto dim) {
      dispatch_value<2, 4, 6, 8>(plan.groups, [&](auto groups) {
        if constexpr (groups() <= max_groups_of(dim())) {
          const auto kernel = plan.rows.num_left > 0 ? dot_rows_kernel<chosen(), dim(), groups(), true, Out>
                                                     : dot_rows_kernel<chosen(), dim(), groups(), false, Out>;
          device::launch_overlapping(config, kernel, plan.rows);
        }
      });
    });
  });
}
#endif
#if defined(WARPRANK_KERNELS_OF_DOT)
template void launch(const Plan<float>& plan, int target, device::Stream stream);
template void launch(const Plan<float16>& plan, int target, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::dot
