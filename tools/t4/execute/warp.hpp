// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The state of a warp, of its block and of the launch that they belong to.

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "execute/allocations.hpp"
#include "program/cubin.hpp"

namespace t4 {

inline constexpr int warp_size = 32;
using Lanes = std::array<uint32_t, warp_size>;    ///< a register of each lane
using Lanes64 = std::array<uint64_t, warp_size>;  ///< a pair of them
using Mask = uint32_t;                            ///< a bit for each lane

template <class Function>
void for_each_lane(Mask mask, const Function& function) {
  for (; mask != 0; mask &= mask - 1) function(__builtin_ctz(mask));
}
inline int first_lane(Mask mask) { return __builtin_ctz(mask); }
inline int count_lanes(Mask mask) { return __builtin_popcount(mask); }

/// What a launch cannot go on after: the instruction and where it stands are named.
class execution_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Launch {
  const Function* function = nullptr;
  Dim3 grid, block;
  uint32_t shared_bytes = 0;       ///< static and dynamic
  std::vector<uint8_t> constants;  ///< bank 0: sizes, windows, parameters
  Allocations* memory = nullptr;
  bool overlaps = false;  ///< may begin before the launch before it has ended
  uint64_t clock = 0;     ///< what a kernel reads as time
  uint64_t changes = 0;   ///< of memory: none for long means that everybody waits
};

/// Lanes that are to execute the same instruction next.
struct Group {
  int at = 0;  ///< index of the instruction
  Mask lanes = 0;
};
/// Lanes that wait, and where they go on.
struct Parked {
  enum class Why : uint8_t { convergence, warp, block };
  Why why;
  uint32_t what = 0;  ///< number of the barrier; for warp: the lanes that meet
  Group group;
};

struct Block;

struct Warp {
  static constexpr int num_barriers = 16;

  Block* block = nullptr;
  int index = 0;  ///< in its block
  std::vector<Lanes> registers;
  std::array<Mask, 8> predicates{};  ///< the last is not used
  std::array<uint32_t, 64> uniforms{};
  uint8_t uniform_predicates = 0;
  std::array<Mask, num_barriers> barriers{};  ///< of convergence: who is awaited
  Mask alive = 0, all = 0;                    ///< all: those it began with
  std::vector<Group> groups;                  ///< that can go on, by where they are; no two are at one place
  std::vector<Parked> parked;
  uint32_t reduced = 0;                     ///< what the last barrier of the block with a reduction gave
  int turns = 0;                            ///< of the first group while there were others
  std::vector<std::vector<uint8_t>> local;  ///< of each lane, as far as it was used
  uint64_t num_executed = 0;

  bool can_run() const { return !groups.empty(); }
  bool is_done() const { return alive == 0; }
};

struct Block {
  struct Barrier {
    int arrived = 0, expected = 0;  ///< threads
    uint32_t reduced = 0;
  };

  Launch* launch = nullptr;
  Dim3 index{0, 0, 0};
  uint32_t number = 0;
  std::vector<uint8_t> shared;
  std::vector<Warp> warps;
  std::array<Barrier, Warp::num_barriers> barriers{};
  int alive = 0;  ///< threads

  bool is_done() const { return alive == 0; }
};

/// Number `number` of the blocks of a launch, before its first instruction.
std::unique_ptr<Block> begin_block(Launch& launch, uint32_t number);

/// What a warp did in one step.
struct Step {
  const Instruction* instruction = nullptr;
  Mask lanes = 0;         ///< that executed it
  int num_addresses = 0;  ///< of memory, one for each of these lanes
  std::array<uint64_t, warp_size> addresses;
};

/// Executes the next instruction of a warp that can run. Throws execution_error.
void execute_next(Warp& warp, Step& step);
/// Which one that is.
const Instruction& next_instruction(const Warp& warp);
/// And by which lanes.
Mask next_lanes(const Warp& warp);

}  // namespace t4
