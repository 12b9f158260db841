// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A block that is being executed: its threads, what they wait for, and its shared memory.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simt/config.hpp"
#include "simt/fiber.hpp"
#include "simt/memory.hpp"
#include "simt/race.hpp"
#include "simt/sectors.hpp"
#include "simt/warp_counter.hpp"
#include "warprank/device/backend.hpp"

namespace simt {

namespace backend = warprank::device::backend;
using warprank::device::Order;
using warprank::device::Scope;
using Here = warprank::SourceLine;

struct Block;
struct Operation;
struct Thread;

/// The lanes of one warp that met in a collective. Iterates over their numbers.
struct Lanes {
  Block& block;
  unsigned warp;
  uint32_t mask;

  struct Iterator {
    uint32_t rest;
    unsigned operator*() const { return static_cast<unsigned>(__builtin_ctz(rest)); }
    void operator++() { rest &= rest - 1; }
    bool operator!=(Iterator other) const { return rest != other.rest; }
  };
  Iterator begin() const { return {mask}; }
  static Iterator end() { return {0}; }

  bool has(unsigned lane) const { return mask >> lane & 1; }
  Thread& thread(unsigned lane) const;
  /// What the lane brought.
  template <class Payload>
  Payload& payload(unsigned lane) const;
};

/// Something that lanes do together. Lanes meet when they wait with the same mask for the same Collective.
struct Collective {
  const char* name;
  bool whole_warp;                 ///< needs all 32 lanes
  void (*complete)(const Lanes&);  ///< runs once, when all have arrived
};

/// A store that the thread has made and that others do not see yet.
struct DelayedStore {
  void* address;
  int bytes;
  std::array<unsigned char, 16> value;
  race::Release release;
};

struct AsyncCopy {
  void* shared;
  const void* global;
  Here here;
};

struct Thread {
  Fiber fiber;
  Block* block = nullptr;
  backend::Position position;
  unsigned rank = 0;
  Here here;                // where it waits, or began
  bool has_waited = false;  // for the launch before

  std::vector<DelayedStore> delayed_stores;  // oldest first
  std::vector<AsyncCopy> copies;             // unfinished, oldest first
  std::vector<size_t> copy_groups;           // how many of them there were at each commit, oldest first
  race::ThreadClock clock;

  unsigned lane() const { return rank % warp_lanes; }
  unsigned warp() const { return rank / warp_lanes; }
  /// "block (0,0,0) thread 33 (warp 1 lane 1) at file:line".
  std::string at(const std::string& place) const;
  std::string at(Here where) const;
};

/// What the lanes of a warp wait for, where they wait in a collective.
struct Warp {
  uint32_t exited = 0, meeting = 0;  // lanes
  std::array<uint32_t, warp_lanes> masks;
  std::array<const Collective*, warp_lanes> collectives;
  std::array<void*, warp_lanes> payloads;
};

struct Block {
  Operation* operation = nullptr;
  std::vector<std::unique_ptr<Thread>> threads;  // a Fiber must not move
  std::array<Warp, max_block_threads / warp_lanes> warps;
  unsigned num_threads = 0, num_live = 0;
  SharedMemory shared;
  race::BlockClock clock;
  SectorCounter sectors;
  WarpCounter operations;

  /// Makes the block ready to run from the beginning.
  void start(Operation& of, backend::Dim3 index);

  /// The next runnable thread after `current` in the schedule's order; none when all wait.
  Thread* next_runnable(unsigned current, Schedule schedule, Random& random);

  /// Blocks the thread until every live thread has arrived; gives the reduced predicates.
  int barrier(Thread& thread, backend::Reduction reduction, bool predicate, Here where);
  /// Blocks the thread until the lanes in the mask have arrived.
  void meet(Thread& thread, uint32_t mask, const Collective& what, void* payload, Here where);
  void exit(Thread& thread);

  /// What the threads wait for, for a report of a deadlock.
  std::string describe_waiting() const;

 private:
  using ThreadSet = std::array<uint64_t, max_block_threads / 64>;

  void complete_barrier();
  void complete_collective(Thread& last);
  uint32_t lanes_of(unsigned warp) const;
  static uint64_t bit(const Thread& thread) { return uint64_t{1} << thread.rank % 64; }

  ThreadSet runnable_{}, at_barrier_{};
  unsigned num_arrived_ = 0;
  Thread* first_arrived_ = nullptr;
  backend::Reduction reduction_{};
  int num_true_ = 0, result_ = 0;
};

inline Thread& Lanes::thread(unsigned lane) const { return *block.threads[warp * warp_lanes + lane]; }

template <class Payload>
Payload& Lanes::payload(unsigned lane) const {
  return *static_cast<Payload*>(block.warps[warp].payloads[lane]);
}

}  // namespace simt
