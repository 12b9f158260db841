// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/activation.hpp"
#include "reference/bounded.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

/// One or more linear layers side by side; all row-major and dense, empty where there is none.
struct Linear {
  int64_t in = 0, out = 0, groups = 1;
  std::vector<float> weight;  // [groups, out, in]
  std::vector<float> bias;    // [groups * out]
  Activation activation;
  std::vector<float> alpha, scale, shift;  // [groups * out]
};

struct LinearInputs {
  std::vector<float> x;                   // [rows, groups * in]
  std::vector<float> row_bias;            // [segments, groups * out]
  std::vector<int64_t> row_bias_offsets;  // [segments + 1]
  std::vector<float> multiply, residual;  // [rows, groups * out]
  bool residual_first = false;            // it is added before f
};

/// What rounding both values of a product to BF16, by up to 2^-8 of each, does to it: in units of u = 2^-24, of the
/// product.
constexpr double bf16_product_error = 0x1p24 * 0x1p-8 * (2 + 0x1p-8);

/// y = f(x W^T + b + row_bias[segment of the row]) * multiply + residual, [rows, groups * out];
/// with residual_first f(x W^T + b + row_bias[segment of the row] + residual) * multiply. `product_error`: of each
/// product, beside what FP32 does; `is_bf16`: with f as it is behind products in BF16.
inline Bounded linear(const Linear& layer, int64_t rows, const LinearInputs& inputs, double product_error = 0,
                      bool is_bf16 = false) {
  const int64_t width = layer.groups * layer.out;
  const auto at = [](const std::vector<float>& values, int64_t i) {
    return static_cast<double>(values[static_cast<size_t>(i)]);
  };
  Bounded y;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t group = c / layer.out;
      double sum = 0, magnitude = 0, products = 0;
      const auto add = [&](double term) {
        sum += term;
        magnitude += std::abs(term);
      };
      if (!layer.bias.empty()) add(at(layer.bias, c));
      for (size_t s = 0; s + 1 < inputs.row_bias_offsets.size(); ++s)
        if (inputs.row_bias_offsets[s] <= r && r < inputs.row_bias_offsets[s + 1])
          add(at(inputs.row_bias, static_cast<int64_t>(s) * width + c));
      for (int64_t k = 0; k < layer.in; ++k) {
        const double product =
            at(inputs.x, (r * layer.groups + group) * layer.in + k) * at(layer.weight, c * layer.in + k);
        add(product);
        products += std::abs(product);
      }

      double sum_bound = static_cast<double>(layer.in + 2) * magnitude + product_error * products;
      if (inputs.residual_first) {
        sum += at(inputs.residual, r * width + c);
        sum_bound += std::abs(sum);
      }
      const auto learned = [&](const std::vector<float>& values) { return values.empty() ? 0.0 : at(values, c); };
      Activated f = activation(layer.activation, sum, learned(layer.alpha), learned(layer.scale), learned(layer.shift));
      if (is_bf16) f = in_bf16_layer(layer.activation, f);
      double value = f.value;
      double bound = f.error + f.slope * sum_bound;
      if (!inputs.multiply.empty()) {
        const double factor = at(inputs.multiply, r * width + c);
        value *= factor;
        bound = bound * std::abs(factor) + std::abs(value);
      }
      if (!inputs.residual.empty() && !inputs.residual_first) {
        value += at(inputs.residual, r * width + c);
        bound += std::abs(value);
      }
      y.value.push_back(value);
      y.bound.push_back(bound);
    }
  return y;
}

}  // namespace warprank::reference
