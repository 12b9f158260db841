// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/activation.hpp"
#include "reference/attention_weights.hpp"
#include "reference/bounded.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

/// Weights are [heads * head_dim, dim], row-major; without a residual the last is empty.
struct FieldAttention {
  int64_t dim = 1, heads = 1, head_dim = 1;
  double scale = 1;
  std::vector<float> query, key, value, residual;
  Activation activation;

  int64_t columns() const { return heads * head_dim; }
};

/// W x_f of each field x_f of a row, with `halves` rounded to FP16.
inline Bounded projected_fields(const std::vector<float>& weight, int64_t columns, const float* x, int64_t fields,
                                int64_t dim, bool halves) {
  Bounded y;
  for (int64_t f = 0; f < fields; ++f)
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0, magnitude = 0;
      for (int64_t d = 0; d < dim; ++d) {
        const double product = static_cast<double>(weight[static_cast<size_t>(c * dim + d)]) * x[f * dim + d];
        sum += product;
        magnitude += std::fabs(product);
      }
      y.value.push_back(sum);
      y.bound.push_back(static_cast<double>(dim + 2) * magnitude + (halves ? 0x1p13 * std::fabs(sum) + 1 : 0));
    }
  return y;
}

/// y_f = act(sum_g w_fg v_g + Wr x_f) of each head, w_f = softmax over g of scale <q_f, k_g>, for the fields of each
/// row. With `halves` q, k, v and the weights are rounded to FP16, those that are 2^-29 of the largest to multiples.
inline Bounded field_attention(const FieldAttention& layer, Matrix<const float> x, bool halves) {
  constexpr double u = 0x1p-24;
  const int64_t fields = x.cols / layer.dim, columns = layer.columns();
  Bounded y;
  for (int64_t n = 0; n < x.rows; ++n) {
    const auto project = [&](const std::vector<float>& weight, bool rounded) {
      return projected_fields(weight, columns, x.row(n), fields, layer.dim, rounded);
    };
    const Bounded q = project(layer.query, halves), k = project(layer.key, halves), v = project(layer.value, halves);
    const Bounded residual = layer.residual.empty() ? Bounded{} : project(layer.residual, false);
    for (int64_t f = 0; f < fields; ++f)
      for (int64_t h = 0; h < layer.heads; ++h) {
        const auto at = [&](int64_t field, int64_t c) {
          return static_cast<size_t>(field * columns + h * layer.head_dim + c);
        };
        Bounded scores;
        for (int64_t g = 0; g < fields; ++g) {
          double sum = 0, bound = 0;
          for (int64_t c = 0; c < layer.head_dim; ++c) {
            const size_t i = at(f, c), j = at(g, c);
            sum += q.value[i] * k.value[j];
            bound += static_cast<double>(layer.head_dim + 2) * std::fabs(q.value[i] * k.value[j]) +
                     q.bound[i] * std::fabs(k.value[j]) + (std::fabs(q.value[i]) + u * q.bound[i]) * k.bound[j];
          }
          scores.value.push_back(layer.scale * sum);
          scores.bound.push_back(std::fabs(layer.scale) * bound);
        }
        const Bounded weights = attention_weights(scores, Normalization::softmax);
        for (int64_t c = 0; c < layer.head_dim; ++c) {
          double sum = 0, bound = 0;
          for (int64_t g = 0; g < fields; ++g) {
            const double weight = weights.value[static_cast<size_t>(g)], value = v.value[at(g, c)];
            const double rounding = halves ? 0x1p14 * weight + 0x1p-15 : 0;
            const double error = weights.bound[static_cast<size_t>(g)] + static_cast<double>(fields) * weight;
            sum += weight * value;
            bound += (error + rounding) * std::fabs(value) + weight * v.bound[at(g, c)];
          }
          if (!layer.residual.empty()) {
            sum += residual.value[at(f, c)];
            bound += residual.bound[at(f, c)] + std::fabs(sum);
          }
          const Activated made = activation(layer.activation, sum);
          y.value.push_back(made.value);
          y.bound.push_back(made.error + made.slope * bound);
        }
      }
  }
  return y;
}

}  // namespace warprank::reference
