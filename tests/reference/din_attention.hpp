// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/activation.hpp"
#include "reference/attention_weights.hpp"
#include "reference/bounded.hpp"
#include "reference/linear.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

/// The score of one event: layers([q, k, q - k, q * k]), the last layer of one column. The bound allows q - k to be
/// taken apart and two weights of a column to be added before they are multiplied by it. `product_error`: as of
/// reference::linear.
inline void append_din_score(const float* q, const float* k, int64_t dim, const std::vector<Linear>& layers,
                             double factor, double product_error, Bounded& scores) {
  std::vector<double> x, magnitude, error;
  const auto append = [&](double value, double size) {
    x.push_back(value);
    magnitude.push_back(size);
    error.push_back(3 * size);
  };
  for (int64_t c = 0; c < dim; ++c) append(q[c], std::fabs(q[c]));
  for (int64_t c = 0; c < dim; ++c) append(k[c], std::fabs(k[c]));
  for (int64_t c = 0; c < dim; ++c) append(static_cast<double>(q[c]) - k[c], std::fabs(q[c]) + std::fabs(k[c]));
  for (int64_t c = 0; c < dim; ++c) append(static_cast<double>(q[c]) * k[c], std::fabs(q[c]) * std::fabs(k[c]));

  for (const Linear& layer : layers) {
    std::vector<double> y, y_error;
    for (size_t j = 0; j < static_cast<size_t>(layer.out); ++j) {
      const auto learned = [j](const std::vector<float>& values) { return values.empty() ? 0.0 : values[j]; };
      double sum = learned(layer.bias), size = std::fabs(sum), products = 0, sum_error = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double weight = layer.weight[j * x.size() + i];
        sum += weight * x[i];
        products += std::fabs(weight) * magnitude[i];
        sum_error += std::fabs(weight) * error[i];
      }
      size += products;
      sum_error += static_cast<double>(x.size() + 2) * size + product_error * products;
      Activated f = activation(layer.activation, sum, learned(layer.alpha), learned(layer.scale), learned(layer.shift));
      if (product_error > 0) f = in_bf16_layer(layer.activation, f);
      y.push_back(f.value);
      y_error.push_back(f.error + f.slope * sum_error);
    }
    x = y, error = y_error, magnitude.clear();
    for (const double value : x) magnitude.push_back(std::fabs(value));
  }
  scores.value.push_back(factor * x[0]);
  scores.bound.push_back(std::fabs(factor) * (error[0] + 2 * magnitude[0]));
}

/// y[n] = sum_t w_t k_t over the events t of n's parent, w = normalization(factor * scores). No event: zeros.
inline Bounded din_attention(Matrix<const float> q, Matrix<const float> k, Segments items, Segments history,
                             const std::vector<Linear>& layers, Normalization normalization, double factor,
                             double product_error = 0) {
  Bounded y;
  for (int64_t u = 0; u < items.count; ++u)
    for (int64_t n = items.begin(u); n < items.end(u); ++n) {
      Bounded scores;
      for (int64_t t = history.begin(u); t < history.end(u); ++t)
        append_din_score(q.row(n), k.row(t), q.cols, layers, factor, product_error, scores);
      append_weighted_sums(attention_weights(scores, normalization), k.row_range(history.begin(u), history.size(u)), y);
    }
  return y;
}

}  // namespace warprank::reference
