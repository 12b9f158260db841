// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace t4 {

float half_to_float(uint16_t bits);
/// Rounded once, to nearest or toward zero; NaN is 0x7fff.
uint16_t to_half(double value, bool toward_zero = false);

}  // namespace t4
