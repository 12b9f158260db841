// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace warprank { inline namespace v0 {

/// Gives back the pages of memory that is about to be freed or unmapped; its values are lost. It works on some MB at a
/// time, since the system unmaps under a lock for which other threads' allocations wait: 83 ms for 512 MB of small
/// pages. Less than some MB is left unchanged.
inline void release_pages(const void* data, int64_t bytes) {
  constexpr uintptr_t page = 4096, piece = uintptr_t{4} << 20;
  if (bytes < static_cast<int64_t>(2 * piece)) return;
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = (address + static_cast<uintptr_t>(bytes)) / page * page;
  for (uintptr_t at = (address + page - 1) / page * page; at < end; at = (at / piece + 1) * piece)
    ::madvise(reinterpret_cast<void*>(at), std::min((at / piece + 1) * piece, end) - at, MADV_DONTNEED);
}

}}  // namespace warprank::v0
