// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How kernels are executed, what is counted, and what is thrown.

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace simt {

/// In which order the threads that could run do run.
enum class Schedule {
  forward,  ///< by number, each until it waits
  reverse,  ///< the other way
  random    ///< any thread of any resident block, drawn from the seed
};

struct Config {
  Schedule schedule = Schedule::random;
  uint64_t seed = 1;
  int target = 75;           ///< the compute capability whose limits hold: 75, 80, 86, 89 or 90
  int multiprocessors = 4;   ///< what num_multiprocessors() says
  int preemption = 4;        ///< in random order, one atomic in so many lets other threads run first; 0: none
  int resident_blocks = 4;   ///< how many blocks make progress together, over all launches in flight
  int watchdog = 1'000'000;  ///< how many atomics and ordered accesses may pass before one of them changes anything
  bool count_sectors = false;
  bool count_warps = false;
  int devices = 1;                          ///< 0: there is none, as where there is no driver, or one that is too old
  int64_t device_bytes = int64_t{1} << 40;  ///< how much may be allocated at once on the device
  int64_t pinned_bytes = int64_t{1} << 40;  ///< and pinned, mapped memory included
};

/// Instructions of a warp as the vocabulary has them: what its lanes do together, or for the same time at one place.
/// What lies between them (arithmetic, branches, plain accesses of shared memory) is not counted.
struct WarpOperations {
  int64_t loads = 0, stores = 0;                ///< of global memory
  int64_t shared_loads = 0, shared_stores = 0;  ///< of shared memory, matrices included
  int64_t collectives = 0;                      ///< shuffles, votes, reductions, warp barriers
  int64_t mma = 0;
  int64_t async_copies = 0;  ///< and their waits
  int64_t atomics = 0;       ///< and fences
  int64_t barriers = 0;      ///< of the block

  struct Kind {
    const char* name;
    int64_t WarpOperations::*count;
  };
  static const std::array<Kind, 9> kinds;

  int64_t total() const {
    return loads + stores + shared_loads + shared_stores + collectives + mma + async_copies + atomics + barriers;
  }
  /// By the total; of those that are alike by kind, so that no order of warps matters.
  friend bool operator<(const WarpOperations& a, const WarpOperations& b) {
    if (a.total() != b.total()) return a.total() < b.total();
    for (const Kind& kind : kinds)
      if (a.*kind.count != b.*kind.count) return a.*kind.count < b.*kind.count;
    return false;
  }
};
inline constexpr std::array<WarpOperations::Kind, 9> WarpOperations::kinds = {
    {{"loads", &WarpOperations::loads},
     {"stores", &WarpOperations::stores},
     {"shared loads", &WarpOperations::shared_loads},
     {"shared stores", &WarpOperations::shared_stores},
     {"collectives", &WarpOperations::collectives},
     {"mma", &WarpOperations::mma},
     {"async copies", &WarpOperations::async_copies},
     {"atomics", &WarpOperations::atomics},
     {"barriers", &WarpOperations::barriers}}};

/// What kernels executed since the counters were last cleared. A sector is 32 aligned bytes; the lanes of a warp that
/// reach an access for the same time request each sector once, as one instruction does.
struct Counters {
  int64_t launches = 0;
  int64_t blocks = 0;
  int64_t barriers = 0;     ///< per block
  int64_t collectives = 0;  ///< per warp or part of it: shuffles, votes, reductions, warp barriers
  int64_t mma = 0;          ///< per warp
  int64_t load_matrices = 0;
  int64_t async_copies = 0;  ///< per thread
  int64_t atomics = 0;       ///< per thread
  int64_t fences = 0;        ///< per thread
  // Only with Config::count_sectors. Without the race build, only accesses by the vocabulary's functions.
  int64_t global_load_sectors = 0;
  int64_t global_store_sectors = 0;
  int64_t host_load_sectors = 0;  ///< of these: of mapped memory of the host, over the bus
  int64_t host_store_sectors = 0;
  int64_t shared_load_sectors = 0;
  int64_t shared_store_sectors = 0;
  WarpOperations busiest_warp;  ///< of all warps of all launches; only with Config::count_warps
};

/// What the program asked of the runtime since the calls were last cleared, by simt/runtime.hpp or by the library. What
/// goes into a graph is no call, only the launch of the graph is.
struct Calls {
  struct Transfers {
    int64_t count = 0, bytes = 0;
    friend bool operator==(const Transfers& a, const Transfers& b) { return a.count == b.count && a.bytes == b.bytes; }
  };
  Transfers copies_to_device, copies_to_host, copies_on_device;
  int64_t unpinned_copies = 0;  ///< of these: from or to memory of the host that is not pinned; on CUDA the host waits
  Transfers fills;
  Transfers allocations;  ///< on the device, and pinned
  int64_t releases = 0;
  int64_t synchronizations = 0;  ///< waits of the host
  int64_t launches = 0;          ///< kernels
  int64_t graph_launches = 0;
  int64_t objects_made = 0;  ///< streams, events and graphs
};

/// What a kernel or a launch did wrong: what, by which block and thread, at which file and line.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Bytes of shared memory that a block may have on a target, dynamic memory opted in.
constexpr int64_t shared_limit(int target) {
  switch (target) {
    case 75:
      return 64 << 10;
    case 80:
      return 163 << 10;
    case 86:
    case 89:
      return 99 << 10;
    default:
      return 227 << 10;
  }
}
inline constexpr int64_t static_shared_limit = 48 << 10;
/// A launch with at most so much dynamic memory does not opt in, and has with the static memory 48 KB.
inline constexpr int64_t dynamic_without_opt_in = 32 << 10;
inline constexpr unsigned max_block_threads = 1024;
inline constexpr unsigned warp_lanes = 32;

/// A small generator whose numbers depend on nothing but the seed.
class Random {
 public:
  explicit Random(uint64_t seed = 1) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  /// 0 to bound - 1.
  unsigned below(uint64_t bound) { return static_cast<unsigned>((next() >> 32) * bound >> 32); }
  bool one_in(int n) { return n > 0 && below(static_cast<unsigned>(n)) == 0; }

 private:
  uint64_t state_;
};

}  // namespace simt
