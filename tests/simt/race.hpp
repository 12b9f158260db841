// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which accesses are ordered, and which memory was written: the checks of the race build.
///
/// Every access leaves a stamp in the bytes it touches: block, thread, and how far both were. A later access is ordered
/// after it when
///   - the thread is the same, or the block has passed a barrier since;
///   - the lanes of a warp have met at a warp barrier since;
///   - the launch was ordered before by its stream, by an event or by the host;
///   - what the thread acquired covers it: a release takes along all that the releasing thread had seen.
/// Two accesses of which one writes, that are not ordered and not both atomic in each other's scope, are a race.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "simt/config.hpp"
#include "warprank/core/error.hpp"
#include "warprank/device/order.hpp"

namespace simt {
struct Block;
struct Operation;
struct Thread;
}  // namespace simt

namespace simt::race {

using warprank::device::Order;
using warprank::device::Scope;

/// Whether this program was compiled with the hooks that report plain accesses; without them nothing is checked.
inline bool hooks_linked = false;
inline bool enabled() { return hooks_linked; }

/// What a thread knows of others: all of a block's accesses before an epoch, a thread's up to a clock.
struct Knowledge {
  std::map<uint32_t, uint32_t> epochs;  // by block
  std::map<uint64_t, uint32_t> clocks;  // by thread
};
using KnowledgeRef = std::shared_ptr<const Knowledge>;  // none: nothing

/// What whoever reads a value may acquire with it.
struct Release {
  KnowledgeRef known;
  Scope scope = Scope::block;
  uint32_t owner = 0;
};

struct ThreadClock {
  KnowledgeRef known;
  Release fence;                  // what relaxed stores carry since the last fence
  std::vector<Release> unfenced;  // read by relaxed loads; acquired by the next fence
};

struct SharedWords;

struct BlockClock {
  using LaneClocks = std::array<std::array<uint32_t, warp_lanes>, warp_lanes>;  // [knowing lane][known lane]

  uint32_t owner = 0;  // unique among all blocks and copies
  uint32_t epoch = 1;  // barriers passed
  std::vector<LaneClocks> warps;
  std::shared_ptr<SharedWords> words;  // what is known of the shared memory
};

/// Where an access stands: a line of the vocabulary's caller or an instruction.
struct Site {
  warprank::SourceLine here;
  const void* instruction = nullptr;

  std::string text() const;
};

/// `read_only`: by the path that is never kept coherent, so of what was written before the launch, and nobody writes
/// while it runs. `constant`: such a read that the compiler may make before the wait for the launch before, so of what
/// was written before the launch could begin. `ahead`: a read that may be of unwritten memory.
enum class Kind { read, write, read_only, constant, ahead, atomic_read, atomic_write, atomic_update };

/// Notes an access and checks it against what was noted before; fails the launch.
void access(Thread& thread, const void* address, int64_t bytes, Kind kind, Scope scope, const Site& site);
/// An asynchronous copy has begun to write: nobody may read before it was waited for.
void begin_async_write(Thread& thread, void* shared, int64_t bytes, const Site& site);

// Order.
void block_started(Block& block);
void block_barrier(Block& block);
void warp_barrier(Block& block, unsigned warp, uint32_t lanes);
/// What a store or update of this order carries.
Release release(Thread& thread, Order order, Scope scope);
/// The value at `address` now carries `what`; an update keeps what was there.
void publish(const void* address, const Release& what, bool update);
/// The thread has read the value at `address`.
void acquire(Thread& thread, const void* address, Order order, Scope scope);
void fence(Thread& thread, Scope scope);

// Memory.
void allocated(const void* address, int64_t bytes);
void freed(const void* address);
void everything_freed();
/// The host or a copy in a stream accesses memory as one thread would.
void host_access(const Operation* operation, const void* address, int64_t bytes, bool write);
/// Nothing is in flight: all that happened is ordered before all that follows.
void everything_done();

}  // namespace simt::race
