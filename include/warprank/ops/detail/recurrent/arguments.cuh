// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernel of ops/recurrent.cuh is given, and how its work is cut.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/index.hpp"
#include "warprank/ops/pack_recurrent.hpp"

namespace warprank { inline namespace v0 { namespace detail::recurrent {

/// A block has 16 rows, and a warp 8 columns of their states.
inline constexpr int rows_of_block = 16;
inline constexpr int64_t max_hidden = 128;  ///< as many weights as registers hold
inline constexpr int chunk_events = 128;    ///< whose scores are in shared memory together
inline constexpr int64_t fragment_bytes = 512;

/// In device memory, where those of another model may replace them between launches.
struct Weights {
  const unsigned char* packed;  ///< pack_recurrent
};

/// By value.
template <class Out>
struct Arguments {
  Matrix<const float16> gates;
  Matrix<const float16> q, k;  ///< with an attention
  Matrix<Out> y;
  const int64_t* event_offsets;
  const int64_t* row_offsets;  ///< with an attention
  int64_t max_parents;
  const int64_t* num_parents;
  int hidden, keys;
  int tiles, steps;
  float factor;  ///< of scores, with log2(e)
  bool attends, has_update_gate;
  bool gates_are_aligned, keys_are_aligned, y_is_aligned;  ///< to two, four and two elements

  int64_t max_rows() const { return attends ? y.rows : max_parents; }
  int64_t shared_bytes() const {
    return 2 * steps * fragment_bytes + (attends ? rows_of_block * chunk_events * int64_t{sizeof(float)} : 0);
  }
};

}}}  // namespace warprank::v0::detail::recurrent
