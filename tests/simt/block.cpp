// SPDX-License-Identifier: Apache-2.0
#include "simt/block.hpp"

#include "simt/delayed_stores.hpp"
#include "simt/machine.hpp"

namespace simt {
namespace {

std::string place_of(Here here) { return std::string(here.file) + ":" + std::to_string(here.line); }

bool same_place(Here a, Here b) { return a.line == b.line && std::string(a.file) == b.file; }

}  // namespace

std::string Thread::at(const std::string& place) const {
  const backend::Dim3 index = position.block;
  return "block (" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) +
         ") thread " + std::to_string(rank) + " (warp " + std::to_string(warp()) + " lane " + std::to_string(lane()) +
         ") at " + place;
}

std::string Thread::at(Here where) const { return at(place_of(where)); }

void Block::start(Operation& of, backend::Dim3 index) {
  operation = &of;
  num_threads = num_live = of.block.x * of.block.y * of.block.z;
  num_arrived_ = 0;
  runnable_ = {};
  shared.reset(of.shared_bytes);
  while (threads.size() < num_threads) threads.push_back(std::make_unique<Thread>());
  for (unsigned i = 0; i < num_threads; ++i) {
    Thread& thread = *threads[i];
    thread.block = this;
    thread.rank = i;
    thread.position = {
        {i % of.block.x, i / of.block.x % of.block.y, i / (of.block.x * of.block.y)}, index, of.block, of.grid};
    thread.here = of.here;
    thread.delayed_stores.clear();
    thread.open_copies.clear();
    thread.copy_groups.clear();
    thread.clock = {};
    thread.state = Thread::State::runnable;
    set_runnable(thread, true);
  }
  race::block_started(*this);
}

void Block::set_runnable(Thread& thread, bool value) {
  const uint64_t bit = uint64_t{1} << thread.rank % 64;
  uint64_t& word = runnable_[thread.rank / 64];
  word = value ? word | bit : word & ~bit;
}

bool Block::has_runnable() const {
  for (uint64_t word : runnable_) {
    if (word != 0) return true;
  }
  return false;
}

Thread& Block::next_runnable(unsigned current, Schedule schedule, Random& random) {
  unsigned rank = current % num_threads;
  if (schedule == Schedule::random) rank = random.below(num_threads);
  const unsigned step = schedule == Schedule::reverse ? num_threads - 1 : 1;
  do {
    rank = (rank + step) % num_threads;
  } while ((runnable_[rank / 64] >> rank % 64 & 1) == 0);
  return *threads[rank];
}

int Block::barrier(Thread& thread, backend::Reduction reduction, bool predicate, Here where) {
  Machine& machine = Machine::instance();
  if (num_arrived_ == 0) {
    reduction_ = reduction;
    num_true_ = 0;
  } else {
    for (unsigned i = 0; i < num_threads; ++i) {
      const Thread& other = *threads[i];
      if (other.state != Thread::State::at_barrier || same_place(other.here, where)) continue;
      machine.fail(thread, "threads of a block meet at different barriers: " + other.at(other.here) + " and", where);
    }
  }
  thread.here = where;
  thread.state = Thread::State::at_barrier;
  set_runnable(thread, false);
  ++num_arrived_;
  num_true_ += predicate;
  if (num_arrived_ == num_live) complete_barrier();
  machine.park(thread);
  return result_;
}

void Block::complete_barrier() {
  const auto arrived = static_cast<int>(num_arrived_);
  result_ = reduction_ == backend::Reduction::any   ? num_true_ > 0
            : reduction_ == backend::Reduction::all ? num_true_ == arrived
                                                    : num_true_;
  num_arrived_ = 0;
  for (unsigned i = 0; i < num_threads; ++i) {
    Thread& thread = *threads[i];
    flush(thread);
    if (thread.state != Thread::State::at_barrier) continue;
    thread.state = Thread::State::runnable;
    set_runnable(thread, true);
  }
  race::block_barrier(*this);
  ++Machine::instance().counters.barriers;
  Machine::instance().passed_barrier();
}

uint32_t Block::lanes_in_state(unsigned warp, bool (*test)(const Thread&)) const {
  uint32_t lanes = 0;
  for (unsigned lane = 0; lane < warp_lanes && warp * warp_lanes + lane < num_threads; ++lane) {
    if (test(*threads[warp * warp_lanes + lane])) lanes |= 1u << lane;
  }
  return lanes;
}

void Block::meet(Thread& thread, uint32_t mask, const Collective& what, void* payload, Here where) {
  Machine& machine = Machine::instance();
  const std::string name = what.name;
  if ((mask >> thread.lane() & 1) == 0) machine.fail(thread, name + ": the mask does not name the calling lane", where);
  const uint32_t exited =
      lanes_in_state(thread.warp(), [](const Thread& lane) { return lane.state == Thread::State::exited; });
  if ((mask & exited) != 0) machine.fail(thread, name + ": the mask names a lane that has exited", where);
  const uint32_t present = lanes_in_state(thread.warp(), [](const Thread&) { return true; });
  if (what.whole_warp && present != ~0u) machine.fail(thread, name + ": needs all 32 lanes of the warp", where);

  thread.here = where;
  thread.mask = mask;
  thread.collective = &what;
  thread.payload = payload;
  thread.state = Thread::State::in_collective;
  set_runnable(thread, false);
  complete_collective(thread);
  machine.park(thread);
}

void Block::complete_collective(Thread& last) {
  const Lanes lanes{*this, last.warp(), last.mask & lanes_in_state(last.warp(), [](const Thread&) { return true; })};
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if (!lanes.has(lane)) continue;
    const Thread& other = lanes.thread(lane);
    if (other.state != Thread::State::in_collective || other.mask != last.mask) return;  // not all are here
    if (other.collective != last.collective) {
      Machine::instance().fail(
          last,
          "lanes of one mask meet in different operations: " + std::string(other.collective->name) + ", " +
              other.at(other.here) + "; " + last.collective->name + ",",
          last.here);
    }
  }
  last.collective->complete(lanes);
  ++Machine::instance().counters.collectives;
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if (!lanes.has(lane)) continue;
    lanes.thread(lane).state = Thread::State::runnable;
    set_runnable(lanes.thread(lane), true);
  }
  Machine::instance().passed_barrier();
}

void Block::exit(Thread& thread) {
  Machine& machine = Machine::instance();
  bool unfinished = !thread.open_copies.empty();
  for (const auto& group : thread.copy_groups) unfinished |= !group.empty();
  if (unfinished) {
    machine.fail(thread, "the thread exits before it has waited for its asynchronous copies", thread.here);
  }
  flush(thread);
  thread.state = Thread::State::exited;
  set_runnable(thread, false);
  --num_live;
  for (unsigned lane = 0; lane < warp_lanes && thread.warp() * warp_lanes + lane < num_threads; ++lane) {
    const Thread& other = *threads[thread.warp() * warp_lanes + lane];
    if (other.state == Thread::State::in_collective && (other.mask >> thread.lane() & 1) != 0) {
      machine.fail(other.at(other.here) + ": " + other.collective->name + ": lane " + std::to_string(thread.lane()) +
                   ", which the mask names, has exited");
    }
  }
  if (num_live > 0 && num_arrived_ == num_live) complete_barrier();
}

std::string Block::describe_waiting() const {
  std::string text;
  const Thread* previous = nullptr;
  for (unsigned i = 0; i < num_threads; ++i) {
    const Thread& thread = *threads[i];
    if (thread.state == Thread::State::exited) continue;
    const bool same = previous != nullptr && previous->state == thread.state && previous->mask == thread.mask &&
                      same_place(previous->here, thread.here);
    previous = &thread;
    if (same) continue;
    char mask[16];
    std::snprintf(mask, sizeof mask, "%08x", thread.mask);
    text += "\n  from " + thread.at(thread.here) + ": waits " +
            (thread.state == Thread::State::at_barrier
                 ? std::string("at a block barrier")
                 : std::string("in ") + thread.collective->name + " with mask " + mask);
  }
  return text;
}

}  // namespace simt
