// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/fm.cuh for any dim and alignment, and for what is not summed over the dim: a few lanes of a warp
/// for each row, each with some columns of the dim.

#include <algorithm>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"

namespace warprank { inline namespace v0 { namespace detail::fm {

inline constexpr int max_inputs = 8;
inline constexpr int threads = 128, min_blocks = 8;
inline constexpr int vector_size = 4;  // columns of a lane where everything is aligned, else 1

/// What the kernel is given, by value.
template <class Value, class Out>
struct Arguments {
  AxisInput<Value> inputs[max_inputs];
  int num_inputs;
  int64_t dim;
  bool reduce;
  Matrix<Out> y;
  const int64_t* num_rows;
};

/// Of `VecSize` columns: the fields added so far, and the products of all their pairs.
template <int VecSize>
struct Sums {
  float sum[VecSize] = {};
  float pairs[VecSize] = {};
};

/// Columns [column, column + VecSize) of row n.
template <int VecSize, class Value, class Out>
WARPRANK_DEVICE Sums<VecSize> sum_fields(const Arguments<Value, Out>& arguments, int64_t n, int64_t column) {
  Sums<VecSize> sums;
  for (int i = 0; i < arguments.num_inputs; ++i) {
    const AxisInput<Value>& input = arguments.inputs[i];
    const Value* row = input.values.data + row_serving(input, n) * input.values.stride;
    for (int64_t field = 0; field < input.values.cols; field += arguments.dim) {
      const auto values = device::load_vector_read_only<VecSize>(row + field + column);
      WARPRANK_UNROLL
      for (int j = 0; j < VecSize; ++j) {
        const float e = device::widen(values[j]);
        sums.pairs[j] += e * sums.sum[j];
        sums.sum[j] += e;
      }
    }
  }
  return sums;
}

/// `lanes`, a power of two up to 32, share a row.
template <int VecSize, class Value, class Out>
WARPRANK_KERNEL(threads, min_blocks)
fm_kernel(Arguments<Value, Out> arguments, int lanes) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  wait_for_previous_launch();
  const int64_t num_rows = device::true_count(arguments.num_rows, arguments.y.rows);
  const int64_t rows_in_grid = num_threads() / lanes;
  const int64_t row_of_thread = global_thread_rank() / lanes;
  const int64_t rank = lane_index() % lanes;
  // All lanes of a warp leave the loop together: those of a row that is none help to sum.
  for (int64_t n = row_of_thread; n - lane_index() / lanes < num_rows; n += rows_in_grid) {
    const bool is_row = n < num_rows;
    Out* y = arguments.y.data + n * arguments.y.stride;
    float total = 0;
    for (int64_t column = rank * VecSize; is_row && column < arguments.dim; column += int64_t{lanes} * VecSize) {
      const Sums<VecSize> sums = sum_fields<VecSize>(arguments, n, column);
      Vector<Out, VecSize> pairs;
      WARPRANK_UNROLL
      for (int j = 0; j < VecSize; ++j) {
        total += sums.pairs[j];
        pairs[j] = narrow<Out>(sums.pairs[j]);
      }
      if (!arguments.reduce) store_vector(y + column, pairs);
    }
    if (!arguments.reduce) continue;
    for (int distance = lanes / 2; distance > 0; distance /= 2) total += shuffle_xor(full_warp, total, distance);
    if (is_row && rank == 0) store(y, narrow<Out>(total));
  }
}

/// Whether every row begins at a multiple of `vector_size` elements.
template <class Value>
bool is_aligned(const Matrix<Value>& matrix) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(matrix.data);
  return address % (vector_size * sizeof(Value)) == 0 && matrix.stride % vector_size == 0;
}

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_FM)
template <class Value, class Out>
WARPRANK_HIDDEN void launch_general(const Arguments<Value, Out>& arguments, int max_blocks, device::Stream stream) {
  bool aligned = arguments.dim % vector_size == 0 && (arguments.reduce || is_aligned(arguments.y));
  for (int i = 0; i < arguments.num_inputs; ++i) aligned = aligned && is_aligned(arguments.inputs[i].values);
  const int64_t vectors = aligned ? arguments.dim / vector_size : arguments.dim;
  int lanes = 1;
  while (lanes < device::warp_size && lanes < vectors) lanes *= 2;

  const int64_t rows_per_block = threads / lanes;
  const int64_t blocks = std::min<int64_t>((arguments.y.rows + rows_per_block - 1) / rows_per_block, max_blocks);
  const device::LaunchConfig config(static_cast<unsigned>(blocks), threads, 0, stream);
  if (aligned) {
    device::launch_overlapping(config, fm_kernel<vector_size, Value, Out>, arguments, lanes);
  } else {
    device::launch_overlapping(config, fm_kernel<1, Value, Out>, arguments, lanes);
  }
}
#endif

}}}  // namespace warprank::v0::detail::fm
