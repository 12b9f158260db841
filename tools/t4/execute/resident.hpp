// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a multiprocessor has, and what a block takes of it.

#include <algorithm>
#include <cstdint>

#include "execute/warp.hpp"

namespace t4 {

inline constexpr uint64_t max_threads = 1024, num_registers = 65536;
inline constexpr uint64_t shared_unit = 256, register_unit = 8;

/// Of compute capability 7.5; newer cards have more.
struct Room {
  uint64_t warps = 32, blocks = 16, shared_bytes = 64 * 1024;
  uint64_t shared_bytes_of_block = 64 * 1024;  ///< static and dynamic
};

inline uint64_t registers_of_warp(const Function& function) {
  const auto of_thread = static_cast<uint64_t>(std::max(function.code.num_registers, 1));
  return (of_thread + register_unit - 1) / register_unit * register_unit * warp_size;
}

/// Blocks of a kernel that a multiprocessor has place for at once.
inline int resident_blocks(const Function& function, uint64_t threads, uint64_t dynamic_shared_bytes,
                           const Room& room = {}) {
  const uint64_t warps = std::max<uint64_t>((threads + warp_size - 1) / warp_size, 1);
  const uint64_t shared =
      (function.reserved_shared_bytes + function.static_shared_bytes + dynamic_shared_bytes + shared_unit - 1) /
      shared_unit * shared_unit;
  uint64_t blocks = std::min({room.warps / warps, num_registers / (registers_of_warp(function) * warps), room.blocks});
  if (shared > 0) blocks = std::min(blocks, room.shared_bytes / shared);
  return static_cast<int>(blocks);
}

}  // namespace t4
