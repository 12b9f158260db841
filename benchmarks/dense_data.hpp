// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Seeded FP16 numbers, on the host.

#include <cstdint>
#include <random>
#include <vector>

#include "support/zipf.hpp"
#include "warprank/core/dtype.hpp"

namespace warprank::bench {

/// Uniform in [-scale, scale].
inline std::vector<float16> random_halves(int64_t count, uint64_t seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::vector<float16> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values.push_back(to_float16(scale * static_cast<float>(2 * test_support::uniform_01(random) - 1)));
  return values;
}

inline std::vector<float> to_floats(const std::vector<float16>& values) {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const float16 value : values) floats.push_back(to_float(value));
  return floats;
}

}  // namespace warprank::bench
