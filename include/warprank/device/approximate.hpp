// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Functions of few instructions, for values that are rounded to FP16 afterwards or weigh other values against one
/// another.

#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// exp(x), to within 2 + 1.2 |x| units in the last place; subnormal results may be 0.
WARPRANK_DEVICE float fast_exp(float x) { return backend::fast_exp(x); }

/// 1 / sqrt(x), to within 2 units in the last place.
WARPRANK_DEVICE float fast_reciprocal_sqrt(float x) { return backend::fast_reciprocal_sqrt(x); }

/// 1 / (1 + exp(-x)), to within 4 + 1.2 |x| units in the last place; below 2^-126 it may be 0. NaN gives NaN.
WARPRANK_DEVICE float fast_sigmoid(float x) { return backend::fast_divide(1.0f, 1.0f + backend::fast_exp(-x)); }

}}}  // namespace warprank::v0::device
