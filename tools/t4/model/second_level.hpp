// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/card.hpp"
#include "model/sector_cache.hpp"
#include "model/timing.hpp"

namespace t4 {

/// The L2 cache and the memory behind it, which all multiprocessors share. What is in the cache stays from launch to
/// launch.
class SecondLevel {
 public:
  explicit SecondLevel(const Card& card)
      : card_(card), cache_(card.l2_bytes, ways), free_(static_cast<size_t>(card.l2_slices)) {}

  /// The time at which a sector that is asked for at `start` is there. `port`: until when the multiprocessor's way is
  /// taken.
  double ask(uint64_t sector, double start, bool writes, double& port, Timing& timing);

  void begin_launch();
  void end_launch() { cache_.settle(); }
  void clear() { cache_.clear(); }

 private:
  static constexpr int ways = 16;

  const Card& card_;
  SectorCache cache_;
  std::vector<double> free_;  ///< of each slice: those who want the same lines wait for one another
  double dram_free_ = 0;
};

}  // namespace t4
