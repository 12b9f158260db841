// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernel of ops/field_linear.cuh is given, and how its work is cut.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/detail/linear/fragments.cuh"
#include "warprank/ops/pack_field_linear.hpp"

namespace warprank { inline namespace v0 { namespace detail::field_linear {

/// A block computes 32 outputs of 8 `strips` columns; its warps divide the inputs.
inline constexpr int threads = 128, warps = threads / 32, tile_outputs = 32;
inline constexpr int vector_size = 8;  ///< halves of 16 bytes
inline constexpr int64_t most_shared_bytes = 48 << 10;
/// Of a block that is not alone on a multiprocessor of a T4.
inline constexpr int64_t shared_bytes_of_two = 32 << 10;

/// In device memory, where those of another model may replace them between launches.
struct Weights {
  const unsigned char* packed;  ///< pack_field_linear
};

/// By value.
template <class Out>
struct Arguments {
  Matrix<const float16> factors, fields;  ///< factors without data: 1
  Matrix<Out> y;
  int dim, num_factors, num_fields;
  int num_outputs, num_kept, first_summed;
  int tile_columns;                 ///< at most 8 strips, and whole rows where columns are summed
  int num_steps, num_pairs;         ///< of the packed weights
  int field_stride, factor_stride;  ///< of the operands in shared memory
  bool are_aligned;                 ///< dim, and rows to 16 bytes
  DeviceActivation activation;
  const int64_t* num_rows;
};

/// Shared memory has the operands of a tile with a row for each column of a field, and then each warp's sums of 16
/// outputs.
/// Rows of factors are an odd number of words apart: 8 of them are in as many banks. The last step may read three
/// factors behind the last.
constexpr int factor_stride_for(int64_t factors) { return static_cast<int>((factors + 3 + 1) / 4 * 4 + 2); }
template <int Strips>
inline constexpr int sum_stride = 8 * Strips + 8;

template <class Out>
int64_t operand_bytes(const Arguments<Out>& arguments, int strips) {
  return int64_t{8} * strips * (arguments.field_stride + arguments.factor_stride) * int64_t{sizeof(float16)};
}
constexpr int64_t sum_bytes(int strips) { return int64_t{warps} * 16 * (8 * strips + 8) * 4; }

}}}  // namespace warprank::v0::detail::field_linear
