// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which products of fields a dot gives, and how many.

#include <cstdint>

#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// All pairs of fields in an order, or each of the first `num_left` fields with each other one.
struct DotPairs {
  DotOrder order = DotOrder::lower;
  bool self = false;     ///< of all pairs: also each field with itself
  int64_t num_left = 0;  ///< 0: all pairs; else row-major, one row for each field on the left, whatever the order
};

/// The number of products of `num_fields` fields, plus one for the zero of lower_padded.
constexpr int64_t num_dot_pairs(int64_t num_fields, const DotPairs& pairs) {
  if (pairs.num_left > 0) return pairs.num_left * (num_fields - pairs.num_left);
  return num_fields * (num_fields - 1) / 2 + (pairs.self ? num_fields : 0) +
         (pairs.order == DotOrder::lower_padded ? 1 : 0);
}

}}  // namespace warprank::v0
