// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The number of columns of the dot interaction.

#include <cstdint>

#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// The number of pairs of `num_fields` fields, with `self` also pairs of a field with itself, plus one for the zero of
/// lower_padded.
constexpr int64_t num_dot_pairs(int64_t num_fields, DotOrder order, bool self) {
  return num_fields * (num_fields - 1) / 2 + (self ? num_fields : 0) + (order == DotOrder::lower_padded ? 1 : 0);
}

}}  // namespace warprank::v0
