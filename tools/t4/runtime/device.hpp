// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the card has, as the runtime says it.

#include <cstdint>

namespace t4 {

inline constexpr uint64_t max_threads = 1024, max_warps = 32, max_blocks = 16, num_registers = 65536;
inline constexpr uint64_t max_shared_bytes = 64 * 1024, shared_bytes_of_multiprocessor = 64 * 1024;
inline constexpr uint64_t memory_bytes = uint64_t{15} << 30;

int num_multiprocessors();

}  // namespace t4
