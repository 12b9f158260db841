// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/fm.cuh: which kernel computes a factorisation machine, and how its rows are divided.

#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/fm/general.cuh"
#include "warprank/ops/detail/fm/rows.cuh"
#include "warprank/ops/launch_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::fm {

template <class Value, class Out>
struct Plan {
  Arguments<Value, Out> general;
  int max_blocks = 0;  ///< of the general kernel: as many as can be resident
  RowArguments<Value, Out> rows;
  int64_t blocks = 0;  ///< of fm_rows_kernel; 0: the general kernel
};

/// Whether fm_rows_kernel does these inputs. Every input has a row to be read before counts are known.
template <class Value, class Out>
bool has_rows_kernel(const Arguments<Value, Out>& general) {
  constexpr int64_t vector = row_vector<Value>, most = vector * device::warp_size;
  bool has = general.reduce && general.y.rows > 0 && general.y.rows <= max_rows_of_warps && general.dim >= vector &&
             general.dim <= most && (general.dim & (general.dim - 1)) == 0;
  for (int i = 0; i < general.num_inputs; ++i) {
    const Matrix<const Value>& values = general.inputs[i].values;
    has = has && has_rows_for_warps(general.inputs[i]) && values.cols <= (1 << 24) && values.stride % vector == 0 &&
          reinterpret_cast<uintptr_t>(values.data) % 16 == 0;
  }
  return has;
}

/// Plans a factorisation machine that was checked. One row for each warp, where they do not run at the same time anyway
/// several.
template <class Value, class Out>
Plan<Value, Out> plan_fm(const Arguments<Value, Out>& general, int num_multiprocessors,
                         const LaunchPolicies& policies) {
  Plan<Value, Out> plan{general, num_multiprocessors * min_blocks, {}};
  if (!has_rows_kernel(general)) return plan;
  RowArguments<Value, Out>& to = plan.rows;
  for (const bool on_ancestor : {true, false}) {
    int& vectors = on_ancestor ? to.ancestor_vectors : to.own_vectors;
    for (int i = 0; i < general.num_inputs; ++i) {
      const AxisInput<Value>& input = general.inputs[i];
      if (input.on_ancestor() != on_ancestor) continue;
      to.inputs[to.num_inputs] = input;
      to.first_vector[to.num_inputs++] = vectors;
      vectors += static_cast<int>(input.values.cols / row_vector<Value>);
    }
    if (on_ancestor && to.num_inputs == 0) to.num_inputs = general.num_inputs == 1;  // the first of a pair
    if (on_ancestor) to.num_inputs_on_ancestors = to.num_inputs;
  }
  to.rows_of_inputs = rows_of_inputs(to.inputs, to.num_inputs);
  to.lanes_of_field = static_cast<int>(general.dim / row_vector<Value>);
  to.y = general.y;
  to.num_rows = general.num_rows;

  const int64_t most_of_one_each = int64_t{policies.fm_rows_of_one_each} * num_multiprocessors;
  to.rows_per_warp = to.y.rows <= most_of_one_each ? 1 : policies.fm_rows_per_warp;
  const int64_t rows_of_block = int64_t{warps_of_block} * to.rows_per_warp;
  plan.blocks = (to.y.rows + rows_of_block - 1) / rows_of_block;
  return plan;
}

template <class Value, class Out>
WARPRANK_HIDDEN void launch(const Plan<Value, Out>& plan, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_FM)
template <class Value, class Out>
void launch(const Plan<Value, Out>& plan, device::Stream stream) {
  if (plan.blocks == 0) return launch_general(plan.general, plan.max_blocks, stream);
  const device::LaunchConfig config(static_cast<unsigned>(plan.blocks), warps_of_block * device::warp_size, 0, stream);
  const RowArguments<Value, Out>& rows = plan.rows;
  if (rows.num_inputs_on_ancestors == 1 && rows.num_inputs == 2)
    device::launch_overlapping(config, fm_rows_kernel<true, Value, Out>, rows);
  else
    device::launch_overlapping(config, fm_rows_kernel<false, Value, Out>, rows);
}
#endif
#if defined(WARPRANK_KERNELS_OF_FM)
template void launch(const Plan<float16, float>& plan, device::Stream stream);
template void launch(const Plan<float16, float16>& plan, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::fm
