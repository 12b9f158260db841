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
  at_barrier_ = {};
  shared.reset(of.shared_bytes);
  while (threads.size() < num_threads) threads.push_back(std::make_unique<Thread>());
  backend::Dim3 place{0, 0, 0};
  for (unsigned i = 0; i < num_threads; ++i) {
    Thread& thread = *threads[i];
    thread.block = this;
    thread.rank = i;
    thread.position = {place, index, of.block, of.grid};
    thread.here = of.here;
    thread.has_waited = false;
    thread.delayed_stores.clear();
    thread.copies.clear();
    thread.copy_groups.clear();
    if (race::enabled()) thread.clock = {};
    runnable_[i / 64] |= bit(thread);
    if (++place.x < of.block.x) continue;
    place.x = 0;
    if (++place.y < of.block.y) continue;
    place.y = 0;
    ++place.z;
  }
  for (unsigned warp = 0; warp * warp_lanes < num_threads; ++warp) warps[warp].exited = warps[warp].meeting = 0;
  race::block_started(*this);
}

Thread* Block::next_runnable(unsigned current, Schedule schedule, Random& random) {
  const bool down = schedule == Schedule::reverse;
  unsigned first = current;
  if (schedule == Schedule::random) {
    first = random.below(num_threads);
  } else if (down) {
    first = current == 0 || current >= num_threads ? num_threads - 1 : current - 1;
  } else {
    first = current + 1 >= num_threads ? 0 : current + 1;
  }
  const unsigned num_words = (num_threads + 63) / 64;
  // The first word counts from `first` on, and comes again at the end for what lies before it.
  uint64_t word = runnable_[first / 64] & (down ? ~uint64_t{0} >> (63 - first % 64) : ~uint64_t{0} << first % 64);
  unsigned number = first / 64;
  for (unsigned turn = 0; word == 0; ++turn) {
    if (turn == num_words) return nullptr;
    number = down ? (number == 0 ? num_words - 1 : number - 1) : (number + 1 == num_words ? 0 : number + 1);
    word = runnable_[number];
  }
  return threads[number * 64 + static_cast<unsigned>(down ? 63 - __builtin_clzll(word) : __builtin_ctzll(word))].get();
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
  runnable_[thread.rank / 64] &= ~bit(thread);
  at_barrier_[thread.rank / 64] |= bit(thread);
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
  for (unsigned i = 0; i < num_threads / 64 + 1 && i < runnable_.size(); ++i) {
    runnable_[i] |= at_barrier_[i];
    at_barrier_[i] = 0;
  }
  if (race::enabled()) {
    for (unsigned i = 0; i < num_threads; ++i) flush(*threads[i]);
    race::block_barrier(*this);
  }
  ++Machine::instance().counters.barriers;
  Machine::instance().made_progress();
}

uint32_t Block::lanes_of(unsigned warp) const {
  const unsigned count = num_threads - warp * warp_lanes;
  return count >= warp_lanes ? ~0u : (1u << count) - 1;
}

void Block::meet(Thread& thread, uint32_t mask, const Collective& what, void* payload, Here where) {
  Machine& machine = Machine::instance();
  Warp& warp = warps[thread.warp()];
  const unsigned lane = thread.lane();
  const auto refuse = [&](const char* why) { machine.fail(thread, std::string(what.name) + ": " + why, where); };
  if ((mask >> lane & 1) == 0) refuse("the mask does not name the calling lane");
  if ((mask & warp.exited) != 0) refuse("the mask names a lane that has exited");
  if (what.whole_warp && lanes_of(thread.warp()) != ~0u) refuse("needs all 32 lanes of the warp");

  thread.here = where;
  warp.masks[lane] = mask;
  warp.collectives[lane] = &what;
  warp.payloads[lane] = payload;
  warp.meeting |= 1u << lane;
  runnable_[thread.rank / 64] &= ~bit(thread);
  complete_collective(thread);
  machine.park(thread);
}

void Block::complete_collective(Thread& last) {
  Warp& warp = warps[last.warp()];
  const uint32_t mask = warp.masks[last.lane()];
  const Lanes lanes{*this, last.warp(), mask & lanes_of(last.warp())};
  if ((warp.meeting & lanes.mask) != lanes.mask) return;  // not all are here
  const Collective& what = *warp.collectives[last.lane()];
  for (unsigned lane : lanes) {
    if (warp.masks[lane] != mask) return;  // it waits for others
    if (warp.collectives[lane] == &what) continue;
    const Thread& other = lanes.thread(lane);
    Machine::instance().fail(
        last,
        "lanes of one mask meet in different operations: " + std::string(warp.collectives[lane]->name) + ", " +
            other.at(other.here) + "; " + what.name + ",",
        last.here);
  }
  what.complete(lanes);
  ++Machine::instance().counters.collectives;
  warp.meeting &= ~lanes.mask;
  runnable_[last.rank / 64] |= uint64_t{lanes.mask} << last.warp() % 2 * warp_lanes;
  Machine::instance().passed_collective();
}

void Block::exit(Thread& thread) {
  Machine& machine = Machine::instance();
  if (!thread.copies.empty()) {
    machine.fail(thread, "the thread exits before it has waited for its asynchronous copies", thread.here);
  }
  flush(thread);
  runnable_[thread.rank / 64] &= ~bit(thread);
  --num_live;
  Warp& warp = warps[thread.warp()];
  warp.exited |= 1u << thread.lane();
  const Lanes meeting{*this, thread.warp(), warp.meeting};
  for (unsigned lane : meeting) {
    if ((warp.masks[lane] >> thread.lane() & 1) == 0) continue;
    const Thread& other = meeting.thread(lane);
    machine.fail(std::string(warp.collectives[lane]->name) + ": lane " + std::to_string(thread.lane()) +
                 ", which the mask names, has exited: " + other.at(other.here));
  }
  if (num_live > 0 && num_arrived_ == num_live) complete_barrier();
}

std::string Block::describe_waiting() const {
  std::string text, previous;
  for (unsigned i = 0; i < num_threads; ++i) {
    const Thread& thread = *threads[i];
    const Warp& warp = warps[thread.warp()];
    std::string waits;
    if ((at_barrier_[i / 64] & bit(thread)) != 0) {
      waits = "at a block barrier";
    } else if ((warp.meeting >> thread.lane() & 1) != 0) {
      char mask[16];
      std::snprintf(mask, sizeof mask, "%08x", warp.masks[thread.lane()]);
      waits = std::string("in ") + warp.collectives[thread.lane()]->name + " with mask " + mask;
    } else {
      continue;  // it has exited
    }
    if (previous == waits + place_of(thread.here)) continue;
    previous = waits + place_of(thread.here);
    text += "\n  from " + thread.at(thread.here) + ": waits " + waits;
  }
  return text;
}

}  // namespace simt
