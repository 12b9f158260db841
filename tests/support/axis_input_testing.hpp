// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Inputs of tests of kernels, on the output's own axis or on an ancestor of it.

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "support/kernel_testing.hpp"
#include "support/narrowed.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/segmented_input.hpp"

namespace kernel_testing {

/// Where segments of these sizes begin, and the end of the last.
inline std::vector<int64_t> offsets_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t size : sizes) offsets.push_back(offsets.back() + size);
  return offsets;
}

/// A matrix on the host; on an ancestor's axis when it has offsets.
struct AxisValues {
  std::vector<float> values;
  int64_t rows, cols;
  std::vector<int64_t> offsets;

  warprank::SegmentedInput view() const {
    return {{values.data(), rows, cols}, {offsets.empty() ? nullptr : offsets.data(), rows}};
  }
  /// One row, which serves one row of the output.
  AxisValues row(int64_t n) const {
    const auto begin = values.begin() + n * cols;
    return {{begin, begin + cols}, 1, cols, offsets.empty() ? offsets : std::vector<int64_t>{0, 1}};
  }
};

/// Views of inputs that outlive them.
inline std::vector<warprank::SegmentedInput> views_of(const std::vector<AxisValues>& inputs) {
  std::vector<warprank::SegmentedInput> views;
  for (const AxisValues& input : inputs) views.push_back(input.view());
  return views;
}

/// Normally distributed, and numbers that Value has.
template <class Value>
AxisValues random_values(int64_t rows, int64_t cols, uint32_t seed, float scale = 1,
                         std::vector<int64_t> offsets = {}) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  AxisValues made{{}, rows, cols, std::move(offsets)};
  for (int64_t i = 0; i < rows * cols; ++i) {
    made.values.push_back(warprank::to_float(narrowed<Value>(normal(random))));
  }
  return made;
}

/// How matrices lie in memory: columns between rows, and elements before the first.
struct Placement {
  int64_t gap = 0, skip = 0;
};

/// The same on the device.
template <class Value>
class DeviceAxisInput {
 public:
  explicit DeviceAxisInput(const AxisValues& input, Placement placement = {})
      : matrix_(converted<Value>(input.values), input.rows, input.cols, input.cols + placement.gap, placement.skip),
        offsets_(input.offsets) {}

  warprank::AxisInput<Value> view() { return {matrix_.view(), offsets_.size() == 0 ? nullptr : offsets_.data()}; }

 private:
  DeviceMatrix<Value> matrix_;
  DeviceArray<int64_t> offsets_;
};

template <class Value>
class DeviceAxisInputs {
 public:
  explicit DeviceAxisInputs(const std::vector<AxisValues>& inputs, Placement placement = {}) {
    for (const AxisValues& input : inputs) {
      inputs_.push_back(std::make_unique<DeviceAxisInput<Value>>(input, placement));
      views_.push_back(inputs_.back()->view());
    }
  }
  const std::vector<warprank::AxisInput<Value>>& views() const { return views_; }

 private:
  std::vector<std::unique_ptr<DeviceAxisInput<Value>>> inputs_;
  std::vector<warprank::AxisInput<Value>> views_;
};

}  // namespace kernel_testing
