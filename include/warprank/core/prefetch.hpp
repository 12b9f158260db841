// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank { inline namespace v0 {

/// Asks for the cache line of `address`, which need not be mapped.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");  // GCC takes a function that only prefetches for one without effect, and drops its calls
}

/// The same, but only to the second-level cache.
inline void prefetch_second_level(const void* address) {
  __builtin_prefetch(address, 0, 2);
  asm volatile("");
}

namespace detail {
/// As many steps for rows of one size wherever they begin, so that no branch is mispredicted; the last line may come
/// twice.
template <class Fetch>
void for_each_line(const void* address, int64_t bytes, Fetch fetch) {
  constexpr uint64_t line = 64;
  const auto begin = reinterpret_cast<uintptr_t>(address), last = begin + static_cast<uint64_t>(bytes) - 1;
  for (uintptr_t at = begin; at <= last; at += line) fetch(reinterpret_cast<const void*>(at));
  fetch(reinterpret_cast<const void*>(last));
}
}  // namespace detail

/// Asks for all lines of [address, address + bytes), bytes > 0.
inline void prefetch(const void* address, int64_t bytes) {
  detail::for_each_line(address, bytes, [](const void* line) { prefetch(line); });
}
inline void prefetch_second_level(const void* address, int64_t bytes) {
  detail::for_each_line(address, bytes, [](const void* line) { prefetch_second_level(line); });
}

}}  // namespace warprank::v0
