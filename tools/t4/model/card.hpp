// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <string>

#include "execute/resident.hpp"

namespace t4 {

/// What the model knows of a card; cards/t4.card says what each is, and where it is from. Times are in cycles.
struct Card {
  double capability = 0, multiprocessors = 0, gigahertz = 0;
  double resident_warps = 0, resident_blocks = 0, shared_bytes = 0;
  double l1_latency = 0, l1_bytes = 0, l2_latency = 0, l2_bytes = 0, l2_slices = 0;
  double l2_sectors_per_cycle = 0, l2_port_sectors_per_cycle = 0, dram_latency = 0, dram_sectors_per_cycle = 0,
         shared_latency = 0;
  double function_interval = 0, function_latency = 0, shuffle_latency = 0, special_latency = 0, barrier_latency = 0;
  double barrier_interval = 0, branch_latency = 0, tensor_interval = 0, fma_interval = 0, memory_interval = 0,
         fetch_line_cycles = 0, fetch_jump_cycles = 0, l0_code_bytes = 0;
  double l0_code_cycles = 0, l0_kept_launches = 0, l15_code_bytes = 0, constant_miss_cycles = 0,
         launch_microseconds = 0;
  double dependent_launch_microseconds = 0;
};

/// Throws std::runtime_error: the line and what is wrong with it, or what is missing.
Card parse_card(std::istream& text, const std::string& name);
Card read_card(const std::string& path);

inline Room room_of(const Card& card) {
  const auto shared_bytes = static_cast<uint64_t>(card.shared_bytes);
  const uint64_t reserved = card.capability > 75 ? 1024 : 0;
  return {static_cast<uint64_t>(card.resident_warps), static_cast<uint64_t>(card.resident_blocks), shared_bytes,
          shared_bytes - reserved};
}

}  // namespace t4
