// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank {

/// Asks for the cache line of `address`, which need not be mapped.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");  // GCC takes a function that only prefetches for one without effect, and drops its calls
}

/// Asks for all lines of [address, address + bytes), bytes > 0.
inline void prefetch(const void* address, int64_t bytes) {
  constexpr int64_t line = 64;
  const char* begin = static_cast<const char*>(address);
  for (int64_t offset = 0; offset < bytes; offset += line) prefetch(begin + offset);
  prefetch(begin + bytes - 1);  // the last line, where the range does not start with one
}

}  // namespace warprank
