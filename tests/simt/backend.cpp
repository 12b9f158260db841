// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary's functions, as the executor runs them.

#include <cstring>

#include "simt/delayed_stores.hpp"
#include "simt/devices.hpp"
#include "simt/load_probe.hpp"
#include "simt/machine.hpp"
#include "simt/runtime.hpp"

namespace simt { namespace {

Machine& machine() { return Machine::instance(); }

/// Fails unless the address is aligned, in shared memory or in a global allocation. Returns whether it is shared.
bool check_address(Thread& thread, const void* address, int bytes, const char* what, Here here) {
  if ((reinterpret_cast<uintptr_t>(address) & static_cast<uintptr_t>(bytes - 1)) != 0) {
    machine().fail(thread,
                   std::string("misaligned ") + what + ": an access of " + std::to_string(bytes) +
                       " bytes must be aligned to them",
                   here);
  }
  if (thread.block->shared.reserved(address)) {
    if (!thread.block->shared.contains(address, bytes)) machine().fail(thread, "shared memory out of bounds", here);
    return true;
  }
  if (!DeviceMemory::instance().contains(address, bytes) && !is_pinned(address, bytes)) {
    machine().fail(thread,
                   DeviceMemory::instance().reserved(address)
                       ? "global memory out of bounds"
                       : std::string(what) + " of memory that is not the device's",
                   here);
  }
  if (!may_use(thread, address)) machine().fail(thread, text_of_other_device(thread), here);
  return false;
}

/// `bytes` is 1, 2, 4, 8 or 16: much faster than a call of memcpy.
void copy_value(void* to, const void* from, int bytes) {
  switch (bytes) {
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    case 16:
      std::memcpy(to, from, 16);
      break;
    default:
      std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

void count_sectors(Thread& thread, bool shared, bool write, const void* address, int bytes, Here here) {
  if (!machine().config().count_sectors) return;
  using Kind = SectorCounter::Kind;
  const Kind kind =
      shared ? (write ? Kind::shared_store : Kind::shared_load) : (write ? Kind::global_store : Kind::global_load);
  const auto add = [&](Kind as) {
    thread.block->sectors.add(as, here.file, here.line, thread.warp(), thread.lane(), address, bytes);
  };
  add(kind);
  if (!shared && is_mapped(address)) add(write ? Kind::host_store : Kind::host_load);
}

/// Tells the probe of a load of global memory, if there is one.
bool begin_probe(Thread& thread, const void* address, Here here) {
  if (LoadProbe::current() == nullptr || thread.block->shared.reserved(address)) return false;
  LoadProbe::current()->before(thread, address, here);
  return true;
}

void count_load(Thread& thread, bool shared, Here here) {
  machine().count(thread, shared ? &WarpOperations::shared_loads : &WarpOperations::loads, here);
}
void count_store(Thread& thread, bool shared, Here here) {
  machine().count(thread, shared ? &WarpOperations::shared_stores : &WarpOperations::stores, here);
}

// ---- Collectives

struct ShufflePayload {
  const void* value;
  void* result;
  int bytes;
  unsigned source;
};

void complete_shuffle(const Lanes& lanes) {
  for (unsigned lane : lanes) {
    const auto& own = lanes.payload<ShufflePayload>(lane);
    if (!lanes.has(own.source)) {
      const Thread& thread = lanes.thread(lane);
      machine().fail("shuffle: reads lane " + std::to_string(own.source) +
                     ", which is not in the mask: " + thread.at(thread.here));
    }
    copy_value(own.result, lanes.payload<ShufflePayload>(own.source).value, own.bytes);
  }
}

struct VotePayload {
  uint64_t value;
  uint32_t result;
};

template <class Combine>
void give_all(const Lanes& lanes, Combine combine) {
  uint32_t result = 0;
  for (unsigned lane : lanes) result = combine(result, lane, lanes.payload<VotePayload>(lane).value);
  for (unsigned lane : lanes) lanes.payload<VotePayload>(lane).result = result;
}

void complete_ballot(const Lanes& lanes) {
  give_all(lanes, [](uint32_t votes, unsigned lane, uint64_t value) { return votes | (value != 0 ? 1u << lane : 0); });
}

void complete_sum(const Lanes& lanes) {
  give_all(lanes, [](uint32_t sum, unsigned, uint64_t value) { return sum + static_cast<uint32_t>(value); });
}

void complete_match(const Lanes& lanes) {
  for (unsigned lane : lanes) {
    auto& own = lanes.payload<VotePayload>(lane);
    own.result = 0;
    for (unsigned other : lanes) {
      if (lanes.payload<VotePayload>(other).value == own.value) own.result |= 1u << other;
    }
  }
}

void complete_warp_barrier(const Lanes& lanes) {
  for (unsigned lane : lanes) flush(lanes.thread(lane));
  race::warp_barrier(lanes.block, lanes.warp, lanes.mask);
}

uint32_t vote(const Collective& what, uint32_t mask, uint64_t value, Here here) {
  Thread& thread = machine().running(what.name, here);
  machine().count(thread, &WarpOperations::collectives, here);
  VotePayload payload{value, 0};
  thread.block->meet(thread, mask, what, &payload, here);
  return payload.result;
}

// ---- Atomics

uint64_t read_value(const void* address, int bytes) {
  uint64_t value = 0;  // little-endian: the low bytes are the value's
  std::memcpy(&value, address, bytes == 4 ? 4 : 8);
  return value;
}

uint64_t updated(backend::AtomicOp op, uint64_t before, uint64_t operand, uint64_t expected) {
  using backend::AtomicOp;
  switch (op) {
    case AtomicOp::add:
      return before + operand;
    case AtomicOp::exchange:
      return operand;
    case AtomicOp::compare_exchange:
      return before == expected ? operand : before;
    case AtomicOp::min:
      return before < operand ? before : operand;
    case AtomicOp::max:
      return before > operand ? before : operand;
    case AtomicOp::wrap_increment:
      return before >= operand ? 0 : before + 1;
  }
  return before;
}

}}  // namespace simt

namespace warprank { inline namespace v0 { namespace device::backend {

using simt::Collective;
using simt::Thread;
namespace race = simt::race;
using simt::machine;

int sync_block(Reduction reduction, bool predicate, Here here) {
  Thread& thread = machine().running("sync_block", here);
  machine().count(thread, &simt::WarpOperations::barriers, here);
  return thread.block->barrier(thread, reduction, predicate, here);
}

void sync_warp(uint32_t mask, Here here) {
  static constexpr Collective what{"sync_warp", false, simt::complete_warp_barrier};
  Thread& thread = machine().running(what.name, here);
  machine().count(thread, &simt::WarpOperations::collectives, here);
  thread.block->meet(thread, mask, what, nullptr, here);
}

void wait_for_previous_launch(Here here) {
  machine().wait_for_previous_launch(machine().running("wait_for_previous_launch", here));
}

void shuffle_bytes(uint32_t mask, const void* value, void* result, int bytes, Shuffle kind, int operand, int width,
                   Here here) {
  static constexpr Collective kinds[] = {{"shuffle", false, simt::complete_shuffle},
                                         {"shuffle_up", false, simt::complete_shuffle},
                                         {"shuffle_down", false, simt::complete_shuffle},
                                         {"shuffle_xor", false, simt::complete_shuffle}};
  const Collective& what = kinds[static_cast<int>(kind)];
  Thread& thread = machine().running(what.name, here);
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    machine().fail(thread, "shuffle: the width is " + std::to_string(width) + ", not a power of two up to 32", here);
  }
  const int lane = static_cast<int>(thread.lane()), first = lane & ~(width - 1), last = first + width - 1;
  int source = lane;
  switch (kind) {
    case Shuffle::from:
      source = first + (operand & (width - 1));
      break;
    case Shuffle::up:
      source = lane - operand;
      break;
    case Shuffle::down:
      source = lane + operand;
      break;
    case Shuffle::butterfly:
      source = lane ^ operand;
      break;
  }
  // A butterfly may read lanes of an earlier group.
  const bool inside = source <= last && (source >= first || (kind == Shuffle::butterfly && source >= 0));
  machine().count(thread, &simt::WarpOperations::collectives, here);
  simt::ShufflePayload payload{value, result, bytes, static_cast<unsigned>(inside ? source : lane)};
  thread.block->meet(thread, mask, what, &payload, here);
}

uint32_t ballot(uint32_t mask, bool predicate, Here here) {
  static constexpr Collective what{"ballot", false, simt::complete_ballot};
  return simt::vote(what, mask, predicate, here);
}
uint32_t match(uint32_t mask, uint64_t value, Here here) {
  static constexpr Collective what{"match", false, simt::complete_match};
  return simt::vote(what, mask, value, here);
}
uint32_t reduce_add(uint32_t mask, uint32_t value, Here here) {
  static constexpr Collective what{"reduce_add", false, simt::complete_sum};
  return simt::vote(what, mask, value, here);
}

void load_bytes(const void* address, void* value, int bytes, Access kind, Here here) {
  Thread& thread = machine().running("load", here);
  const bool is_probed = simt::begin_probe(thread, address, here);
  const bool shared = simt::check_address(thread, address, bytes, "load", here);
  simt::count_load(thread, shared, here);
  const bool read_only = kind == Access::read_only || kind == Access::constant;
  if (shared && read_only) machine().fail(thread, "read-only load of shared memory", here);
  if (shared && kind == Access::ahead) machine().fail(thread, "load ahead of shared memory", here);
  flush_overlapping(thread, address, bytes);
  const race::Kind read = kind == Access::read_only  ? race::Kind::read_only
                          : kind == Access::constant ? race::Kind::constant
                          : kind == Access::ahead    ? race::Kind::ahead
                                                     : race::Kind::read;
  race::access(thread, address, bytes, read, Scope::device, {here, nullptr});
  simt::count_sectors(thread, shared, false, address, bytes, here);
  simt::copy_value(value, address, bytes);
  if (is_probed) simt::LoadProbe::current()->after(thread, value, bytes);
}

void store_bytes(void* address, const void* value, int bytes, Here here) {
  Thread& thread = machine().running("store", here);
  const bool shared = simt::check_address(thread, address, bytes, "store", here);
  simt::count_store(thread, shared, here);
  flush_overlapping(thread, address, bytes);
  race::access(thread, address, bytes, race::Kind::write, Scope::device, {here, nullptr});
  simt::count_sectors(thread, shared, true, address, bytes, here);
  simt::copy_value(address, value, bytes);
}

void load_ordered(const void* address, void* value, int bytes, Order order, Scope scope, Here here) {
  Thread& thread = machine().running("load", here);
  const bool is_probed = simt::begin_probe(thread, address, here);
  const bool shared = simt::check_address(thread, address, bytes, "load", here);
  simt::count_load(thread, shared, here);
  machine().maybe_yield(thread);
  flush_overlapping(thread, address, bytes);
  race::access(thread, address, bytes, race::Kind::atomic_read, scope, {here, nullptr});
  simt::count_sectors(thread, shared, false, address, bytes, here);
  simt::copy_value(value, address, bytes);
  if (is_probed) simt::LoadProbe::current()->after(thread, value, bytes);
  race::acquire(thread, address, order, scope);
  machine().note_step(thread, false, here);
  machine().maybe_yield(thread);
}

void store_ordered(void* address, const void* value, int bytes, Order order, Scope scope, Here here) {
  Thread& thread = machine().running("store", here);
  const bool shared = simt::check_address(thread, address, bytes, "store", here);
  simt::count_store(thread, shared, here);
  machine().maybe_yield(thread);
  race::access(thread, address, bytes, race::Kind::atomic_write, scope, {here, nullptr});
  simt::count_sectors(thread, shared, true, address, bytes, here);
  if (order == Order::release) flush(thread);
  store(thread, address, value, bytes, race::release(thread, order, scope), order == Order::relaxed);
  machine().note_step(thread, true, here);
  machine().maybe_yield(thread);
}

uint64_t atomic(AtomicOp op, void* address, int bytes, uint64_t operand, uint64_t expected, Order order, Scope scope,
                Here here) {
  Thread& thread = machine().running("atomic", here);
  simt::check_address(thread, address, bytes, "atomic", here);
  machine().maybe_yield(thread);
  if (order == Order::release || order == Order::acq_rel) flush(thread);
  flush_overlapping(thread, address, bytes);
  const uint64_t before = simt::read_value(address, bytes);
  const bool stores = op != AtomicOp::compare_exchange || before == expected;
  race::access(thread, address, bytes, stores ? race::Kind::atomic_update : race::Kind::atomic_read, scope,
               {here, nullptr});
  race::acquire(thread, address, order, scope);
  const uint64_t after = simt::updated(op, before, operand, expected);
  if (stores) {
    std::memcpy(address, &after, bytes == 4 ? 4 : 8);
    race::publish(address, race::release(thread, order, scope), true);
  }
  ++machine().counters.atomics;
  machine().count(thread, &simt::WarpOperations::atomics, here);
  machine().note_step(thread, simt::read_value(address, bytes) != before, here);
  machine().maybe_yield(thread);
  return before;
}

void fence(Scope scope, Here here) {
  Thread& thread = machine().running("fence", here);
  flush(thread);
  race::fence(thread, scope);
  ++machine().counters.fences;
  machine().count(thread, &simt::WarpOperations::atomics, here);
}

void prefetch(const void* address, Here here) {
  Thread& thread = machine().running("prefetch", here);
  simt::check_address(thread, address, 1, "prefetch", here);
}

void copy_async(void* shared, const void* global, Here here) {
  constexpr int bytes = 16;
  Thread& thread = machine().running("copy_async", here);
  if (!simt::check_address(thread, shared, bytes, "copy_async", here)) {
    machine().fail(thread, "copy_async: the destination is not in shared memory", here);
  }
  simt::begin_probe(thread, global, here);
  if (simt::check_address(thread, global, bytes, "copy_async", here)) {
    machine().fail(thread, "copy_async: the source is not in global memory", here);
  }
  race::access(thread, global, bytes, race::Kind::read, Scope::device, {here, nullptr});
  race::begin_async_write(thread, shared, bytes, {here, nullptr});
  simt::count_sectors(thread, false, false, global, bytes, here);
  simt::count_sectors(thread, true, true, shared, bytes, here);
  std::memset(shared, 0xff, bytes);  // whoever does not wait finds NaN
  thread.copies.push_back({shared, global, here});
  ++machine().counters.async_copies;
  machine().count(thread, &simt::WarpOperations::async_copies, here);
}

void commit_async(Here here) {
  Thread& thread = machine().running("commit_async", here);
  thread.copy_groups.push_back(thread.copies.size());
}

void wait_for_async(int pending_groups, Here here) {
  Thread& thread = machine().running("wait_async", here);
  machine().count(thread, &simt::WarpOperations::async_copies, here);
  auto& groups = thread.copy_groups;
  if (groups.size() <= static_cast<size_t>(pending_groups)) return;
  const auto finished = static_cast<std::ptrdiff_t>(groups.size()) - pending_groups;
  const size_t num_copies = groups[static_cast<size_t>(finished - 1)];
  for (size_t i = 0; i < num_copies; ++i) {
    const simt::AsyncCopy& copy = thread.copies[i];
    race::access(thread, copy.global, 16, race::Kind::read, Scope::device, {copy.here, nullptr});
    race::access(thread, copy.shared, 16, race::Kind::write, Scope::block, {copy.here, nullptr});
    std::memcpy(copy.shared, copy.global, 16);
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<std::ptrdiff_t>(num_copies));
  groups.erase(groups.begin(), groups.begin() + finished);
  for (size_t& end : groups) end -= num_copies;
}

int target() { return machine().config().target; }
int num_multiprocessors() { return machine().config().multiprocessors; }

void* static_shared_bytes(const void* key, int64_t bytes, int64_t alignment, Here here) {
  Thread& thread = machine().running("static_shared", here);
  simt::SharedMemory& shared = thread.block->shared;
  void* storage = shared.storage(key, bytes, alignment);
  const int64_t limit = shared.dynamic_bytes() > simt::dynamic_without_opt_in
                            ? simt::shared_limit(machine().config().target)
                            : simt::static_shared_limit;
  if (storage == nullptr || shared.static_bytes() > simt::static_shared_limit ||
      shared.static_bytes() + shared.dynamic_bytes() > limit) {
    machine().fail(thread,
                   "too much shared memory: " + std::to_string(shared.static_bytes()) + " bytes static and " +
                       std::to_string(shared.dynamic_bytes()) + " dynamic, the launch allows " +
                       std::to_string(simt::static_shared_limit) + " and " + std::to_string(limit) + " in all",
                   here);
  }
  return storage;
}

void* dynamic_shared(Here here) {
  Thread& thread = machine().running("dynamic_shared", here);
  if (thread.block->shared.dynamic_bytes() == 0) {
    machine().fail(thread, "the launch gave no dynamic shared memory", here);
  }
  return thread.block->shared.dynamic();
}

}}}  // namespace warprank::v0::device::backend
