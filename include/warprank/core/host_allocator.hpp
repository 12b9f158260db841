// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The source of host memory.

#include <cstdint>
#include <cstdlib>
#include <functional>

namespace warprank { inline namespace v0 {

/// Host memory that a batch asks for while it grows; replace it to get pinned memory. Called by one thread at a time.
struct HostAllocator {
  /// `bytes` > 0 of memory aligned to 8 bytes or more; null if there is none, or an exception with the reason.
  std::function<void*(int64_t bytes)> allocate = [](int64_t bytes) { return std::malloc(static_cast<size_t>(bytes)); };
  std::function<void(void* memory, int64_t bytes)> deallocate = [](void* memory, int64_t) { std::free(memory); };
};

}}  // namespace warprank::v0
