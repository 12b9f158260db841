// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "warprank/model/types.hpp"

namespace warprank::reference {

/// f(x) in double, with what a caller needs to bound the error of an FP32 evaluation.
struct Activated {
  double value;
  double error;  ///< of FP32 f at exactly this x, in units of u = 2^-24, as stated in ops/host/activation.hpp
  double slope;  ///< no difference quotient of f is larger
};

/// That of a layer in BF16, whose sigmoid is good to 2^-12, not 8 u.
inline Activated in_bf16_layer(const Activation& spec, Activated f) {
  const bool has_sigmoid =
      spec.kind == ActivationKind::sigmoid || spec.kind == ActivationKind::silu || spec.kind == ActivationKind::dice;
  if (has_sigmoid) f.error *= 0x1p-12 / (8 * 0x1p-24);
  return f;
}

/// alpha, scale and shift are the channel's learned ones; leaky_relu and elu take theirs from the spec.
inline Activated activation(const Activation& spec, double x, double alpha = 0, double scale = 0, double shift = 0) {
  const auto logistic = [](double z) { return 1 / (1 + std::exp(-z)); };
  // At -infinity the limit, which the formula does not give.
  const auto times = [x](double factor) { return factor == 0 ? std::copysign(0.0, x) : x * factor; };
  const double pi = std::acos(-1.0);
  switch (spec.kind) {
    case ActivationKind::identity:
      return {x, 0, 1};
    case ActivationKind::relu:
      return {x < 0 ? 0 : x, 0, 1};
    case ActivationKind::leaky_relu:
      alpha = spec.alpha;
      [[fallthrough]];
    case ActivationKind::prelu: {
      const double y = x > 0 ? x : alpha * x;
      return {y, std::abs(y), std::max(1.0, std::abs(alpha))};
    }
    case ActivationKind::elu: {
      const double y = x > 0 ? x : spec.alpha * std::expm1(x);
      return {y, 8 * std::abs(y), std::max(1.0, std::abs(static_cast<double>(spec.alpha)))};
    }
    case ActivationKind::dice: {
      const double p = logistic(scale * x + shift);
      // p's own error is at most 1/4 of that of scale x + shift.
      const double argument = std::abs(scale * x) + std::abs(shift);
      return {x * (p + alpha * (1 - p)),
              8 * (std::abs(x * p) + std::abs(alpha * x * (1 - p))) + std::abs(x * (1 - alpha)) * argument / 2,
              std::max(1.0, std::abs(alpha)) + std::abs(1 - alpha) * (0.23 + std::abs(shift) / 4)};
    }
    case ActivationKind::sigmoid:
      return {logistic(x), 8 * logistic(x), 0.25};
    case ActivationKind::tanh:
      return {std::tanh(x), 8 * std::abs(std::tanh(x)), 1};
    case ActivationKind::gelu: {
      const double y = times(std::erfc(-x / std::sqrt(2.0)) / 2);
      return {y, std::abs(y) * (x < 0 ? 8 + x * x : 8), 1.13};
    }
    case ActivationKind::gelu_tanh: {
      const double y = times(logistic(2 * std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
      return {y, std::abs(y) * (x < 0 ? 8 - 4 * x * x * x : 8), 1.13};
    }
    case ActivationKind::silu: {
      const double y = times(logistic(x));
      return {y, 8 * std::abs(y), 1.1};
    }
  }
  return {};
}

}  // namespace warprank::reference
