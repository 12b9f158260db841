// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random linear layers for tests of dense kernels: for the oracle, and in a device's memory.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "reference/linear.hpp"
#include "support/capacity_matrix.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/ops/linear.cuh"

namespace kernel_testing {

using warprank::Activation;
using warprank::ActivationKind;
using warprank::Span;

/// What a case has beside its shape.
struct Extras {
  Activation activation = {};
  bool bias = true;
  std::vector<int64_t> segment_sizes = {};  ///< of the row bias; empty for none
  bool row_bias_of_rows = false;            ///< a row bias without segments
  bool multiply = false;
  bool residual = false;
  bool residual_first = false;
  float scale = 1;        ///< of x
  int64_t more_rows = 3;  ///< of the capacity
  bool is_aligned = true;
  bool half_y = true, half_operands = true;
  bool float_row_bias = false;  ///< whatever the other operands are
  bool int8 = false;            ///< of the weights
  int64_t groups = 1;           ///< layers side by side, each with columns of its own
  uint32_t seed = 1;
};

/// Rows of `in` weights, each rounded to 255 multiples of a scale of its own: ops/int8_weights.hpp, from the formula.
inline std::vector<float> in_int8(std::vector<float> weights, int64_t in) {
  for (auto row = weights.begin(); row != weights.end(); row += in) {
    double largest = 0;
    for (auto w = row; w != row + in; ++w) largest = std::max(largest, std::abs(static_cast<double>(*w)));
    for (auto w = row; w != row + in; ++w)
      if (largest > 0) *w = static_cast<float>(std::nearbyint(*w * 127 / largest) * largest / 127);
  }
  return weights;
}

/// One random layer and its inputs. x and W are FP16 numbers, but for W in INT8.
struct LinearCase {
  LinearCase(int64_t rows, int64_t in, int64_t out, const Extras& extras = {}) : rows(rows), extras(extras) {
    std::mt19937 engine(static_cast<uint32_t>(rows * 1000003 + in * 1009 + out * 31) + extras.seed);
    layer.in = in, layer.out = out, layer.groups = extras.groups;
    layer.activation = extras.activation;
    layer.weight = random_values(engine, width() * in);
    if (out != 1 && !extras.int8) layer.weight = rounded(layer.weight);  // heads keep FP32
    if (out != 1 && extras.int8) layer.weight = in_int8(layer.weight, in);
    if (extras.bias) layer.bias = random_values(engine, width());
    const bool is_dice = extras.activation.kind == ActivationKind::dice;
    if (is_dice || extras.activation.kind == ActivationKind::prelu) layer.alpha = random_values(engine, width());
    if (is_dice) layer.scale = random_values(engine, width()), layer.shift = random_values(engine, width());
    inputs.x = rounded(random_values(engine, rows * extras.groups * in, extras.scale));
    const auto operand = [&](int64_t count, bool is_half) {
      std::vector<float> values = random_values(engine, count * width());
      return is_half ? rounded(values) : values;
    };
    if (!extras.segment_sizes.empty() || extras.row_bias_of_rows) {
      inputs.row_bias_offsets.push_back(0);
      const std::vector<int64_t> ones(static_cast<size_t>(rows), 1);
      for (const int64_t size : extras.row_bias_of_rows ? ones : extras.segment_sizes)
        inputs.row_bias_offsets.push_back(inputs.row_bias_offsets.back() + size);
      inputs.row_bias = operand(num_segments(), extras.half_operands && !extras.float_row_bias);
    }
    if (extras.multiply) inputs.multiply = operand(rows, extras.half_operands);
    if (extras.residual) inputs.residual = operand(rows, extras.half_operands);
    inputs.residual_first = extras.residual_first;
  }

  int64_t capacity() const { return rows + extras.more_rows; }
  int64_t width() const { return layer.groups * layer.out; }
  int64_t num_segments() const {
    return std::max<int64_t>(1, static_cast<int64_t>(inputs.row_bias_offsets.size())) - 1;
  }
  /// A weight in INT8 is a product with its scale, and the sum is another.
  warprank::reference::Bounded expected() const {
    return warprank::reference::linear(layer, rows, inputs, extras.int8 ? 2 : 0);
  }

  int64_t rows;
  Extras extras;
  warprank::reference::Linear layer;
  warprank::reference::LinearInputs inputs;
};

/// The layer's weights as a launch takes them, groups one after another.
inline std::vector<unsigned char> packed(const LinearCase& c) {
  std::vector<unsigned char> bytes;
  const int64_t in = c.layer.in, out = c.layer.out;
  for (int64_t g = 0; g < c.layer.groups; ++g) {
    const auto weight = Span<const float>(c.layer.weight).subspan(g * in * out, in * out);
    const auto bias =
        c.layer.bias.empty() ? Span<const float>() : Span<const float>(c.layer.bias).subspan(g * out, out);
    const auto own = c.extras.int8 ? warprank::pack_int8_linear(weight, bias, in, out)
                                   : warprank::pack_linear(weight, bias, in, out);
    bytes.insert(bytes.end(), own.data(), own.data() + own.size());
  }
  return bytes;
}

/// A case's arrays in the device's memory.
class DeviceLayer {
 public:
  explicit DeviceLayer(const LinearCase& c)
      : case_(c),
        packed_(kernel_testing::packed(c)),
        num_rows_(std::vector<int64_t>{c.rows}),
        num_segments_(std::vector<int64_t>{c.num_segments()}),
        offsets_(c.inputs.row_bias_offsets),
        alpha_(c.layer.alpha),
        scale_(c.layer.scale),
        shift_(c.layer.shift),
        x_(c.rows, c.layer.groups * c.layer.in, c.capacity(), c.extras.is_aligned, c.inputs.x),
        half_y_(c.rows, c.width(), c.capacity(), c.extras.is_aligned),
        float_y_(c.rows, c.width(), c.capacity(), c.extras.is_aligned) {}

  warprank::LinearLayer view() {
    warprank::LinearLayer to;
    to.weights = packed_.data();
    to.weight_type = case_.extras.int8 ? warprank::DType::i8 : warprank::DType::f16;
    to.x = x_.view();
    to.num_rows = num_rows_.data();
    to.activation = {case_.layer.activation.kind, case_.layer.activation.alpha, pointer(alpha_), pointer(scale_),
                     pointer(shift_)};
    // More segments than there are: what lies behind them must not be read.
    if (!case_.inputs.row_bias_offsets.empty()) {
      const bool of_rows = case_.extras.row_bias_of_rows;
      to.row_bias.values = operand(case_.inputs.row_bias, case_.num_segments(),
                                   of_rows ? case_.capacity() : case_.num_segments() + 2, !case_.extras.float_row_bias);
      if (!of_rows) to.row_bias.offsets = offsets_.data(), to.row_bias.num_segments = num_segments_.data();
    }
    if (case_.extras.multiply) to.multiply = operand(case_.inputs.multiply, case_.rows, case_.capacity());
    if (case_.extras.residual) to.residual = operand(case_.inputs.residual, case_.rows, case_.capacity());
    to.residual_first = case_.extras.residual_first;
    if (case_.extras.half_y)
      to.y = half_y_.view();
    else
      to.y = float_y_.view();
    return to;
  }

  std::vector<float> values() const {
    if (!case_.extras.half_y) return float_y_.values();
    std::vector<float> values;
    for (const float16 value : half_y_.values()) values.push_back(warprank::to_float(value));
    return values;
  }
  /// Holds y against the oracle, within twice its bound.
  void expect_right() const { expect_right(case_.expected()); }
  void expect_right(const warprank::reference::Bounded& expected) const {
    if (case_.extras.half_y)
      expect_within(expected, half_y_.values(), 2);
    else
      expect_within(expected, float_y_.values(), 2);
  }

  DeviceArray<int64_t>& num_rows() { return num_rows_; }
  DeviceArray<unsigned char>& packed() { return packed_; }

 private:
  static const float* pointer(const DeviceArray<float>& array) { return array.size() == 0 ? nullptr : array.data(); }
  warprank::FloatMatrix<const void> operand(const std::vector<float>& values, int64_t rows, int64_t capacity,
                                            bool may_be_half = true) {
    const auto place = [&](auto& list) -> warprank::FloatMatrix<const void> {
      using Stored = typename std::remove_reference_t<decltype(list)>::value_type::element_type;
      list.push_back(std::make_unique<Stored>(rows, case_.width(), capacity, case_.extras.is_aligned, values));
      const auto view = list.back()->view();
      return Matrix<const std::remove_pointer_t<decltype(view.data)>>(view);
    };
    if (case_.extras.half_operands && may_be_half) return place(half_operands_);
    return place(float_operands_);
  }

  const LinearCase& case_;
  DeviceArray<unsigned char> packed_;
  DeviceArray<int64_t> num_rows_, num_segments_, offsets_;
  DeviceArray<float> alpha_, scale_, shift_;
  CapacityMatrix<float16> x_, half_y_;
  CapacityMatrix<float> float_y_;
  std::vector<std::unique_ptr<CapacityMatrix<float16>>> half_operands_;
  std::vector<std::unique_ptr<CapacityMatrix<float>>> float_operands_;
};

using Tiling = warprank::LinearTiling;

/// A prepared launch with its memory, cut by the table unless told otherwise.
class DeviceLaunch {
 public:
  DeviceLaunch(const std::vector<warprank::LinearLayer>& layers, int target, const std::optional<Tiling>& tiling = {})
      : launch_(tiling ? warprank::LinearLaunch(layers, target, *tiling) : warprank::LinearLaunch(layers, target)),
        descriptors_(launch_.descriptors()),
        workspace_(launch_.workspace_bytes(), static_cast<unsigned char>(0)) {}
  void run(Stream stream = {}) { launch_.launch({descriptors_.data(), workspace_.data()}, stream); }
  const warprank::LinearLaunch& launch() const { return launch_; }
  DeviceArray<unsigned char>& descriptors() { return descriptors_; }

 private:
  warprank::LinearLaunch launch_;
  DeviceArray<unsigned char> descriptors_, workspace_;
};

/// Runs the cases in one launch and gives their outputs.
inline std::vector<std::vector<float>> run_cases(const std::vector<LinearCase>& cases, int target, bool check = true,
                                                 const std::optional<Tiling>& tiling = {}) {
  std::vector<std::unique_ptr<DeviceLayer>> layers;
  std::vector<warprank::LinearLayer> views;
  for (const LinearCase& c : cases) {
    layers.push_back(std::make_unique<DeviceLayer>(c));
    views.push_back(layers.back()->view());
  }
  DeviceLaunch launch(views, target, tiling);
  launch.run();
  std::vector<std::vector<float>> outputs;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("layer " + std::to_string(i) + ": " + std::to_string(cases[i].rows) + " x " +
                 std::to_string(cases[i].layer.in) + " -> " + std::to_string(cases[i].layer.out));
    if (check) layers[i]->expect_right();
    outputs.push_back(layers[i]->values());
  }
  return outputs;
}

}  // namespace kernel_testing
