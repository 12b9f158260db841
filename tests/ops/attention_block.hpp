// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Blocks around attention, strung together from launches, and what they may differ from the formula by: numbers with
/// bounds of their errors go through the same layers in double, where each adds what its op states, and FP16 between
/// layers its rounding.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/attention_case.hpp"
#include "ops/linear_case.hpp"
#include "reference/activation.hpp"
#include "reference/attention_weights.hpp"
#include "support/golden_tensors.hpp"
#include "warprank/ops/attention.cuh"
#include "warprank/ops/linear.cuh"
#include "warprank/ops/row_programs.cuh"

namespace kernel_testing {

/// Rows of numbers and the errors that they may have.
struct UncertainRows {
  int64_t cols = 0;
  std::vector<double> value, error;

  int64_t rows() const { return static_cast<int64_t>(value.size()) / cols; }
  double size(int64_t r, int64_t c) const { return std::fabs(at(r, c)) + error_at(r, c); }
  double at(int64_t r, int64_t c) const { return value[static_cast<size_t>(r * cols + c)]; }
  double error_at(int64_t r, int64_t c) const { return error[static_cast<size_t>(r * cols + c)]; }
  void add(double v, double e) { value.push_back(v), error.push_back(e); }
  /// As FP16 has them.
  UncertainRows& narrow() {
    for (size_t i = 0; i < value.size(); ++i) error[i] += 0x1p-11 * (std::fabs(value[i]) + error[i]) + 0x1p-25;
    return *this;
  }
};

/// A layer of a golden file, on the host and packed on the device.
struct BlockLayer {
  std::vector<float> weight, bias;
  int64_t in = 0, out = 0;
  Activation activation;
  std::unique_ptr<DeviceArray<unsigned char>> packed;

  warprank::LinearLayer on(Matrix<const float16> x, warprank::FloatMatrix<void> y) const {
    warprank::LinearLayer layer;
    layer.weights = packed->data();
    layer.x = x, layer.y = y;
    layer.activation = {activation.kind, activation.alpha, nullptr, nullptr, nullptr};
    return layer;
  }

  UncertainRows exact(const UncertainRows& x, const UncertainRows* residual = nullptr) const {
    UncertainRows y{out, {}, {}};
    for (int64_t r = 0; r < x.rows(); ++r)
      for (int64_t o = 0; o < out; ++o) {
        double sum = bias.empty() ? 0 : bias[static_cast<size_t>(o)], error = 0, magnitude = std::fabs(sum);
        for (int64_t i = 0; i < in; ++i) {
          const double w = weight[static_cast<size_t>(o * in + i)];
          sum += w * x.at(r, i);
          magnitude += std::fabs(w) * x.size(r, i);
          error += std::fabs(w) * x.error_at(r, i) + (0x1p-11 * std::fabs(w) + 0x1p-25) * x.size(r, i);
        }
        const double added = residual == nullptr ? 0 : residual->at(r, o);
        error += 2 * (static_cast<double>(in) + 2) * 0x1p-24 * (magnitude + std::fabs(added));
        const warprank::reference::Activated f = warprank::reference::activation(activation, sum);
        y.add(f.value + added,
              f.slope * error + 0x1p-24 * f.error + (residual == nullptr ? 0 : residual->error_at(r, o)));
      }
    return y;
  }
};

struct BlockNorm {
  std::vector<float> gamma, beta;
  std::unique_ptr<DeviceArray<float>> device_gamma, device_beta;
  static constexpr float eps = 1e-5f;

  void run(Matrix<const float16> x, warprank::FloatMatrix<void> y) const {
    const warprank::AxisInput<void> input{x, nullptr, nullptr};
    warprank::RowProgram program;
    program.inputs = {&input, 1};
    program.step = warprank::LayerNormOfRow{eps, device_gamma->data(), device_beta->data()};
    program.y = y;
    const warprank::RowProgramLaunch launch({&program, 1});
    const DeviceArray<unsigned char> descriptors(launch.descriptors());
    launch.launch({descriptors.data()});
    synchronize();
  }

  UncertainRows exact(const UncertainRows& x) const {
    UncertainRows y{x.cols, {}, {}};
    const auto cols = static_cast<double>(x.cols);
    for (int64_t r = 0; r < x.rows(); ++r) {
      double mean = 0, mean_error = 0, mean_size = 0, variance = 0, variance_error = 0;
      for (int64_t c = 0; c < x.cols; ++c) {
        mean += x.at(r, c) / cols, mean_error += x.error_at(r, c) / cols, mean_size += x.size(r, c) / cols;
      }
      for (int64_t c = 0; c < x.cols; ++c) {
        const double d = std::fabs(x.at(r, c) - mean), e = x.error_at(r, c) + mean_error;
        variance += d * d / cols, variance_error += (2 * d + e) * e / cols;
      }
      const double scale = 1 / std::sqrt(variance + eps);
      const double scale_error = 1 / std::sqrt(std::max(variance - variance_error, 0.0) + eps) - scale;
      for (int64_t c = 0; c < x.cols; ++c) {
        const double g = gamma[static_cast<size_t>(c)], b = beta[static_cast<size_t>(c)], d = x.at(r, c) - mean;
        const double e = x.error_at(r, c) + mean_error;
        const double computed = 8 * (cols + 8) * 0x1p-24 * (std::fabs(g) * scale * (mean_size + x.size(r, c)));
        const double moved = std::fabs(g) * ((std::fabs(d) + e) * scale_error + scale * e) + computed;
        // No normed number is larger than sqrt(cols).
        y.add(d * scale * g + b, std::min(moved, 2 * std::fabs(g) * std::sqrt(cols)) + 0x1p-22 * std::fabs(b));
      }
    }
    return y;
  }
};

/// The formula, with the error that ops/attention.cuh states and those of q, k and v.
inline UncertainRows exact_attention(const UncertainRows& q, const UncertainRows& k, const UncertainRows& v,
                                     const Sizes& items, const Sizes& events, int64_t heads, bool causal) {
  const int64_t dim = q.cols / heads;
  const double scale = 1 / std::sqrt(static_cast<double>(dim)), u = 0x1p-24;
  UncertainRows y{q.cols, {}, {}};
  int64_t first_item = 0, first_event = 0;
  for (size_t user = 0; user < items.size(); first_item += items[user], first_event += events[user], ++user)
    for (int64_t item = 0; item < items[user]; ++item)
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t seen = causal ? item + 1 : events[user];
        Bounded scores;
        for (int64_t t = first_event; t < first_event + seen; ++t) {
          double dot = 0, error = 0, magnitude = 0;
          for (int64_t c = h * dim; c < (h + 1) * dim; ++c) {
            const int64_t i = first_item + item;
            dot += q.at(i, c) * k.at(t, c);
            magnitude += q.size(i, c) * k.size(t, c);
            error += q.size(i, c) * k.error_at(t, c) + q.error_at(i, c) * k.size(t, c);
          }
          scores.value.push_back(scale * dot);
          scores.bound.push_back(scale * (error / u + 2 * static_cast<double>(dim + 2) * magnitude));
        }
        const Bounded weights = warprank::reference::attention_weights(scores, warprank::Normalization::softmax);
        for (int64_t c = h * dim; c < (h + 1) * dim; ++c) {
          double sum = 0, error = 0, most = 0;
          for (int64_t s = 0; s < seen; ++s) {
            const int64_t t = first_event + s;
            most = std::max(most, v.size(t, c));
            const double weight = weights.value[static_cast<size_t>(s)], bound = weights.bound[static_cast<size_t>(s)];
            sum += weight * v.at(t, c);
            error += weight * v.error_at(t, c) + 0x1p-39 * v.size(t, c) +
                     (2 * u * (bound + weight * static_cast<double>(seen)) + 0x1p-10 * weight) * v.size(t, c);
          }
          y.add(sum, std::min(error, 2 * most));  // a mean of the values in any case
        }
      }
  return y;
}

/// Weights of a golden file.
class BlockWeights {
 public:
  explicit BlockWeights(const std::string& file)
      : content_(std::string(WARPRANK_TEST_DATA) + "/golden/" + file + ".safetensors") {}

  BlockLayer layer(const std::string& name, Activation activation = {}) const {
    BlockLayer to;
    const std::string weight = "weight/" + name + ".weight", bias = "weight/" + name + ".bias";
    to.weight = floats(weight);
    if (content_.tensors().count(bias) != 0) to.bias = floats(bias);
    to.out = content_.tensors().at(weight).shape[0], to.in = content_.tensors().at(weight).shape[1];
    to.activation = activation;
    const auto packed = warprank::pack_linear(Span<const float>(to.weight), to.bias, to.in, to.out);
    to.packed = std::make_unique<DeviceArray<unsigned char>>(
        std::vector<unsigned char>(packed.data(), packed.data() + packed.size()));
    return to;
  }
  BlockNorm norm(const std::string& name) const {
    BlockNorm to;
    to.gamma = floats("weight/" + name + ".weight"), to.beta = floats("weight/" + name + ".bias");
    to.device_gamma = std::make_unique<DeviceArray<float>>(to.gamma);
    to.device_beta = std::make_unique<DeviceArray<float>>(to.beta);
    return to;
  }

 private:
  std::vector<float> floats(const std::string& name) const {
    const warprank::TensorView& tensor = content_.tensors().at(name);
    std::vector<float> values;
    for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(warprank::load_element<float>(tensor.data, i));
    return values;
  }

  warprank::SafetensorsFile content_;
};

/// An input of a golden file, on the device as FP16.
struct BlockInput {
  UncertainRows exact;
  std::unique_ptr<DeviceMatrix<float16>> device;

  BlockInput(const std::string& file, const std::string& name, int64_t cols) {
    const std::vector<float> values = warprank::test_support::golden_tensor<float>(file, "dense/" + name).values;
    std::vector<float16> narrow;
    exact.cols = cols;
    for (const float value : values) exact.add(value, 0), narrow.push_back(warprank::to_float16(value));
    exact.narrow();
    device = std::make_unique<DeviceMatrix<float16>>(narrow, exact.rows(), cols);
  }
  Matrix<const float16> view() const { return device->view(); }
};

inline void run_layers(const std::vector<warprank::LinearLayer>& layers, int target) {
  DeviceLaunch launch(layers, target);
  launch.run();
  synchronize();
}

/// What PyTorch gave, within the errors; many of them are small enough to say something.
inline void expect_golden(const std::vector<double>& golden, const UncertainRows& exact, const std::vector<float>& y) {
  ASSERT_EQ(golden.size(), y.size());
  ASSERT_EQ(golden.size(), exact.value.size());
  std::vector<double> errors;
  double worst = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_NEAR(exact.value[i], golden[i], 1e-4) << "the formula";
    EXPECT_LE(std::fabs(y[i] - golden[i]), exact.error[i]) << i;
    errors.push_back(exact.error[i]);
    worst = std::max(worst, std::fabs(y[i] - golden[i]) / exact.error[i]);
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 4], 0.1);  // norms of rows that hardly vary, and large scores, magnify errors
  testing::Test::RecordProperty("worst_error_over_bound", std::to_string(worst));
}

}  // namespace kernel_testing
