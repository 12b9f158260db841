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
#include "warprank/device/executor.hpp"

namespace simt {

namespace backend = warprank::device::backend;
using warprank::device::Order;
using warprank::device::Scope;
using Here = warprank::SourceLine;

struct Block;
struct Operation;
struct Thread;

/// The lanes of one warp that met in a collective.
struct Lanes {
  Block& block;
  unsigned warp;
  uint32_t mask;

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
  enum class State { runnable, at_barrier, in_collective, exited };

  Fiber fiber;
  Block* block = nullptr;
  backend::Position position;
  unsigned rank = 0;
  State state = State::exited;

  // What it waits for.
  Here here;
  uint32_t mask = 0;
  const Collective* collective = nullptr;
  void* payload = nullptr;

  std::vector<DelayedStore> delayed_stores;         // oldest first
  std::vector<AsyncCopy> open_copies;               // since the last commit
  std::vector<std::vector<AsyncCopy>> copy_groups;  // oldest first
  race::ThreadClock clock;

  unsigned lane() const { return rank % warp_lanes; }
  unsigned warp() const { return rank / warp_lanes; }
  /// "block (0,0,0) thread 33 (warp 1 lane 1) at file:line".
  std::string at(const std::string& place) const;
  std::string at(Here where) const;
};

struct Block {
  Operation* operation = nullptr;
  std::vector<std::unique_ptr<Thread>> threads;  // a Fiber must not move
  unsigned num_threads = 0, num_live = 0;
  SharedMemory shared;
  race::BlockClock clock;
  SectorCounter sectors;

  /// Makes the block ready to run from the beginning.
  void start(Operation& of, backend::Dim3 index);

  bool has_runnable() const;
  /// The next runnable thread after `current` in the schedule's order; there is one.
  Thread& next_runnable(unsigned current, Schedule schedule, Random& random);

  /// Blocks the thread until every live thread has arrived; gives the reduced predicates.
  int barrier(Thread& thread, backend::Reduction reduction, bool predicate, Here where);
  /// Blocks the thread until the lanes in the mask have arrived.
  void meet(Thread& thread, uint32_t mask, const Collective& what, void* payload, Here where);
  void exit(Thread& thread);

  /// What the threads wait for, for a report of a deadlock.
  std::string describe_waiting() const;

 private:
  void complete_barrier();
  void complete_collective(Thread& last);
  uint32_t lanes_of(unsigned warp) const;
  void set_runnable(Thread& thread, bool value);

  std::array<uint64_t, max_block_threads / 64> runnable_{};
  std::array<uint32_t, max_block_threads / warp_lanes> exited_{}, meeting_{};  // lanes, by warp
  unsigned num_arrived_ = 0;
  Thread* first_arrived_ = nullptr;
  backend::Reduction reduction_{};
  int num_true_ = 0, result_ = 0;
};

inline Thread& Lanes::thread(unsigned lane) const { return *block.threads[warp * warp_lanes + lane]; }

template <class Payload>
Payload& Lanes::payload(unsigned lane) const {
  return *static_cast<Payload*>(thread(lane).payload);
}

}  // namespace simt
