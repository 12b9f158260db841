// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the host can see of layers: their inputs, and what comes behind their products.

#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"

namespace warprank { inline namespace v0 { namespace detail::gemm {

inline constexpr int64_t max_layer_width = int64_t{1} << 30;

/// An input [rows, cols], or [segments, cols] on an ancestor; without data there is none.
inline void check_optional_input(const std::string& what, const AxisInput<void>& input, int64_t rows, int64_t cols,
                                 Problems& problems) {
  if (input.values.data != nullptr)
    check_matrix(what, input.values, input.on_ancestor() ? input.values.rows : rows, cols, problems);
  else if (input.on_ancestor() || input.num_segments != nullptr)
    problems.add(what, "a matrix, as it has segments", "none");
  if (!input.on_ancestor() && input.num_segments != nullptr) problems.add(what, "offsets of its segments", "none");
}

/// What is added and multiplied behind the products of a layer of `out` outputs, and before those of one of
/// `first_out`, which are the same but for a stack. Inputs: LinearLayer or Mlp.
template <class Inputs>
void check_epilogue(const Inputs& inputs, const std::string& what, int64_t first_out, int64_t out, Problems& problems) {
  const auto optional = [&](const char* name, const FloatMatrix<const void>& matrix) {
    if (matrix.data != nullptr) check_matrix(what + name, matrix, inputs.x.rows, out, problems);
  };
  optional("'s multiply", inputs.multiply);
  optional("'s residual", inputs.residual);
  check_optional_input(what + "'s row bias", inputs.row_bias, inputs.x.rows, first_out, problems);
  if (inputs.residual_first && inputs.residual.data == nullptr)
    problems.add(what + "'s residual", "one, as it is first", "none");
}

}}}  // namespace warprank::v0::detail::gemm
