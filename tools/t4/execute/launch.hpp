// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A launch as a whole.

#include <array>
#include <cstddef>
#include <cstdint>

#include "execute/warp.hpp"

namespace t4 {

/// `parameters` are as the function's offsets say, one behind the other.
Launch make_launch(const Function& function, Dim3 grid, Dim3 block, uint32_t dynamic_shared_bytes,
                   const std::vector<uint8_t>& parameters, Allocations& memory);

struct Executed {
  uint64_t instructions = 0;  ///< of warps
  uint64_t longest_warp = 0;
};

/// Executes all blocks, one after the other; where one waits for others, up to `most_blocks` of them in turn. Throws
/// execution_error, also where nobody can go on.
Executed execute(Launch& launch, uint32_t most_blocks);

/// Sees whether a warp asks again and again for what it has asked for, by one load or by some in turn.
class Polls {
 public:
  /// Whether the warp waits for something: let others go first.
  bool waits_after(const Step& step);

 private:
  struct Load {
    const Instruction* instruction = nullptr;
    uint64_t address = 0;
    int times = 0;
  };
  static constexpr size_t most_loads = 16;

  std::array<Load, most_loads> loads_;  ///< the last ones
  size_t next_ = 0;
};

/// Ends a launch in which warps wait, and memory has long not changed.
class Patience {
 public:
  explicit Patience(const Launch& launch) : launch_(launch) {}
  /// After some instructions of a warp; `waits`: it has asked again for what it asked for.
  void add(uint64_t instructions, bool waits);

 private:
  const Launch& launch_;
  uint64_t changes_ = 0, instructions_ = 0, waits_ = 0;
};

[[noreturn]] void fail_unmet_barrier(const Block& block);

}  // namespace t4
