// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace warprank::reference {

/// Row-major values and, for each, the first-order bound of the error that an FP32 evaluation may make, in units of
/// u = 2^-24: an implementation passes when |out - value| <= c u bound for its small stated c.
struct Bounded {
  std::vector<double> value;
  std::vector<double> bound;
};

}  // namespace warprank::reference
