// SPDX-License-Identifier: Apache-2.0
#include "model/second_level.hpp"

#include <algorithm>

namespace t4 {

namespace {

/// Which slice has a line: a hash, so that no stride has them all in one.
size_t slice_of(uint64_t line, size_t num_slices) {
  line *= 0x9e3779b97f4a7c15u;
  return static_cast<size_t>((line >> 32) % num_slices);
}

}  // namespace

void SecondLevel::begin_launch() {
  std::fill(free_.begin(), free_.end(), 0);
  dram_free_ = 0;
}

double SecondLevel::ask(uint64_t sector, double start, bool writes, double& port, Timing& timing) {
  port = std::max(port, start) + 1 / card_.l2_port_sectors_per_cycle;
  double& free = free_[slice_of(sector / 4, free_.size())];
  free = std::max(free, start) + card_.l2_slices / card_.l2_sectors_per_cycle;
  const double asked = std::max(port, free);
  const uint64_t before = cache_.written_back();
  SectorCache::Line& line = cache_.line(sector / 4);
  const uint64_t written = cache_.written_back() - before;
  if (written > 0)
    dram_free_ = std::max(dram_free_, asked) + static_cast<double>(written) / card_.dram_sectors_per_cycle;
  if (writes) line.written = static_cast<uint8_t>(line.written | 1u << sector % 4);
  double& there = line.there[sector % 4];
  ++timing.l2_sectors;
  if (there < 0) {
    if (writes) {
      there = asked;
    } else {
      ++timing.dram_sectors;
      dram_free_ = std::max(dram_free_, asked) + 1 / card_.dram_sectors_per_cycle;
      there = dram_free_ + card_.dram_latency;
    }
  }
  return std::max(asked, there) + card_.l2_latency;
}

}  // namespace t4
