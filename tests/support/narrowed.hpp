// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Numbers of tests as the host stores them: device::narrow is a function of kernels alone, and one that is called on
/// the host ends a program that nvcc has compiled.

#include <type_traits>
#include <vector>

#include "warprank/core/dtype.hpp"

namespace kernel_testing {

/// The nearest Value (float, half or bfloat16), ties to even.
template <class Value>
Value narrowed(float value) {
  if constexpr (std::is_same_v<Value, warprank::float16>) return warprank::to_float16(value);
  if constexpr (std::is_same_v<Value, warprank::bfloat16>) return warprank::to_bfloat16(value);
  if constexpr (std::is_same_v<Value, float>) return value;
}

template <class Value>
std::vector<Value> converted(const std::vector<float>& from) {
  std::vector<Value> to;
  for (const float value : from) to.push_back(narrowed<Value>(value));
  return to;
}

}  // namespace kernel_testing
