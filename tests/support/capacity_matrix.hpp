// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random values, and matrices of a capacity that is not used up, for tests of kernels.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/kernel_testing.hpp"
#include "support/narrowed.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"

namespace kernel_testing {

using warprank::float16;
using warprank::Matrix;

inline std::vector<float> random_values(std::mt19937& engine, int64_t size, float scale = 1) {
  std::uniform_real_distribution<float> distribution(-scale, scale);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = distribution(engine);
  return values;
}

/// The values as FP16 has them.
inline std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = warprank::to_float(warprank::to_float16(value));
  return values;
}

/// A matrix with more rows than are used, which are NaN as all is around the elements.
template <class Value>
class CapacityMatrix {
 public:
  /// Whole vectors can be read from aligned rows; the others begin at odd elements.
  CapacityMatrix(int64_t rows, int64_t cols, int64_t capacity, bool is_aligned, const std::vector<float>& values = {})
      : used_(static_cast<size_t>(rows * cols)),
        matrix_(padded(values, capacity * cols), capacity, cols, is_aligned ? (cols + 15) / 8 * 8 : cols + 3,
                is_aligned ? 16 : 5) {}

  Matrix<Value> view() { return matrix_.view(); }
  /// The rows that are used; the others must be as they were.
  std::vector<Value> values() const {
    std::vector<Value> all = matrix_.read();
    const Value expected = unused();
    for (size_t i = used_; i < all.size(); ++i)
      EXPECT_EQ(std::memcmp(&all[i], &expected, sizeof expected), 0) << "a row that is not used was written";
    all.resize(used_);
    return all;
  }

 private:
  static Value unused() { return narrowed<Value>(std::numeric_limits<float>::quiet_NaN()); }
  static std::vector<Value> padded(const std::vector<float>& values, int64_t size) {
    std::vector<Value> all;
    for (const float value : values) all.push_back(narrowed<Value>(value));
    all.resize(static_cast<size_t>(size), unused());
    return all;
  }

  size_t used_;
  DeviceMatrix<Value> matrix_;
};

}  // namespace kernel_testing
