// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/bounded.hpp"
#include "reference/segmented_input.hpp"
#include "reference/softmax.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

/// y[n, d] = sum_e w_e experts[n, e, d] [* multiply[n, d]] [+ residual[n, d]], w = normalization(gate[n, :]).
inline Bounded mix(const SegmentedInput& experts, const SegmentedInput& gate, Normalization normalization, int64_t rows,
                   int64_t dim, Matrix<const float> multiply = {}, Matrix<const float> residual = {}) {
  Bounded y;
  const int64_t num_experts = gate.values.cols;
  for (int64_t n = 0; n < rows; ++n) {
    const Matrix<const float> logits(serving_row(gate, n), 1, num_experts);
    Bounded weights;
    if (normalization == Normalization::softmax) {
      weights = softmax(logits);
    } else {
      for (int64_t e = 0; e < num_experts; ++e) {
        const double logit = logits.row(0)[e];
        const double weight = normalization == Normalization::sigmoid ? 1 / (1 + std::exp(-logit)) : logit;
        weights.value.push_back(weight);
        weights.bound.push_back(normalization == Normalization::sigmoid ? 8 * weight : 0);
      }
    }
    for (int64_t d = 0; d < dim; ++d) {
      double sum = 0, bound = 0;
      for (int64_t e = 0; e < num_experts; ++e) {
        const double x = serving_row(experts, n)[e * dim + d];
        const double weight = weights.value[static_cast<size_t>(e)];
        sum += weight * x;
        bound += std::fabs(x) *
                 (weights.bound[static_cast<size_t>(e)] + static_cast<double>(num_experts) * std::fabs(weight));
      }
      if (multiply.data != nullptr) {
        const double factor = multiply.row(n)[d];
        sum *= factor;
        bound = bound * std::fabs(factor) + std::fabs(sum);
      }
      if (residual.data != nullptr) {
        sum += static_cast<double>(residual.row(n)[d]);
        bound += std::fabs(sum);
      }
      y.value.push_back(sum);
      y.bound.push_back(bound);
    }
  }
  return y;
}

}  // namespace warprank::reference
