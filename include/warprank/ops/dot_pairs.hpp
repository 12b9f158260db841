// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How many columns the dot interaction has.

#include <cstdint>

#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// Pairs of `num_fields` fields, with `self` those of a field and itself, and the zero of lower_padded.
constexpr int64_t num_dot_pairs(int64_t num_fields, DotOrder order, bool self) {
  return num_fields * (num_fields - 1) / 2 + (self ? num_fields : 0) + (order == DotOrder::lower_padded ? 1 : 0);
}

}}  // namespace warprank::v0
