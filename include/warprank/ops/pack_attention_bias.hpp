// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Packs the relative biases of an attention (ops/attention.cuh), once on the host.
///
/// A cell has all that a difference of time needs whose bits tell its bucket: the limit behind which the next bucket
/// begins, the biases of both buckets, and padding. Cells of all tables come first, then positions of all tables.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/time_buckets.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// Of biases [tables, positions] by distance and [tables, time_buckets + 1] by bucket.
struct AttentionBiasShape {
  int64_t tables = 1;                ///< one for all heads, or one for each
  int64_t positions = 0;             ///< 0: no such bias
  int64_t time_buckets = 0;          ///< behind the first; 0: no such bias
  float time_bucket_width = 0.301f;  ///< of the logarithm of a difference

  static constexpr int64_t cell = 4;
  constexpr bool has_time() const { return time_buckets > 0; }
  constexpr int64_t cells_of_table() const { return has_time() ? time_buckets + 1 : 0; }
  constexpr int64_t positions_offset() const { return tables * cells_of_table() * cell; }  ///< in floats
  constexpr int64_t floats() const { return positions_offset() + tables * positions; }
};

/// Throws invalid_argument for impossible shapes, wrong sizes, and numbers that are not finite.
inline std::vector<float> pack_attention_bias(const AttentionBiasShape& shape, Span<const float> by_position,
                                              Span<const float> by_time) {
  constexpr int64_t most = int64_t{1} << 24;
  Problems problems;
  const auto check = [&](const char* what, int64_t number, int64_t least, int64_t limit) {
    if (number >= least && number <= limit) return;
    problems.add(std::string("an attention bias' ") + what, std::to_string(least) + " to " + std::to_string(limit),
                 std::to_string(number));
  };
  check("tables", shape.tables, 1, most);
  check("positions", shape.positions, 0, most);
  check("time buckets", shape.time_buckets, 0, max_time_buckets);
  if (shape.has_time() && !(shape.time_bucket_width >= min_time_bucket_width && std::isfinite(shape.time_bucket_width)))
    problems.add("an attention bias' buckets", "a width of " + std::to_string(min_time_bucket_width) + " or more",
                 std::to_string(shape.time_bucket_width));
  problems.throw_if_any();
  const auto check_values = [&](const char* what, Span<const float> values, int64_t size) {
    if (values.size() != size)
      problems.add(std::string("biases by ") + what, std::to_string(size) + " numbers", std::to_string(values.size()));
    for (const float value : values)
      if (!std::isfinite(value)) return problems.add(std::string("biases by ") + what, "finite numbers", "another");
  };
  check_values("position", by_position, shape.tables * shape.positions);
  check_values("time", by_time, shape.tables * shape.cells_of_table());
  problems.throw_if_any();

  std::vector<float> packed;
  if (shape.has_time()) {
    const std::vector<float> limits = time_bucket_limits(shape.time_buckets, shape.time_bucket_width);
    const int64_t of_table = shape.cells_of_table();
    for (int64_t i = 0; i < shape.tables * of_table; ++i) {
      const float limit = limits[static_cast<size_t>(i % of_table)];
      packed.insert(packed.end(), {limit, by_time[i], std::isinf(limit) ? by_time[i] : by_time[i + 1], 0});
    }
  }
  packed.insert(packed.end(), by_position.begin(), by_position.end());
  return packed;
}

}}  // namespace warprank::v0
