// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank { inline namespace v0 {

/// The least multiple that is not below `value`, which is not negative.
constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}}  // namespace warprank::v0
