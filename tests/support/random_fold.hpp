// SPDX-License-Identifier: Apache-2.0
#pragma once

/// RandomModel's custom operation, for the interpreter and for the host engine.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/interpreter.hpp"
#include "warprank/host.hpp"

namespace warprank::test_support {

inline reference::Row fold(const std::vector<reference::Row>& inputs) {
  reference::Row y;
  for (size_t c = 0; c < inputs[0].size(); ++c) {
    reference::Sum sum;
    sum.add(2, inputs[0][c]);
    sum.add(2, inputs[1][c]);
    y.push_back(sum.total());
  }
  return y;
}
inline void fold_on_host(const CustomCall& call) {
  for (int64_t r = 0; r < call.output.rows; ++r)
    for (int64_t c = 0; c < call.output.cols; ++c)
      call.output.row(r)[c] = 2 * (call.inputs[0].values.row(call.inputs[0].row_serving(r))[c] +
                                   call.inputs[1].values.row(call.inputs[1].row_serving(r))[c]);
}

}  // namespace warprank::test_support
