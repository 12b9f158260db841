// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random stacks of linear layers for tests of dense kernels, and their launches.

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/linear_case.hpp"
#include "warprank/ops/mlp.cuh"

namespace kernel_testing {

/// A stack: one case for each layer, of which only the first has an x.
struct MlpCase {
  MlpCase(int64_t rows, const std::vector<int64_t>& widths, const std::vector<Activation>& activations,
          const Extras& extras = {})
      : rows(rows) {
    for (size_t l = 0; l + 1 < widths.size(); ++l) {
      Extras of_layer;
      const bool is_first = l == 0, is_last = l + 2 == widths.size();
      of_layer.activation = activations[l % activations.size()];
      of_layer.is_aligned = extras.is_aligned;
      of_layer.more_rows = extras.more_rows;
      of_layer.scale = extras.scale;
      of_layer.half_operands = extras.half_operands;
      if (is_first) of_layer.segment_sizes = extras.segment_sizes;
      if (is_last) of_layer.multiply = extras.multiply, of_layer.residual = extras.residual;
      if (is_last) of_layer.residual_first = extras.residual_first;
      if (is_last) of_layer.half_y = extras.half_y;
      layers.emplace_back(rows, widths[l], widths[l + 1], of_layer);
      for (float& weight : layers.back().layer.weight)  // keeps activations near 1
        weight = warprank::to_float(warprank::to_float16(weight * 2 / std::sqrt(static_cast<float>(widths[l]))));
    }
  }

  int64_t rows;
  std::vector<LinearCase> layers;
};

/// Exact values in double, and how far each layer's rounding may have taken those of the kernel from them.
struct Propagated {
  std::vector<double> value, error;

  void push_back(double v, double e) { value.push_back(v), error.push_back(e); }
};

/// What the kernel was given as FP16 though it is none.
struct Rounded {
  bool x_and_weights = false;
  bool sums = false;  ///< of layer 0, which others have computed
};

inline constexpr double u = 0x1p-24, half_u = 0x1p-11;

/// How far FP16 is from a value.
inline double error_as_half(double value) { return half_u * std::fabs(value) + 0x1p-25; }

/// One layer for an h with errors, [rows, groups * in].
inline Propagated propagate_layer(const Propagated& h, const LinearCase& layer, Rounded rounded,
                                  bool is_stored_as_half) {
  const int64_t in = layer.layer.in, width = layer.width();
  const auto at = [](const auto& values, int64_t i) {
    return values.empty() ? 0.0 : static_cast<double>(values[static_cast<size_t>(i)]);
  };
  Propagated next;
  for (int64_t r = 0; r < layer.rows; ++r)
    for (int64_t o = 0; o < width; ++o) {
      double sum = 0, magnitude = 0, error = 0;
      const auto add = [&](double term) { sum += term, magnitude += std::fabs(term); };
      add(at(layer.layer.bias, o));
      for (size_t s = 0; s + 1 < layer.inputs.row_bias_offsets.size(); ++s)
        if (layer.inputs.row_bias_offsets[s] <= r && r < layer.inputs.row_bias_offsets[s + 1])
          add(at(layer.inputs.row_bias, static_cast<int64_t>(s) * width + o));
      const int64_t first = (r * layer.layer.groups + o / layer.layer.out) * in;
      for (int64_t k = 0; k < in; ++k) {
        const double weight = at(layer.layer.weight, o * in + k), x = at(h.value, first + k);
        const double of_x = at(h.error, first + k), of_weight = rounded.x_and_weights ? error_as_half(weight) : 0;
        add(x * weight);
        error += of_x * std::fabs(weight) + of_weight * (std::fabs(x) + of_x);
      }
      if (layer.inputs.residual_first) add(at(layer.inputs.residual, r * width + o));
      error += 2 * u * static_cast<double>(in + 2) * (magnitude + error);
      const auto f = warprank::reference::activation(layer.layer.activation, sum, at(layer.layer.alpha, o),
                                                     at(layer.layer.scale, o), at(layer.layer.shift, o));
      double value = f.value;
      if (rounded.sums) error += half_u * magnitude + 0x1p-25;
      error = f.slope * error + 2 * u * f.error;
      if (!layer.inputs.multiply.empty()) {
        const double factor = at(layer.inputs.multiply, r * width + o);
        value *= factor;
        error = error * std::fabs(factor) + u * std::fabs(value);
      }
      if (!layer.inputs.residual.empty() && !layer.inputs.residual_first) {
        value += at(layer.inputs.residual, r * width + o);
        error += u * std::fabs(value);
      }
      if (is_stored_as_half) error += error_as_half(std::fabs(value) + error);
      next.push_back(value, error);
    }
  return next;
}

inline Propagated propagate_from(Propagated h, const MlpCase& c, Rounded rounded = {}) {
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const bool is_last = l + 1 == c.layers.size();
    h = propagate_layer(h, c.layers[l], {rounded.x_and_weights, rounded.sums && l == 0},
                        !is_last || c.layers[l].extras.half_y);
  }
  return h;
}

/// x as it is, or its rounding to FP16.
inline Propagated propagated_input(const std::vector<float>& x, bool is_rounded) {
  Propagated h;
  for (const float value : x) h.push_back(value, is_rounded ? error_as_half(value) : 0);
  return h;
}

inline Propagated propagate(const MlpCase& c, Rounded rounded = {}) {
  return propagate_from(propagated_input(c.layers[0].inputs.x, rounded.x_and_weights), c, rounded);
}

inline void expect_close(const Propagated& expected, const std::vector<float>& y) {
  ASSERT_EQ(y.size(), expected.value.size());
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_LE(std::fabs(y[i] - expected.value[i]), expected.error[i])
        << "element " << i << ": expected " << expected.value[i] << ", got " << y[i];
}

/// A stack's arrays in the device's memory.
class DeviceMlp {
 public:
  explicit DeviceMlp(const MlpCase& c) {
    for (const LinearCase& layer : c.layers) device_.push_back(std::make_unique<DeviceLayer>(layer));
  }
  warprank::Mlp view() {
    layers_.clear();
    warprank::Mlp to;
    for (const auto& layer : device_) {
      const warprank::LinearLayer view = layer->view();
      layers_.push_back({view.weights, view.y.cols, view.activation});
    }
    const warprank::LinearLayer first = device_.front()->view(), last = device_.back()->view();
    to.x = first.x;
    to.num_rows = first.num_rows;
    to.row_bias = first.row_bias;
    to.layers = layers_;
    to.multiply = last.multiply;
    to.residual = last.residual;
    to.residual_first = last.residual_first;
    to.y = last.y;
    return to;
  }
  DeviceLayer& first() { return *device_.front(); }
  std::vector<float> values() const { return device_.back()->values(); }

 private:
  std::vector<std::unique_ptr<DeviceLayer>> device_;
  std::vector<warprank::MlpLayer> layers_;
};

/// A stack of which a layer is launched before the others, whose outputs lie in the workspace.
class MlpOfTwoLaunches {
 public:
  explicit MlpOfTwoLaunches(int target) : device_(case_), stack_(device_.view()), launch_({&stack_, 1}, target) {
    EXPECT_EQ(launch_.num_launches(), 2);
  }
  const warprank::MlpLaunch& launch() const { return launch_; }
  void expect_right() const { expect_close(propagate(case_), device_.values()); }

 private:
  MlpCase case_{9, {24, 5000, 40, 3}, {warprank::relu}};
  DeviceMlp device_;
  warprank::Mlp stack_;
  warprank::MlpLaunch launch_;
};

/// A prepared launch with its memory.
class DeviceMlpLaunch {
 public:
  DeviceMlpLaunch(const std::vector<warprank::Mlp>& stacks, int target, bool spread_first = true,
                  const warprank::ChainPolicy* policy = nullptr)
      : launch_(stacks, target, spread_first, {}, policy),
        workspace_(launch_.workspace_bytes(), static_cast<unsigned char>(0)),
        descriptors_(launch_.descriptors(workspace_.data())) {}
  void run(Stream stream = {}) { launch_.launch({descriptors_.data(), workspace_.data()}, stream); }
  const warprank::MlpLaunch& launch() const { return launch_; }
  DeviceArray<unsigned char>& descriptors() { return descriptors_; }

 private:
  warprank::MlpLaunch launch_;
  DeviceArray<unsigned char> workspace_, descriptors_;
};

}  // namespace kernel_testing
