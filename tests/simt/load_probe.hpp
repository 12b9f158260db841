// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What load_rounds() asks of the executor: every load of global memory, before and after it is made.

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "simt/block.hpp"

namespace simt {

/// A load, whichever threads make it: its place, and the how manieth time they come there.
struct Load {
  const char* file = nullptr;
  int line = 0;
  int turn = 0;
  friend bool operator<(const Load& a, const Load& b) {
    return std::tie(a.file, a.line, a.turn) < std::tie(b.file, b.line, b.turn);
  }
};

class LoadProbe {
 public:
  using BlockNumber = std::tuple<unsigned, unsigned, unsigned>;
  using Place = std::pair<int64_t, int64_t>;  ///< allocation, byte

  struct OfBlock {
    std::set<Load> loads;
    std::vector<Load> order;                            ///< as they were first made
    std::map<std::pair<Load, unsigned>, Place> places;  ///< by thread
    std::map<Load, std::set<int64_t>> points_to;        ///< allocations
    std::map<Load, std::set<Load>> follow_pointers;     ///< to what a load points
  };
  using Blocks = std::map<BlockNumber, OfBlock>;

  /// The one that loads are told to; null: none.
  static LoadProbe*& current() {
    static LoadProbe* probe = nullptr;
    return probe;
  }

  virtual ~LoadProbe() = default;
  void before(Thread& thread, const void* address, Here here);
  void after(Thread& thread, void* value, int bytes);

  const Blocks& blocks() const { return blocks_; }

 protected:
  virtual void made(const BlockNumber&, const Load&, unsigned /*thread*/, const Place&) {}
  /// What a load brings that has no address in it, in words of up to 64 bits.
  virtual void change(const Load&, uint64_t& /*word*/) {}

 private:
  static BlockNumber number_of(const Thread& thread) {
    const backend::Dim3& block = thread.position.block;
    return {block.x, block.y, block.z};
  }

  std::map<std::tuple<BlockNumber, unsigned, const char*, int>, int> turns_;  // by thread and place
  Blocks blocks_;
  Load load_;  // that is being made
};

}  // namespace simt
