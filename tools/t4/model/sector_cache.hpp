// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace t4 {

/// Lines of 128 bytes in sets, the one that was used longest ago goes first; of each of their sectors of 32 bytes the
/// time at which it is there.
class SectorCache {
 public:
  static constexpr double absent = -1;
  struct Line {
    uint64_t tag = ~uint64_t{0}, used = 0;
    std::array<double, 4> there = {absent, absent, absent, absent};
    uint8_t written = 0;  ///< a bit for each sector
  };

  SectorCache(double bytes, int ways);
  /// The line of that number, which has its place from now on.
  Line& line(uint64_t number);
  /// Sectors that were written and had to go, so far.
  uint64_t written_back() const { return written_back_; }
  /// What is there is there from now on: time begins again.
  void settle();
  void clear();

 private:
  size_t ways_;
  uint64_t sets_, tick_ = 0, written_back_ = 0;
  std::vector<Line> lines_;
};

}  // namespace t4
