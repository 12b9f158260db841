// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Relative biases of an attention's scores, by position and by time, on the host (Zhai et al. 2024, "rab"): of query i
/// of a segment, at `place`, and its key t
///
///     bias = position[min(place - t, positions - 1)] + time[bucket(|time_i - time_t|)]
///
/// place is i where attention is causal, and the number of keys where queries come behind all of them. Buckets are
/// those of core/time_buckets.hpp.

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/core/time_buckets.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// The learned numbers of all heads.
struct AttentionBiasTables {
  /// positions [tables, num_positions], times [tables, num_buckets + 1]; either may be empty. `num_tables`: one, or one
  /// for each head.
  AttentionBiasTables(std::vector<float> of_positions, std::vector<float> of_times, int64_t tables, float bucket_width)
      : positions(std::move(of_positions)), times(std::move(of_times)), num_tables(tables) {
    num_positions = static_cast<int64_t>(positions.size()) / tables;
    num_buckets = static_cast<int64_t>(times.size()) / tables - 1;
    if (num_buckets < 0) return;
    limits = time_bucket_limits(num_buckets, bucket_width);
    buckets_per_bit = time_buckets_per_bit(bucket_width);
  }

  /// Null: there is no such bias.
  const float* positions_of(int64_t head) const {
    return num_positions == 0 ? nullptr : &positions[static_cast<size_t>(table_of(head) * num_positions)];
  }
  const float* times_of(int64_t head) const {
    return num_buckets < 0 ? nullptr : &times[static_cast<size_t>(table_of(head) * (num_buckets + 1))];
  }
  /// Of a key of the query's own: no places and no time away.
  float of_own(int64_t head) const {
    const float *const position = positions_of(head), *const time = times_of(head);
    return (position != nullptr ? *position : 0) + (time != nullptr ? *time : 0);
  }
  int64_t bytes() const { return static_cast<int64_t>((positions.size() + times.size() + limits.size()) * 4); }

  std::vector<float> positions, times, limits;
  int64_t num_tables = 1, num_positions = 0, num_buckets = -1;
  float buckets_per_bit = 0;

 private:
  int64_t table_of(int64_t head) const {
    assert(num_tables == 1 || head < num_tables);
    return num_tables == 1 ? 0 : head;
  }
};

/// What an attention reads: null tables: there is no bias.
struct AttentionBias {
  const AttentionBiasTables* tables = nullptr;
  int64_t first_head = 0;                                ///< which the first of the columns are of
  Matrix<const float> query_times = {}, key_times = {};  ///< [N, 1], [T, 1], with a bias by time
};

}}}  // namespace warprank::v0::host_ops
