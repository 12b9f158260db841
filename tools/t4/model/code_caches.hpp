// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The caches of code. What they have stays from launch to launch.

#include <cstdint>
#include <map>
#include <vector>

#include "model/card.hpp"
#include "model/sector_cache.hpp"
#include "program/cubin.hpp"

namespace t4 {

/// Of a multiprocessor: an L0 for each scheduler, and the L1.5, which fetches from the L2 line by line.
class CodeCaches {
 public:
  static constexpr uint32_t line_bytes = 128;

  explicit CodeCaches(const Card& card);
  /// When a scheduler has a line that is asked for at `start`. `follows`: the one before it was asked for; it streams.
  double ask(int scheduler, uint64_t line, double start, bool follows);
  void begin_launch();

 private:
  static constexpr int num_schedulers = 4;

  const Card& card_;
  std::vector<SectorCache> l0_;
  SectorCache l15_;
  double free_ = 0;      ///< the way from the L2
  double launches_ = 0;  ///< since the L0s were empty
};

/// Of all multiprocessors, and where the code of each function is.
class CodeMemory {
 public:
  explicit CodeMemory(const Card& card) : caches_(static_cast<size_t>(card.multiprocessors), CodeCaches(card)) {}

  CodeCaches& of(size_t multiprocessor) { return caches_[multiprocessor]; }
  /// The number of a function's first line.
  uint64_t first_line(const Function& function);
  void begin_launch();

 private:
  std::vector<CodeCaches> caches_;
  std::map<const Function*, uint64_t> first_lines_;
  uint64_t end_ = 0;
};

}  // namespace t4
