// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Activations inside kernels: y = f(x) for every ActivationKind (model/types.hpp has the formulas), in FP32.
///
/// Error against the exact value: as stated for the host in ops/host/activation.hpp, given exp, expm1 and tanh within 2
/// units in the last place, which CUDA's are unless compiled with --use_fast_math. NaN gives NaN; +-infinity gives the
/// limit.

#include <cmath>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// An activation as kernels take it: the setting of its kind, and learned vectors in device memory, one value per
/// column, null where the kind does not use them.
struct DeviceActivation {
  ActivationKind kind = ActivationKind::identity;
  float alpha = 0;                ///< leaky_relu, elu
  const float* alphas = nullptr;  ///< [width] prelu, dice
  const float* scales = nullptr;  ///< [width] dice: p = sigmoid(scale x + shift)
  const float* shifts = nullptr;  ///< [width] dice
};

/// Adds a problem where the vectors are not those that the kind uses.
inline void check_activation(const DeviceActivation& activation, const std::string& what, Problems& problems) {
  const bool is_dice = activation.kind == ActivationKind::dice;
  const bool has_alphas = is_dice || activation.kind == ActivationKind::prelu;
  const auto expect = [&](const char* name, bool needed, const float* got) {
    if (needed != (got != nullptr))
      problems.add(what + "'s activation " + name_of_enum(activation.kind),
                   std::string(needed ? "learned " : "no learned ") + name, needed ? "none" : "some");
  };
  expect("alphas", has_alphas, activation.alphas);
  expect("scales", is_dice, activation.scales);
  expect("shifts", is_dice, activation.shifts);
}

namespace detail {

/// 1 / (1 + exp(-x)), without overflow and exact in relation to itself.
WARPRANK_DEVICE float sigmoid_of(float x) {
  const float e = std::exp(-std::fabs(x));
  return device::divide_by_one_to_two(x < 0 ? e : 1.0f, 1.0f + e);
}

/// x > 0 ? x : alpha x
WARPRANK_DEVICE float leaky_relu_of(float x, float alpha) { return x > 0 ? x : alpha * x; }

/// x > 0 ? x : alpha (exp(x) - 1)
WARPRANK_DEVICE float elu_of(float x, float alpha) { return x > 0 ? x : alpha * std::expm1(x); }

/// x (p + alpha (1 - p)), p = sigmoid(scale x + shift)
WARPRANK_DEVICE float dice_of(float x, float alpha, float scale, float shift) {
  const float p = sigmoid_of(std::fma(scale, x, shift));
  return x * std::fma(alpha, 1.0f - p, p);
}

/// x f for a factor f that vanishes below `low`: there about 0 also for x = -infinity.
WARPRANK_DEVICE float times_vanishing(float x, float factor, float low) { return (x < low ? low : x) * factor; }

WARPRANK_DEVICE float silu_of(float x) { return times_vanishing(x, sigmoid_of(x), -105.0f); }

WARPRANK_DEVICE float gelu_of(float x) {
  const float t = std::fabs(x);
  // Phi(-t) = exp(-t^2 / 2) s q(s), s = 1 / (1 + 0.35 t): minimax over 0 <= t <= 14, relative error 2^-24.9. The tail
  // of erf would lose more: its argument is rounded before it is squared.
  const float s = 1.0f / std::fma(t, 0.35f, 1.0f);
  float q = -2.9146139386e-2f;
  q = std::fma(q, s, 1.4397270706e-1f);
  q = std::fma(q, s, -2.5571631910e-1f);
  q = std::fma(q, s, 1.5917649116e-1f);
  q = std::fma(q, s, -2.3111417386e-2f);
  q = std::fma(q, s, 1.0550866298e-1f);
  q = std::fma(q, s, 1.1983270385e-1f);
  q = std::fma(q, s, 1.3986189182e-1f);
  q = std::fma(q, s, 1.3962140305e-1f);
  const float tail = q * s * std::exp(t * t * -0.5f);
  return times_vanishing(x, x < 0 ? tail : 1.0f - tail, -15.0f);
}

WARPRANK_DEVICE float gelu_tanh_of(float x) {
  // 1/2 (1 + tanh(z)) = sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3).
  const float twice_z = x * std::fma(x * x, 0.0713548163f, 1.59576912161f);
  return times_vanishing(x, sigmoid_of(twice_z), -15.0f);
}

/// values[i] = f(values[i]) for the columns column + i Step, which is one and the same for a Step of 0. The kind is
/// looked up once for all of them, so that code grows by kinds x Count and not by branches; columns >= num_columns are
/// left as they are where the kind has learned vectors.
template <int Count, int Step = 1>
WARPRANK_DEVICE void activate(const DeviceActivation& activation, float (&values)[Count], int64_t column,
                              int64_t num_columns) {
  const auto each = [&](auto f) {
    WARPRANK_UNROLL
    for (int i = 0; i < Count; ++i) values[i] = f(values[i]);
  };
  const auto each_column = [&](auto f) {
    WARPRANK_UNROLL
    for (int i = 0; i < Count; ++i) {
      if (column + i * Step < num_columns) values[i] = f(values[i], column + i * Step);
    }
  };
  using device::load_read_only;
  switch (activation.kind) {
    case ActivationKind::identity:
      return;
    case ActivationKind::relu:
      return each([](float x) { return x < 0 ? 0.0f : x; });
    case ActivationKind::leaky_relu:
      return each([&](float x) { return leaky_relu_of(x, activation.alpha); });
    case ActivationKind::elu:
      return each([&](float x) { return elu_of(x, activation.alpha); });
    case ActivationKind::prelu:
      return each_column([&](float x, int64_t c) { return leaky_relu_of(x, load_read_only(&activation.alphas[c])); });
    case ActivationKind::dice:
      return each_column([&](float x, int64_t c) {
        return dice_of(x, load_read_only(&activation.alphas[c]), load_read_only(&activation.scales[c]),
                       load_read_only(&activation.shifts[c]));
      });
    case ActivationKind::sigmoid:
      return each([](float x) { return sigmoid_of(x); });
    case ActivationKind::tanh:
      return each([](float x) { return std::tanh(x); });
    case ActivationKind::gelu:
      return each([](float x) { return gelu_of(x); });
    case ActivationKind::gelu_tanh:
      return each([](float x) { return gelu_tanh_of(x); });
    case ActivationKind::silu:
      return each([](float x) { return silu_of(x); });
  }
}

/// f(value) in one column.
WARPRANK_DEVICE float apply(const DeviceActivation& activation, float value, int64_t column) {
  float values[1] = {value};
  activate(activation, values, column, column + 1);
  return values[0];
}

}  // namespace detail
}}  // namespace warprank::v0
