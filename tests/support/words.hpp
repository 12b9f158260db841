// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Words of 8 bytes, of which kernels copy some.

#include <cstdint>
#include <numeric>
#include <vector>

namespace warprank::test_support {

using Words = std::vector<uint64_t>;

inline constexpr uint64_t untouched = 7;

/// `first`, the number behind it, and so on.
inline Words numbers(int64_t count, uint64_t first) {
  Words words(static_cast<size_t>(count));
  std::iota(words.begin(), words.end(), first);
  return words;
}

}  // namespace warprank::test_support
