// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernel of ops/field_attention.cuh is given, and how its work is cut.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/index.hpp"
#include "warprank/ops/detail/common/activation.cuh"

namespace warprank { inline namespace v0 { namespace detail::field_attention {

/// A warp has 16 fields of a row and one head; the warps of a row are side by side in a block.
inline constexpr int fields_of_warp = 16, most_warps = 8;
inline constexpr int tile = 16;                 ///< inputs and columns that are multiplied together
inline constexpr int64_t fragment_bytes = 512;  ///< of 16 by 16 halves, 16 bytes of each lane
inline constexpr int64_t most_shared_bytes = 48 << 10;

/// In device memory, where those of another model may replace them between launches.
struct Weights {
  const unsigned char* packed;  ///< pack_field_attention
};

/// By value.
template <class Out>
struct Arguments {
  Matrix<const float16> x;
  Matrix<Out> y;
  int fields, dim;
  int heads, head_dim;
  int warps_of_row, rows_of_block;
  int input_tiles, output_tiles;  ///< of 16 columns: of a field, and of a head
  float factor;                   ///< of scores, with log2(e)
  bool has_residual;
  bool x_is_aligned, y_is_aligned;  ///< to four elements, as all fields and heads
  DeviceActivation activation;
  const int64_t* num_rows;

  int num_warps() const { return warps_of_row * rows_of_block; }
  int64_t shared_bytes() const { return num_warps() * (input_tiles + 2) * fragment_bytes; }
};

/// Small rows share a block, so that it has four warps or so.
constexpr int rows_of_block_for(int warps_of_row) { return warps_of_row < 4 ? 4 / warps_of_row : 1; }

}}}  // namespace warprank::v0::detail::field_attention
