// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/pipes.hpp"

namespace t4 {

/// Why a warp could not issue its next instruction.
enum class Why : uint8_t {
  latency,
  global,
  shared,
  function,
  exchange,
  barrier,
  fetch,
  constant,
  branch,
  pipe,
  turn,
  start
};
inline constexpr int num_reasons = 12;
const char* name_of(Why why);

/// How long a launch takes by the model, without the launch itself, and where its warps' time goes.
struct Timing {
  struct Line {
    double cycles = 0;
    uint64_t instructions = 0;
  };
  /// Of a block: where it was, and when.
  struct Stay {
    size_t multiprocessor = 0;
    double begin = 0, end = 0;
  };

  double cycles = 0, microseconds = 0;
  uint64_t instructions = 0, longest_warp = 0;  ///< of warps
  std::array<double, num_reasons> stalls{};     ///< cycles of all warps
  std::array<uint64_t, num_pipes> issued{};     ///< instructions by what executes them
  uint64_t sectors = 0, l1_hits = 0, l2_sectors = 0, dram_sectors = 0, wavefronts = 0;
  std::map<std::string, Line> last_warp;  ///< by line of the source, or instruction: where the warp that ends last was
  std::vector<Stay> blocks;               ///< by when they ended
  double dependents_begin = 0;            ///< when all blocks have let a launch that overlaps begin
};

}  // namespace t4
