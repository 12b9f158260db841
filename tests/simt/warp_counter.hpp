// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Counts what each warp of a block executes of the vocabulary.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>

#include "simt/config.hpp"

namespace simt {

/// As the sectors' counter: what lanes do for the n-th time at one place is one instruction of their warp.
class WarpCounter {
 public:
  /// `what` is the operation's count; `place` and `line` tell operations apart.
  void add(int64_t WarpOperations::*what, const void* place, int line, unsigned warp, unsigned lane) {
    for (size_t kind = 0; kind < WarpOperations::kinds.size(); ++kind)
      if (WarpOperations::kinds[kind].count == what) ++turns_[{kind, place, line, warp}][lane];
  }

  /// Takes the busiest of its warps and of what `counters` has, and starts again.
  void flush(Counters& counters) {
    std::map<unsigned, WarpOperations> of_warps;
    for (const auto& [key, turns] : turns_)
      of_warps[std::get<3>(key)].*WarpOperations::kinds[std::get<0>(key)].count +=
          *std::max_element(turns.begin(), turns.end());
    for (const auto& [warp, operations] : of_warps)
      if (counters.busiest_warp < operations) counters.busiest_warp = operations;
    turns_.clear();
  }

 private:
  std::map<std::tuple<size_t, const void*, int, unsigned>, std::array<int64_t, warp_lanes>> turns_;
};

}  // namespace simt
