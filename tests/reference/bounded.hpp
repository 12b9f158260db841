// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace warprank::reference {

/// Row-major values and, for each, the first-order bound of the error that an FP32 evaluation may make, in units of
/// u = 2^-24: an implementation passes when |out - value| <= c u bound for its small stated c.
struct Bounded {
  std::vector<double> value;
  std::vector<double> bound;
};

/// y times a factor, which rounds once more.
inline Bounded product(Bounded y, const std::vector<double>& factor) {
  for (size_t i = 0; i < y.value.size(); ++i) {
    y.value[i] *= factor[i];
    y.bound[i] = y.bound[i] * std::fabs(factor[i]) + std::fabs(y.value[i]);
  }
  return y;
}

}  // namespace warprank::reference
