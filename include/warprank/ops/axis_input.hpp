// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A matrix in device memory as an op's input, on the op's own axis or on an ancestor of it, as late broadcast needs.

#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

template <class Value>
struct AxisValues {
  using type = Matrix<const Value>;
};
template <>
struct AxisValues<void> {
  using type = FloatMatrix<const void>;
};

}  // namespace detail

/// `Value` is float16 or float; void: one of the two, which is known only at run time.
template <class Value>
struct AxisInput {
  typename detail::AxisValues<Value>::type values;  ///< as many rows as the output, or one for each segment
  /// [values.rows + 1], in device memory: row s of `values` serves the output rows [offsets[s], offsets[s + 1]). Null:
  /// row n serves row n. Offsets behind the last segment's end may have any value, but are read; without segments the
  /// first row of `values` is read, too.
  const int64_t* offsets = nullptr;
  const int64_t* num_segments = nullptr;  ///< number of segments at the time of a launch; null: values.rows

  constexpr bool on_ancestor() const { return offsets != nullptr; }
  /// Columns [first, first + count).
  AxisInput columns(int64_t first, int64_t count) const {
    return {values.columns(first, count), offsets, num_segments};
  }
};

namespace detail {

/// Adds the errors of an input of an op whose output has `rows` rows.
template <class Value>
void check_axis_input(const std::string& what, const AxisInput<Value>& input, int64_t rows, Problems& problems) {
  check_matrix(what, input.values, problems);
  if (!input.on_ancestor() && input.values.rows < rows) {
    problems.add(what, std::to_string(rows) + " rows", std::to_string(input.values.rows));
  }
  if (!input.on_ancestor() && input.num_segments != nullptr) problems.add(what, "offsets of its segments", "none");
}

}  // namespace detail
}}  // namespace warprank::v0
