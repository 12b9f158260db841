// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The state of a multiprocessor, of its four schedulers and of the warps that are on it.

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "execute/launch.hpp"
#include "model/card.hpp"
#include "model/sector_cache.hpp"
#include "model/timing.hpp"
#include "program/pipes.hpp"

namespace t4 {

inline constexpr double never = std::numeric_limits<double>::infinity();
inline constexpr uint64_t no_line = ~uint64_t{0};

struct TimedBlock;

struct TimedWarp {
  Warp* warp = nullptr;
  TimedBlock* block = nullptr;
  int scheduler = 0;
  double ready = 0;  ///< when its next instruction may be issued, but for what it waits for
  Why ready_why = Why::start;
  std::array<double, 6> barriers{};  ///< when what sets them is done
  std::array<Why, 6> barrier_why{};
  double accounted = 0;  ///< until when its time is among the stalls
  double issued_at = 0;
  uint64_t code_line = no_line;  ///< of code, that it has
  bool waits = false;            ///< at a barrier of the block
  double copied = 0;             ///< when the copies into shared memory that are in no group yet are done
  std::vector<double> copies;    ///< when each group of them is, and all before it
  Polls polls;
  std::map<const Instruction*, Timing::Line> profile;
};

struct TimedBlock {
  std::unique_ptr<Block> block;
  size_t multiprocessor = 0;
  double begin = 0;
  double barrier = 0;         ///< until when warps that have arrived take it
  double lets_begin = never;  ///< when it let a launch that overlaps begin
  std::vector<std::unique_ptr<TimedWarp>> warps;
};

struct Scheduler {
  std::vector<TimedWarp*> warps;
  size_t last = 0;                        ///< stays with the warp while that can go on
  double wake = 0;                        ///< nothing can be issued before
  std::array<double, num_pipes> pipes{};  ///< until when they are taken
};

struct Multiprocessor {
  static constexpr int num_schedulers = 4;

  explicit Multiprocessor(const Card& card) : schedulers(num_schedulers), l1(card.l1_bytes, 64) {}

  std::vector<Scheduler> schedulers;
  uint64_t own_blocks = 0;  ///< of this launch
  uint64_t num_blocks = 0, num_warps = 0, registers = 0, shared_bytes = 0;
  double memory_pipe = 0, l2_port = 0, fp64 = 0;  ///< until when they are taken
  SectorCache l1;
  std::set<int64_t> constants;  ///< lines of 64 bytes of bank 0 that are there
};

}  // namespace t4
