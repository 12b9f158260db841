// SPDX-License-Identifier: Apache-2.0
#include "simt/machine.hpp"

#include <algorithm>
#include <exception>

#include "simt/delayed_stores.hpp"

namespace warprank::device::backend {
const Position* position = nullptr;
}

namespace simt {
namespace {

constexpr int other_block_one_in = 8, drain_one_in = 8;
// A thread that only reads lets others run after so many reads: it may be waiting for them.
constexpr int max_loads_in_turn = 64;

/// Unwinds a thread that has failed.
struct Failed {};

}  // namespace

Machine& Machine::instance() {
  static Machine machine;
  return machine;
}

void Machine::reset(const Config& config) {
  abandon();
  config_ = config;
  counters = {};
  random = Random(config.seed);
  race::everything_done();
}

void Machine::enqueue(std::shared_ptr<Operation> operation) {
  operation->id = next_id_++;
  operation->ancestors = known_done_;
  for (const auto& earlier : operation->after) {
    operation->ancestors.insert(earlier->ancestors.begin(), earlier->ancestors.end());
    operation->ancestors.insert(earlier->id);
  }
  if (operation->body) ++counters.launches;
  queue_.push_back(std::move(operation));
  changed_ = true;
}

void Machine::run_until_done(const Operation& operation) {
  run([&] { return operation.state == Operation::State::done; });
  known_done_.insert(operation.ancestors.begin(), operation.ancestors.end());
  known_done_.insert(operation.id);
}

void Machine::run_all() {
  run([this] { return queue_.empty(); });
  all_done_before_ = next_id_;
  known_done_.clear();
  race::everything_done();
  DeviceMemory::instance().check_ends();
}

bool Machine::ordered_before(uint32_t id, const Operation& now) const {
  return id < all_done_before_ || now.ancestors.count(id) != 0;
}

bool Machine::in_flight(uint32_t id) const {
  for (const auto& operation : queue_) {
    if (operation->id == id) return operation->state == Operation::State::running;
  }
  return false;
}

void Machine::run(const std::function<bool()>& until) {
  while (!until()) {
    if (changed_) {
      changed_ = false;
      while (start_ready()) {
      }
      start_blocks();
      if (until()) return;
    }
    if (resident_.empty()) {
      if (queue_.empty()) return;
      abandon();
      throw Error("deadlock: what is queued waits for operations that are not");
    }
    drain_some();
    resume(pick());
  }
}

bool Machine::start_ready() {
  bool any = false;
  const auto queued = queue_;
  for (const auto& operation : queued) {
    if (operation->state != Operation::State::waiting) continue;
    const bool ready = std::all_of(operation->after.begin(), operation->after.end(),
                                   [](const auto& earlier) { return earlier->state == Operation::State::done; });
    if (!ready) continue;
    operation->state = Operation::State::running;
    any = true;
    if (operation->body) continue;
    try {
      if (operation->action) operation->action(*operation);
    } catch (...) {
      abandon();
      throw;
    }
    finish(*operation);
  }
  return any;
}

void Machine::start_blocks() {
  while (resident_.size() < static_cast<size_t>(std::max(config_.resident_blocks, 1))) {
    std::vector<Operation*> candidates;
    for (const auto& operation : queue_) {
      if (operation->state == Operation::State::running && operation->num_started < operation->num_blocks) {
        candidates.push_back(operation.get());
      }
    }
    if (candidates.empty()) return;
    // Launches take turns, so that none waits for another to end.
    Operation& operation = *(config_.schedule == Schedule::random
                                 ? candidates[random.below(candidates.size())]
                                 : *std::min_element(candidates.begin(), candidates.end(), [](auto* a, auto* b) {
                                     return a->num_started - a->num_finished < b->num_started - b->num_finished;
                                   }));
    const uint64_t turn = operation.num_started++;
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
    steps_ = 0;
  }
}

Thread& Machine::pick() {
  const bool draw = config_.schedule == Schedule::random && random.one_in(other_block_one_in);
  if (draw) {
    current_block_ = random.below(resident_.size());
  } else if (rotate_) {
    ++current_block_;
  }
  rotate_ = false;
  current_block_ %= resident_.size();
  Block& block = *resident_[current_block_];
  if (!block.has_runnable()) {
    const std::string waiting = block.describe_waiting();
    abandon();
    throw Error("deadlock: no thread of a block can go on:" + waiting);
  }
  return block.next_runnable(current_rank_, config_.schedule, random);
}

void Machine::resume(Thread& thread) {
  running_ = &thread;
  current_rank_ = thread.rank;
  loads_in_turn_ = 0;
  backend::position = &thread.position;
  Fiber::switch_to(main_, thread.fiber);
  running_ = nullptr;
  if (!failure_.empty()) {
    const std::string message = failure_;
    abandon();
    throw Error(message);
  }
  if (thread.block->num_live == 0) retire(*thread.block);
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
  operation.body = nullptr;
  queue_.erase(
      std::find_if(queue_.begin(), queue_.end(), [&](const auto& queued) { return queued.get() == &operation; }));
}

void Machine::drain_some() {
  if (delaying_.empty() || !random.one_in(drain_one_in)) return;
  const size_t drawn = random.below(delaying_.size());
  flush_one(*delaying_[drawn], random);
  if (delaying_[drawn]->delayed_stores.empty()) delaying_.erase(delaying_.begin() + static_cast<std::ptrdiff_t>(drawn));
}

void Machine::abandon() {
  for (auto& block : resident_) {
    for (auto& thread : block->threads) thread->delayed_stores.clear();
    block->sectors = {};
    spare_.push_back(std::move(block));
  }
  resident_.clear();
  for (const auto& operation : queue_) operation->state = Operation::State::done;  // for whoever waits for them
  queue_.clear();
  delaying_.clear();
  known_done_.clear();
  failure_.clear();
  all_done_before_ = next_id_;
  steps_ = 0;
  race::everything_done();
}

void Machine::thread_main() {
  Fiber::arrived();
  Machine& machine = instance();
  Thread& thread = *machine.running_;
  try {
    thread.block->operation->body();
    thread.block->exit(thread);
  } catch (const Failed&) {
  } catch (const std::exception& error) {
    machine.failure_ = std::string("exception in a kernel: ") + error.what() + ": " + thread.at(thread.here);
  }
  machine.steps_ = 0;
  machine.park(thread);
  std::terminate();  // nobody resumes a thread that has exited
}

Thread& Machine::running(const char* what, Here here) const {
  if (running_ == nullptr) {
    throw Error(std::string(what) + ": called outside of a kernel at " + here.file + ":" + std::to_string(here.line));
  }
  return *running_;
}

void Machine::park(Thread& thread) { Fiber::switch_to(thread.fiber, main_); }

void Machine::maybe_yield(Thread& thread) {
  if (config_.schedule != Schedule::random || !random.one_in(config_.preemption)) return;
  rotate_ = random.one_in(2);
  park(thread);
}

void Machine::note_step(Thread& thread, bool changed, Here here) {
  if (changed) {
    steps_ = 0;
    return;
  }
  if (++steps_ > config_.watchdog) {
    fail(thread, "no progress: threads spin; " + std::to_string(steps_) + " reads and failed atomics, the last by",
         here);
  }
  if (++loads_in_turn_ >= max_loads_in_turn) {
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
