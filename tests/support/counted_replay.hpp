// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/core/dtype.hpp"

namespace kernel_testing {

/// A launch that was captured once, and is replayed for other numbers of rows.
class CountedReplay {
 public:
  template <class Op>
  CountedReplay(const Op& op, const void* descriptors) : stream_(create_stream()) {
    begin_capture(stream_);
    op.launch({descriptors, nullptr}, stream_);
    graph_ = end_capture(stream_);
    EXPECT_EQ(num_launches(graph_), 1);
  }

  /// The rows of dense `y` that a launch for `count` of them writes; expects that it writes no other.
  template <class Out>
  std::vector<Out> rows_of(int64_t count, DeviceArray<int64_t>& num_rows, DeviceMatrix<Out>& y) const {
    const auto view = y.view();
    num_rows.write({count});
    fill(view.data, 0xff, view.rows * view.cols * int64_t{sizeof(Out)});
    synchronize();
    launch(graph_, stream_);
    std::vector<Out> result = y.read();
    const auto written = static_cast<size_t>(count * view.cols);
    for (size_t i = written; i < result.size(); ++i)
      EXPECT_TRUE(std::isnan(warprank::to_float(result[i]))) << "beyond the count";
    result.resize(written);
    return result;
  }

 private:
  Stream stream_;
  Graph graph_;
};

}  // namespace kernel_testing
