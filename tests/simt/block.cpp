// SPDX-License-Identifier: Apache-2.0
#include "simt/block.hpp"

#include <cstdio>
#include <cstring>

#include "simt/delayed_stores.hpp"
#include "simt/machine.hpp"

namespace simt {
namespace {

std::string place_of(Here here) { return std::string(here.file) + ":" + std::to_string(here.line); }

bool same_place(Here a, Here b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }

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
  exited_ = {};
  meeting_ = {};
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
  const bool down = schedule == Schedule::reverse;
  const unsigned first =
      schedule == Schedule::random ? random.below(num_threads) : (current + (down ? num_threads - 1 : 1)) % num_threads;
  constexpr unsigned num_words = max_block_threads / 64;
  // The first word counts from `first` on, and comes again at the end for what lies before it.
  uint64_t word = runnable_[first / 64] & (down ? ~uint64_t{0} >> (63 - first % 64) : ~uint64_t{0} << first % 64);
  unsigned number = first / 64;
  while (word == 0) {
    number = (number + (down ? num_words - 1 : 1)) % num_words;
    word = runnable_[number];
  }
  return *threads[number * 64 + static_cast<unsigned>(down ? 63 - __builtin_clzll(word) : __builtin_ctzll(word))];
}

int Block::barrier(Thread& thread, backend::Reduction reduction, bool predicate, Here where) {
  Machine& machine = Machine::instance();
  if (num_arrived_ == 0) {
    first_arrived_ = &thread;
    reduction_ = reduction;
    num_true_ = 0;
  } else if (!same_place(first_arrived_->here, where)) {
    const Thread& first = *first_arrived_;
    machine.fail(thread, "threads of a block meet at different barriers: " + first.at(first.here) + " and", where);
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

uint32_t Block::lanes_of(unsigned warp) const {
  const unsigned count = num_threads - warp * warp_lanes;
  return count >= warp_lanes ? ~0u : (1u << count) - 1;
}

void Block::meet(Thread& thread, uint32_t mask, const Collective& what, void* payload, Here where) {
  Machine& machine = Machine::instance();
  const unsigned warp = thread.warp();
  const auto refuse = [&](const char* why) { machine.fail(thread, std::string(what.name) + ": " + why, where); };
  if ((mask >> thread.lane() & 1) == 0) refuse("the mask does not name the calling lane");
  if ((mask & exited_[warp]) != 0) refuse("the mask names a lane that has exited");
  if (what.whole_warp && lanes_of(warp) != ~0u) refuse("needs all 32 lanes of the warp");

  thread.here = where;
  thread.mask = mask;
  thread.collective = &what;
  thread.payload = payload;
  thread.state = Thread::State::in_collective;
  set_runnable(thread, false);
  meeting_[warp] |= 1u << thread.lane();
  complete_collective(thread);
  machine.park(thread);
}

void Block::complete_collective(Thread& last) {
  const unsigned warp = last.warp();
  const Lanes lanes{*this, warp, last.mask & lanes_of(warp)};
  if ((meeting_[warp] & lanes.mask) != lanes.mask) return;  // not all are here
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if (!lanes.has(lane)) continue;
    const Thread& other = lanes.thread(lane);
    if (other.mask != last.mask) return;  // it waits for others
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
  meeting_[warp] &= ~lanes.mask;
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
  exited_[thread.warp()] |= 1u << thread.lane();
  for (uint32_t rest = meeting_[thread.warp()]; rest != 0; rest &= rest - 1) {
    const Thread& other = *threads[thread.warp() * warp_lanes + static_cast<unsigned>(__builtin_ctz(rest))];
    if ((other.mask >> thread.lane() & 1) == 0) continue;
    machine.fail(std::string(other.collective->name) + ": lane " + std::to_string(thread.lane()) +
                 ", which the mask names, has exited: " + other.at(other.here));
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
