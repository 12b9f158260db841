// SPDX-License-Identifier: Apache-2.0
#include "simt/race.hpp"

#include <algorithm>
#include <unordered_map>

#include "simt/devices.hpp"
#include "simt/machine.hpp"

namespace simt::race {
namespace {

// Flags of a stamp.
constexpr uint16_t atomic_flag = 1, block_scope_flag = 2, read_only_flag = 4, system_scope_flag = 8, constant_flag = 16;
// States of memory.
constexpr uint8_t written = 1, copying = 2;

struct Stamp {
  uint32_t owner = 0;  // 0: none
  uint16_t rank = 0, flags = 0;
  uint32_t clock = 0, epoch = 0;
};

/// What is known of one byte, or of several with the same past. Two readers are enough to catch, over some schedules,
/// whoever writes too early.
struct Cell {
  Stamp write, reads[2];
  uint8_t state = 0;
};

constexpr int64_t word_bytes = 4, line_bytes = 256;

/// Four aligned bytes: they share a cell until an access takes some of them alone.
struct Word {
  Cell whole;
  std::unique_ptr<std::array<Cell, word_bytes>> bytes;
};
using Line = std::array<Word, line_bytes / word_bytes>;

/// Calls f(cell) for the cells of the word's bytes in [begin, end).
template <class Function>
void for_each_cell(Word& word, int64_t begin, int64_t end, Function f) {
  if (!word.bytes && begin == 0 && end == word_bytes) {
    f(word.whole);
    return;
  }
  if (!word.bytes) {
    word.bytes = std::make_unique<std::array<Cell, word_bytes>>();
    word.bytes->fill(word.whole);
  }
  for (int64_t i = begin; i < end; ++i) f((*word.bytes)[static_cast<size_t>(i)]);
}

}  // namespace

struct SharedWords {
  std::vector<Word> words;
};

namespace {

/// A copy or allocation that touched a whole range: applied to a line when its first byte is looked at.
struct RangeWrite {
  int64_t begin, end;
  Stamp stamp;
};

struct Allocation {
  int64_t bytes;
  std::vector<RangeWrite> ranges;  // oldest first
  std::unordered_map<int64_t, std::unique_ptr<Line>> lines;
};

std::map<uintptr_t, Allocation> allocations;
std::unordered_map<uintptr_t, Release> locations;  // what the value at an address carries
std::vector<uint32_t> operation_of{0};             // by owner
std::vector<int> device_of{-1};                    // likewise; -1: the host
uint32_t first_unordered_owner = 1;                // whatever those before did is ordered before everything now

/// Lines that were looked at lately, by number.
struct CachedLine {
  uintptr_t number = 0;
  Line* line = nullptr;
};
std::array<CachedLine, 1024> cached_lines;

Allocation* allocation_at(uintptr_t address) {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  --after;
  return address < after->first + static_cast<uintptr_t>(after->second.bytes) ? &after->second : nullptr;
}

/// Calls f(cell) for the cells of the line's bytes in [begin, end), counted from its allocation's beginning.
template <class Function>
void for_each_cell(Line& line, int64_t line_number, int64_t begin, int64_t end, Function f) {
  begin = std::max(begin - line_number * line_bytes, int64_t{0});
  end = std::min(end - line_number * line_bytes, line_bytes);
  while (begin < end) {
    const int64_t word = begin / word_bytes * word_bytes;
    for_each_cell(line[static_cast<size_t>(word / word_bytes)], begin - word, std::min(end - word, word_bytes), f);
    begin = word + word_bytes;
  }
}

void apply(const RangeWrite& range, int64_t line_number, Line& line) {
  for_each_cell(line, line_number, range.begin, range.end, [&](Cell& cell) { cell = {range.stamp, {}, written}; });
}

/// The address lies in one of the block's storages.
Word& shared_word(Block& block, uintptr_t address) {
  std::vector<Word>& words = block.clock.words->words;
  const auto number = static_cast<size_t>(block.shared.offset(reinterpret_cast<void*>(address)) / word_bytes);
  if (number >= words.size()) words.resize(static_cast<size_t>(block.shared.used() / word_bytes));
  return words[number];
}

/// The address lies in an allocation.
Word& global_word(uintptr_t address) {
  CachedLine& cached = cached_lines[address / line_bytes % cached_lines.size()];
  if (cached.number != address / line_bytes) {
    const auto found = std::prev(allocations.upper_bound(address));
    const auto number = static_cast<int64_t>(address - found->first) / line_bytes;
    std::unique_ptr<Line>& line = found->second.lines[number];
    if (!line) {
      line = std::make_unique<Line>();
      for (const RangeWrite& range : found->second.ranges) apply(range, number, *line);
    }
    cached = {address / line_bytes, line.get()};
  }
  return (*cached.line)[address % line_bytes / word_bytes];
}

uint64_t thread_key(uint32_t owner, uint32_t rank) { return uint64_t{owner} << 10 | rank; }

bool knows(const KnowledgeRef& known, const Stamp& stamp) {
  if (!known) return false;
  const auto epoch = known->epochs.find(stamp.owner);
  if (epoch != known->epochs.end() && stamp.epoch < epoch->second) return true;
  const auto clock = known->clocks.find(thread_key(stamp.owner, stamp.rank));
  return clock != known->clocks.end() && stamp.clock <= clock->second;
}

bool ordered_before(const Stamp& stamp, const Thread& now) {
  if (stamp.owner < first_unordered_owner) return true;
  const BlockClock& clock = now.block->clock;
  if (stamp.owner == clock.owner) {
    if (stamp.rank == now.rank || stamp.epoch < clock.epoch) return true;
    if (stamp.rank / warp_lanes == now.warp() &&
        stamp.clock <= clock.warps[now.warp()][now.lane()][stamp.rank % warp_lanes]) {
      return true;
    }
  } else if (Machine::instance().ordered_before(operation_of[stamp.owner], now)) {
    return true;
  }
  return knows(now.clock.known, stamp);
}

/// Whether no cache beyond coherence can have what was there before: streams, events or the host have ordered the write
/// before the launch. That a thread has acquired it is not enough.
bool settled(const Stamp& write, const Thread& now) {
  return write.owner < first_unordered_owner || Machine::instance().ordered_before(operation_of[write.owner], now);
}

/// Whether the write was there before the launch could begin, beside the one before it or behind that.
bool settled_at_begin(const Stamp& write, const Thread& now) {
  return write.owner < first_unordered_owner ||
         Machine::instance().ordered_before_begin(operation_of[write.owner], *now.block->operation);
}

bool in_flight(const Stamp& stamp) {
  return stamp.owner >= first_unordered_owner && Machine::instance().in_flight(operation_of[stamp.owner]);
}

Stamp stamp_of(const Thread& thread, uint16_t flags) {
  const BlockClock& clock = thread.block->clock;
  return {clock.owner, static_cast<uint16_t>(thread.rank), flags,
          clock.warps[thread.warp()][thread.lane()][thread.lane()], clock.epoch};
}

bool atomic_together(const Stamp& a, const Stamp& b) {
  if ((a.flags & b.flags & atomic_flag) == 0) return false;
  if (a.owner == b.owner) return true;
  if (device_of[a.owner] != device_of[b.owner]) return (a.flags & b.flags & system_scope_flag) != 0;
  return ((a.flags | b.flags) & block_scope_flag) == 0;
}

std::string name_of(const Stamp& stamp) {
  return "thread " + std::to_string(stamp.rank) + " of " + (in_flight(stamp) ? "" : "a finished launch's ") +
         "block #" + std::to_string(stamp.owner);
}

KnowledgeRef merge(const KnowledgeRef& a, const KnowledgeRef& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  auto both = std::make_shared<Knowledge>(*a);
  for (const auto& [owner, epoch] : b->epochs) both->epochs[owner] = std::max(both->epochs[owner], epoch);
  for (const auto& [thread, clock] : b->clocks) both->clocks[thread] = std::max(both->clocks[thread], clock);
  return both;
}

/// All that the thread has done and seen; what it does from now on is not part of it.
KnowledgeRef snapshot(Thread& thread) {
  BlockClock& clock = thread.block->clock;
  auto& lanes = clock.warps[thread.warp()][thread.lane()];
  auto known = thread.clock.known ? std::make_shared<Knowledge>(*thread.clock.known) : std::make_shared<Knowledge>();
  known->epochs[clock.owner] = clock.epoch;
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if (lanes[lane] != 0) {
      known->clocks[thread_key(clock.owner, thread.warp() * warp_lanes + lane)] = lanes[lane];
    }
  }
  ++lanes[thread.lane()];
  return known;
}

void take(Thread& thread, const Release& carried, Scope scope) {
  const bool same_block = carried.owner == thread.block->clock.owner;
  if (!same_block && (carried.scope == Scope::block || scope == Scope::block)) return;
  const bool same_device = device_of[carried.owner] == thread.block->operation->device;
  if (!same_device && (carried.scope != Scope::system || scope != Scope::system)) return;
  thread.clock.known = merge(thread.clock.known, carried.known);
}

uint32_t new_owner(uint32_t operation, int device) {
  operation_of.push_back(operation);
  device_of.push_back(device);
  return static_cast<uint32_t>(operation_of.size() - 1);
}

[[noreturn]] void fail(Thread& thread, const std::string& what, const Site& site) {
  const std::string message = what + ": " + thread.at(site.text());
  if (site.instruction != nullptr) Machine::instance().fail_without_unwinding(message);
  Machine::instance().fail(message);
}

void check(Thread& thread, const Cell& cell, const Stamp& now, bool wants_written, bool writes, bool shared,
           const Site& site) {
  const auto memory = [shared] { return std::string(shared ? "shared" : "global") + " memory"; };
  if (wants_written && (cell.state & written) == 0) {
    fail(thread,
         (cell.state & copying) != 0 ? "read of shared memory whose asynchronous copy was not waited for"
                                     : "read of unwritten " + memory(),
         site);
  }
  if ((now.flags & read_only_flag) != 0 && !settled(cell.write, thread)) {
    fail(thread, "read-only load of memory that was written while the launch was in flight", site);
  }
  if ((now.flags & constant_flag) != 0 && !settled_at_begin(cell.write, thread)) {
    fail(thread, "load of constants that the launch before has written: it may be made before the wait for that", site);
  }
  if (!ordered_before(cell.write, thread) && !atomic_together(cell.write, now)) {
    fail(thread,
         "data race in " + memory() + ": " + (writes ? "write" : "read") + " not ordered after a write by " +
             name_of(cell.write),
         site);
  }
  if (!writes) return;
  for (const Stamp& read : cell.reads) {
    if ((read.flags & read_only_flag) != 0 && in_flight(read)) {
      fail(thread, "write to memory that a launch in flight reads by read-only loads", site);
    }
    if (!ordered_before(read, thread) && !atomic_together(read, now)) {
      fail(thread, "data race in " + memory() + ": write not ordered after a read by " + name_of(read), site);
    }
  }
}

void note(Thread& thread, Cell& cell, const Stamp& now, bool writes) {
  if (writes) {
    cell.write = now;
    cell.state = static_cast<uint8_t>((cell.state & ~copying) | written);
    return;
  }
  Stamp* place = &cell.reads[0];
  const bool same_reader = place->owner == now.owner && place->rank == now.rank;
  if (!same_reader && !ordered_before(*place, thread)) {
    cell.reads[1] = *place;  // keeps the two latest that are not ordered
  }
  *place = now;
}

/// Calls f(word, begin, end) for the words, and the bytes in them, of memory that is in bounds.
template <class Function>
void for_each_word(Thread& thread, bool shared, const void* address, int64_t bytes, Function f) {
  const auto end = reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes);
  for (auto at = reinterpret_cast<uintptr_t>(address); at < end;) {
    const uintptr_t begin = at / word_bytes * word_bytes, next = std::min<uintptr_t>(end, begin + word_bytes);
    Word& word = shared ? shared_word(*thread.block, at) : global_word(at);
    f(word, static_cast<int64_t>(at - begin), static_cast<int64_t>(next - begin));
    at = next;
  }
}

}  // namespace

void access(Thread& thread, const void* address, int64_t bytes, Kind kind, Scope scope, const Site& site) {
  if (!hooks_linked) return;
  const SharedMemory& shared_memory = thread.block->shared;
  const DeviceMemory& device_memory = DeviceMemory::instance();
  const bool shared = shared_memory.reserved(address);
  if (!shared && !device_memory.reserved(address)) return;
  if (!(shared ? shared_memory.contains(address, bytes) : device_memory.contains(address, bytes))) {
    fail(thread, shared ? "shared memory out of bounds" : "global memory out of bounds", site);
  }
  if (!shared && !may_use(thread, address)) fail(thread, text_of_other_device(thread), site);
  const bool writes = kind == Kind::write || kind == Kind::atomic_write || kind == Kind::atomic_update;
  const bool wants_written = kind != Kind::ahead && (!writes || kind == Kind::atomic_update);
  uint16_t flags = 0;
  if (kind == Kind::atomic_read || kind == Kind::atomic_write || kind == Kind::atomic_update) {
    flags = static_cast<uint16_t>(atomic_flag | (scope == Scope::block    ? block_scope_flag
                                                 : scope == Scope::system ? system_scope_flag
                                                                          : 0));
  }
  if (kind == Kind::read_only) flags = read_only_flag;
  if (kind == Kind::constant) flags = read_only_flag | constant_flag;
  const Stamp now = stamp_of(thread, flags);
  for_each_word(thread, shared, address, bytes, [&](Word& word, int64_t begin, int64_t end) {
    for_each_cell(word, begin, end, [&](Cell& cell) {
      check(thread, cell, now, wants_written, writes, shared, site);
      note(thread, cell, now, writes);
    });
  });
}

void begin_async_write(Thread& thread, void* shared, int64_t bytes, const Site& site) {
  if (!hooks_linked) return;
  access(thread, shared, bytes, Kind::write, Scope::block, site);
  for_each_word(thread, true, shared, bytes, [&](Word& word, int64_t begin, int64_t end) {
    for_each_cell(word, begin, end, [](Cell& cell) { cell.state = copying; });
  });
}

void block_started(Block& block) {
  if (!hooks_linked) return;
  if (!block.clock.words) block.clock.words = std::make_shared<SharedWords>();
  block.clock.words->words.clear();
  block.clock.epoch = 1;
  block.clock.owner = new_owner(block.operation->id, block.operation->device);
  block.clock.warps.assign((block.num_threads + warp_lanes - 1) / warp_lanes, {});
  for (auto& warp : block.clock.warps) {
    for (unsigned lane = 0; lane < warp_lanes; ++lane) warp[lane][lane] = 1;
  }
}

void block_barrier(Block& block) {
  if (!hooks_linked) return;
  ++block.clock.epoch;
  KnowledgeRef all;
  for (unsigned i = 0; i < block.num_threads; ++i) all = merge(all, block.threads[i]->clock.known);
  for (unsigned i = 0; i < block.num_threads; ++i) block.threads[i]->clock.known = all;
}

void warp_barrier(Block& block, unsigned warp, uint32_t lanes) {
  if (!hooks_linked) return;
  auto& clocks = block.clock.warps[warp];
  std::array<uint32_t, warp_lanes> latest{};
  KnowledgeRef all;
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    for (unsigned other = 0; other < warp_lanes; ++other) latest[other] = std::max(latest[other], clocks[lane][other]);
    all = merge(all, block.threads[warp * warp_lanes + lane]->clock.known);
  }
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    clocks[lane] = latest;
    ++clocks[lane][lane];
    block.threads[warp * warp_lanes + lane]->clock.known = all;
  }
}

Release release(Thread& thread, Order order, Scope scope) {
  if (!hooks_linked) return {};
  if (order == Order::release || order == Order::acq_rel) return {snapshot(thread), scope, thread.block->clock.owner};
  return thread.clock.fence;
}

void publish(const void* address, const Release& what, bool update) {
  if (!hooks_linked) return;
  Release& carried = locations[reinterpret_cast<uintptr_t>(address)];
  if (!update || !carried.known) {
    carried = what;
  } else if (what.known) {
    carried = {merge(carried.known, what.known), std::min(carried.scope, what.scope), what.owner};
  }
}

void acquire(Thread& thread, const void* address, Order order, Scope scope) {
  if (!hooks_linked) return;
  const auto found = locations.find(reinterpret_cast<uintptr_t>(address));
  if (found == locations.end() || !found->second.known) return;
  if (order == Order::acquire || order == Order::acq_rel) {
    take(thread, found->second, scope);
  } else {
    Release read = found->second;
    read.scope = std::min(read.scope, scope);
    thread.clock.unfenced.push_back(std::move(read));
  }
}

void fence(Thread& thread, Scope scope) {
  if (!hooks_linked) return;
  for (const Release& read : thread.clock.unfenced) take(thread, read, scope);
  thread.clock.unfenced.clear();
  thread.clock.fence = {snapshot(thread), scope, thread.block->clock.owner};
}

void allocated(const void* address, int64_t bytes) {
  if (hooks_linked) allocations[reinterpret_cast<uintptr_t>(address)] = {bytes, {}, {}};
}

void freed(const void* address) {
  allocations.erase(reinterpret_cast<uintptr_t>(address));
  cached_lines.fill({});
}

void everything_freed() {
  allocations.clear();
  cached_lines.fill({});
}

void host_access(const Operation* operation, const void* address, int64_t bytes, bool write) {
  if (!hooks_linked || bytes == 0) return;
  const auto first = reinterpret_cast<uintptr_t>(address);
  Allocation* allocation = allocation_at(first);
  if (allocation == nullptr) return;
  const auto base = std::prev(allocations.upper_bound(first))->first;
  const auto begin = static_cast<int64_t>(first - base);
  const RangeWrite range{begin, begin + bytes, {new_owner(operation == nullptr ? 0 : operation->id, -1), 0, 0, 1, 1}};

  const Machine& machine = Machine::instance();
  const auto ordered = [&](const Stamp& stamp) {
    if (stamp.owner < first_unordered_owner) return true;
    const uint32_t earlier = operation_of[stamp.owner];
    return operation == nullptr ? !machine.in_flight(earlier) : machine.ordered_before(earlier, *operation);
  };
  for (auto& [number, line] : allocation->lines) {
    for_each_cell(*line, number, range.begin, range.end, [&](Cell& cell) {
      const bool safe = ordered(cell.write) && (!write || (ordered(cell.reads[0]) && ordered(cell.reads[1])));
      if (!safe) {
        Machine::instance().fail("data race in global memory: a copy is not ordered after an access by " +
                                 name_of(ordered(cell.write) ? cell.reads[0] : cell.write));
      }
      if (!write) cell.reads[0] = range.stamp;
    });
    if (write) apply(range, number, *line);
  }
  for (const RangeWrite& earlier : allocation->ranges) {
    if (earlier.begin < range.end && range.begin < earlier.end && !ordered(earlier.stamp)) {
      Machine::instance().fail("data race in global memory: a copy is not ordered after another copy");
    }
  }
  if (!write) return;
  auto& ranges = allocation->ranges;
  ranges.erase(std::remove_if(ranges.begin(), ranges.end(),
                              [&](const RangeWrite& r) { return range.begin <= r.begin && r.end <= range.end; }),
               ranges.end());
  ranges.push_back(range);
}

void everything_done() {
  locations.clear();
  first_unordered_owner = static_cast<uint32_t>(operation_of.size());
}

}  // namespace simt::race
