// SPDX-License-Identifier: Apache-2.0
#include "simt/machine.hpp"

#include <algorithm>
#include <exception>

#include "simt/delayed_stores.hpp"

namespace warprank { inline namespace v0 { namespace device::backend {
const Position* position = nullptr;
}}}  // namespace warprank::v0::device::backend

namespace simt {
namespace {

constexpr int other_block_one_in = 8, drain_one_in = 8;
// A thread that only reads lets others run after so many reads, a block after as many of each lane of a warp: it may be
// waiting for them.
constexpr int max_loads_in_turn = 64;
// So many times more steps may change nothing where threads meet in collectives in between.
constexpr int64_t with_collectives = 16;

/// Unwinds a thread that has failed.
struct Failed {};

void merge(OperationClock& into, const OperationClock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

}  // namespace

void Machine::reset(const Config& config) {
  abandon();
  config_ = config;
  counters = {};
  random = Random(config.seed);
  race::everything_done();
}

void Machine::enqueue(std::shared_ptr<Operation> operation) {
  operation->id = next_id_++;
  OperationClock& clock = operation->clock;
  clock = known_done_;
  for (const auto& earlier : operation->after)
    if (earlier->id >= all_done_before_) merge(clock, earlier->clock);
  Operation* const previous = may_begin_beside(*operation);
  if (previous != nullptr) {
    operation->previous = operation->after.front();
    operation->begin_clock = known_done_;
    merge(operation->begin_clock, previous->begin_clock);
    if (previous->num_started < previous->num_blocks) {
      previous->beside.push_back(operation.get());
      ++operation->num_unfinished_before;
    }
  } else {
    operation->begin_clock = clock;
    for (const auto& earlier : operation->after) {
      if (earlier->state == Operation::State::done) continue;
      earlier->followers.push_back(operation.get());
      ++operation->num_unfinished_before;
    }
  }
  clock.resize(chain_sizes_.size());
  const auto chain = static_cast<size_t>(
      std::mismatch(clock.begin(), clock.end(), chain_sizes_.begin(), std::not_equal_to<>()).first - clock.begin());
  if (chain == chain_sizes_.size()) {
    chain_sizes_.push_back(0);
    clock.push_back(0);
  }
  clock[chain] = ++chain_sizes_[chain];
  places_.push_back({static_cast<uint32_t>(chain), clock[chain]});
  if (operation->body) ++counters.launches;
  if (operation->num_unfinished_before == 0) ready_.push_back(operation.get());
  queue_[operation->id] = std::move(operation);
  changed_ = true;
}

void Machine::run_until_done(const Operation& operation) {
  run([&] { return operation.state == Operation::State::done; });
  if (operation.id >= all_done_before_) merge(known_done_, operation.clock);
}

void Machine::run_all() {
  run([this] { return queue_.empty(); });
  forget_order();
  race::everything_done();
  DeviceMemory::instance().check_ends();
}

bool Machine::run_one() {
  const size_t queued = queue_.size();
  run([&] { return queue_.size() < queued || queued == 0; });
  return queued > 0;
}

int64_t Machine::num_queued_launches() const {
  return std::count_if(queue_.begin(), queue_.end(), [](const auto& queued) { return queued.second->num_blocks > 0; });
}

bool Machine::is_in(uint32_t id, const Operation& now, const OperationClock& clock) const {
  if (id < all_done_before_) return true;
  const Place place = places_[id - all_done_before_];
  return id != now.id && place.chain < clock.size() && place.number <= clock[place.chain];
}

bool Machine::in_flight(uint32_t id) const {
  const auto found = queue_.find(id);
  return found != queue_.end() && found->second->state == Operation::State::running;
}

void Machine::forget_order() {
  all_done_before_ = next_id_;
  places_.clear();
  chain_sizes_.clear();
  known_done_.clear();
}

/// The one launch that comes before a launch that may begin early, while that runs or waits.
Operation* Machine::may_begin_beside(const Operation& operation) {
  if (!operation.overlaps || operation.after.size() != 1) return nullptr;
  Operation& before = *operation.after.front();
  return before.body != nullptr && before.state != Operation::State::done ? &before : nullptr;
}

void Machine::run(const std::function<bool()>& until) {
  while (!until()) {
    while (changed_) {
      changed_ = false;
      start_ready();
      start_blocks();
      if (until()) return;
    }
    if (resident_.empty()) {
      if (queue_.empty()) return;
      abandon();
      throw Error("deadlock: what is queued waits for operations that are not");
    }
    run_threads();
  }
}

void Machine::start_ready() {
  for (size_t i = 0; i < ready_.size(); ++i) {  // what ends here may make others ready
    Operation& operation = *ready_[i];
    operation.state = Operation::State::running;
    if (operation.body) {
      starting_.push_back(&operation);
      continue;
    }
    try {
      if (operation.action) operation.action(operation);
    } catch (...) {
      abandon();
      throw;
    }
    finish(operation);
  }
  ready_.clear();
}

void Machine::start_blocks() {
  while (!starting_.empty() && resident_.size() < static_cast<size_t>(std::max(config_.resident_blocks, 1))) {
    // Launches take turns, so that none waits for another to end.
    const auto chosen = config_.schedule == Schedule::random
                            ? starting_.begin() + random.below(starting_.size())
                            : std::min_element(starting_.begin(), starting_.end(), [](auto* a, auto* b) {
                                return a->num_started - a->num_finished < b->num_started - b->num_finished;
                              });
    Operation& operation = **chosen;
    const uint64_t turn = operation.num_started++;
    if (operation.num_started == operation.num_blocks) {
      starting_.erase(chosen);
      for (Operation* beside : operation.beside) become_ready(*beside);
      operation.beside.clear();
    }
    const uint64_t number = config_.schedule == Schedule::reverse ? operation.num_blocks - 1 - turn : turn;
    const backend::Dim3 grid = operation.grid;
    std::unique_ptr<Block> block;
    if (spare_.empty()) {
      block = std::make_unique<Block>();
    } else {
      block = std::move(spare_.back());
      spare_.pop_back();
    }
    block->start(operation, {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                             static_cast<unsigned>(number / grid.x / grid.y)});
    for (unsigned i = 0; i < block->num_threads; ++i) block->threads[i]->fiber.start(&thread_main, i);
    resident_.push_back(std::move(block));
    ++counters.blocks;
    made_progress();
  }
}

Thread* Machine::pick() {
  if (!delaying_.empty()) drain_some();
  if (resident_.size() > 1) {
    if (config_.schedule == Schedule::random && random.one_in(other_block_one_in)) {
      current_block_ = random.below(resident_.size());
    } else if (rotate_) {
      ++current_block_;
    }
  }
  rotate_ = false;
  if (current_block_ >= resident_.size()) current_block_ = 0;
  Block& block = *resident_[current_block_];
  Thread* next = block.next_runnable(current_rank_, config_.schedule, random);
  if (next == nullptr) failure_ = "deadlock: no thread of a block can go on:" + block.describe_waiting();
  return next;
}

void Machine::enter(Thread& thread) {
  if (running_ == nullptr || running_->block != thread.block) loads_of_block_ = 0;
  loads_in_turn_ = 0;
  running_ = &thread;
  current_rank_ = thread.rank;
  backend::position = &thread.position;
}

/// Threads switch to one another until one ends its block or fails.
void Machine::run_threads() {
  if (Thread* first = pick()) {
    enter(*first);
    Fiber::switch_to(main_, first->fiber);
  }
  Thread* last = running_;
  running_ = nullptr;
  if (!failure_.empty()) {
    const std::string message = failure_;
    abandon();
    throw Error(message);
  }
  retire(*last->block);
}

void Machine::retire(Block& block) {
  Operation& operation = *block.operation;
  if (block.shared.damaged()) {
    const std::string index = std::to_string(block.threads[0]->position.block.x);
    abandon();
    throw Error("shared memory out of bounds: block " + index +
                " wrote outside of its storages; the race build names the line");
  }
  block.sectors.flush(counters);
  block.operations.flush(counters);
  for (auto& resident : resident_) {
    if (resident.get() != &block) continue;
    spare_.push_back(std::move(resident));
    resident = std::move(resident_.back());
    resident_.pop_back();
    break;
  }
  delaying_.erase(
      std::remove_if(delaying_.begin(), delaying_.end(), [&](const Thread* thread) { return thread->block == &block; }),
      delaying_.end());
  changed_ = true;
  if (++operation.num_finished == operation.num_blocks) finish(operation);
}

void Machine::finish(Operation& operation) {
  operation.state = Operation::State::done;
  operation.after.clear();
  operation.previous = nullptr;
  operation.body = nullptr;
  for (Operation* follower : operation.followers) become_ready(*follower);
  operation.followers.clear();
  queue_.erase(operation.id);
}

void Machine::become_ready(Operation& operation) {
  if (--operation.num_unfinished_before > 0) return;
  ready_.push_back(&operation);
  changed_ = true;
}

void Machine::drain_some() {
  if (!random.one_in(drain_one_in)) return;
  const size_t drawn = random.below(delaying_.size());
  flush_one(*delaying_[drawn], random);
  if (delaying_[drawn]->delayed_stores.empty()) delaying_.erase(delaying_.begin() + static_cast<std::ptrdiff_t>(drawn));
}

void Machine::abandon() {
  for (auto& block : resident_) {
    for (auto& thread : block->threads) {
      thread->delayed_stores.clear();
      thread->fiber.forget_frames();
    }
    block->sectors = {};
    block->operations = {};
    spare_.push_back(std::move(block));
  }
  resident_.clear();
  for (const auto& [id, operation] : queue_) {
    operation->state = Operation::State::done;  // for whoever waits for them
    operation->followers.clear();
    operation->beside.clear();
  }
  queue_.clear();
  ready_.clear();
  starting_.clear();
  delaying_.clear();
  failure_.clear();
  forget_order();
  made_progress();
  race::everything_done();
}

void Machine::thread_main() {
  Fiber::arrived();
  Machine& machine = instance();
  Thread& thread = *machine.running_;
  try {
    thread.block->operation->body();
    if (thread.block->operation->overlaps && !thread.has_waited)
      machine.fail(thread, "the thread exits before it has waited for the launch before", thread.here);
    thread.block->exit(thread);
  } catch (const Failed&) {
  } catch (const std::exception& error) {
    machine.failure_ = std::string("exception in a kernel: ") + error.what() + ": " + thread.at(thread.here);
  }
  machine.made_progress();
  if (machine.failure_.empty() && thread.block->num_live > 0) machine.park(thread);
  Fiber::switch_to(thread.fiber, machine.main_);
  std::terminate();  // nobody resumes a thread that has exited
}

void Machine::refuse_outside_of_kernels(const char* what, Here here) {
  throw Error(std::string(what) + ": called outside of a kernel at " + here.file + ":" + std::to_string(here.line));
}

void Machine::park(Thread& thread) {
  Thread* next = pick();
  if (next != nullptr) enter(*next);
  if (next != &thread) Fiber::switch_to(thread.fiber, next != nullptr ? next->fiber : main_);
}

void Machine::wait_for_previous_launch(Thread& thread) {
  const Operation& operation = *thread.block->operation;
  while (operation.previous != nullptr && operation.previous->state != Operation::State::done) {
    rotate_ = true;
    park(thread);
  }
  thread.has_waited = true;
}

void Machine::maybe_yield(Thread& thread) {
  if (config_.schedule != Schedule::random || !random.one_in(config_.preemption)) return;
  rotate_ = random.one_in(2);
  park(thread);
}

void Machine::note_step(Thread& thread, bool changed, Here here) {
  if (changed) {
    made_progress();
    return;
  }
  const int64_t steps = ++steps_ + steps_before_collective_;
  if (steps_ > config_.watchdog || steps > config_.watchdog * with_collectives) {
    fail(thread, "no progress: threads spin; " + std::to_string(steps) + " reads and failed atomics, the last by",
         here);
  }
  ++loads_in_turn_;
  ++loads_of_block_;
  if (loads_in_turn_ >= max_loads_in_turn || loads_of_block_ >= max_loads_in_turn * static_cast<int>(warp_lanes)) {
    loads_of_block_ = 0;
    rotate_ = true;
    park(thread);
  }
}

void Machine::fail(Thread& thread, const std::string& what, Here here) { fail(what + ": " + thread.at(here)); }

void Machine::fail(const std::string& message) {
  if (running_ == nullptr) {
    abandon();
    throw Error(message);
  }
  failure_ = message;
  throw Failed{};
}

void Machine::fail_without_unwinding(const std::string& message) {
  failure_ = message;
  Fiber::switch_to(running_->fiber, main_);
  std::terminate();  // nobody resumes a thread that has failed
}

}  // namespace simt
