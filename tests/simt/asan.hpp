// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What AddressSanitizer is told; nothing without it.

#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WARPRANK_SIMT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WARPRANK_SIMT_ASAN 1
#endif
#if defined(WARPRANK_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

/// AddressSanitizer reports accesses out of bounds itself, and must not be made to by looking for their traces.
#if defined(WARPRANK_SIMT_ASAN)
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif

/// Makes it an error to touch the bytes.
inline void forbid([[maybe_unused]] const void* address, [[maybe_unused]] int64_t bytes) {
#if defined(WARPRANK_SIMT_ASAN)
  __asan_poison_memory_region(address, static_cast<size_t>(bytes));
#endif
}
inline void allow([[maybe_unused]] const void* address, [[maybe_unused]] int64_t bytes) {
#if defined(WARPRANK_SIMT_ASAN)
  __asan_unpoison_memory_region(address, static_cast<size_t>(bytes));
#endif
}

}  // namespace simt
