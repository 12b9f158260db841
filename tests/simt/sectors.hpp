// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Counts the sectors that a block's warps request.

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "simt/config.hpp"

namespace simt {

/// A warp's n-th execution of an access is one instruction for all lanes that execute it an n-th time.
class SectorCounter {
 public:
  enum class Kind { global_load, global_store, host_load, host_store, shared_load, shared_store };

  /// `place` and `line` tell accesses apart.
  void add(Kind kind, const void* place, int line, unsigned warp, unsigned lane, const void* address, int bytes) {
    Site& site = sites_[{kind, place, line, warp}];
    const uint32_t turn = site.turns[lane]++;
    if (site.sectors.size() <= turn) site.sectors.resize(turn + 1);
    const auto first = reinterpret_cast<uintptr_t>(address) / sector_bytes;
    const auto last = (reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes) - 1) / sector_bytes;
    for (uintptr_t sector = first; sector <= last; ++sector) {
      bool seen = false;
      for (uintptr_t other : site.sectors[turn]) seen |= other == sector;
      if (!seen) site.sectors[turn].push_back(sector);
    }
  }

  /// Adds what was counted and starts again.
  void flush(Counters& counters) {
    for (const auto& [key, site] : sites_) {
      int64_t total = 0;
      for (const auto& instruction : site.sectors) total += static_cast<int64_t>(instruction.size());
      switch (std::get<Kind>(key)) {
        case Kind::global_load:
          counters.global_load_sectors += total;
          break;
        case Kind::global_store:
          counters.global_store_sectors += total;
          break;
        case Kind::host_load:
          counters.host_load_sectors += total;
          break;
        case Kind::host_store:
          counters.host_store_sectors += total;
          break;
        case Kind::shared_load:
          counters.shared_load_sectors += total;
          break;
        case Kind::shared_store:
          counters.shared_store_sectors += total;
          break;
      }
    }
    sites_.clear();
  }

 private:
  static constexpr uintptr_t sector_bytes = 32;

  struct Site {
    std::array<uint32_t, warp_lanes> turns{};
    std::vector<std::vector<uintptr_t>> sectors;  // of each turn
  };
  std::map<std::tuple<Kind, const void*, int, unsigned>, Site> sites_;
};

}  // namespace simt
