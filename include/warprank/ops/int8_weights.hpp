// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Weights of a layer in INT8, with a scale for each output:
///
///     s_o = max_k |W_ok| / 127        q_ok = W_ok / s_o, rounded to nearest        W'_ok = q_ok s_o
///
/// Layers compute with W': on the host in FP32 or rounded to BF16, on a GPU with q in FP16 and s_o times the sum.
/// |W_ok - W'_ok| <= (1/2 + 2^-16) s_o. Outputs whose weights are all below 2^-119 in magnitude have 0 for each of
/// them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// s_o of the weights of one output.
inline float int8_scale(Span<const float> weight) {
  float largest = 0;
  for (const float w : weight) largest = std::max(largest, std::abs(w));
  return largest < 0x1p-119f ? 0 : largest / 127;
}

/// q_ok.
inline int8_t to_int8(float weight, float scale) {
  return scale == 0 ? int8_t{0} : static_cast<int8_t>(std::nearbyint(weight / scale));
}

/// Throws invalid_argument, with `name` and the place, for a weight that would not be finite.
inline void check_int8(const std::string& name, Span<const float> weight) {
  for (int64_t i = 0; i < weight.size(); ++i)
    if (!std::isfinite(std::abs(weight[i]) / 127 * 127))
      raise(invalid_argument(name + ", element " + std::to_string(i),
                             "a number that is finite in INT8, at most 3.4028234e+38", std::to_string(weight[i])));
}

}}  // namespace warprank::v0
