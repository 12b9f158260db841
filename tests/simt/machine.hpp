// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs launches and copies: blocks of all launches that may run now make progress together, one thread at a time.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "simt/block.hpp"
#include "simt/config.hpp"

namespace simt {

/// Which operations are ordered before a moment. Operations form chains, as few as it takes for each to be ordered
/// after the one before it in its chain; the entries say how many of each chain are ordered before.
using OperationClock = std::vector<uint32_t>;

/// Something that a stream or a graph runs: a launch, a copy, or nothing, as a place to wait for.
struct Operation {
  enum class State { waiting, running, done };

  uint32_t id = 0;
  int device = 0;                                 ///< whose stream it is in
  std::vector<std::shared_ptr<Operation>> after;  ///< must be done before
  OperationClock clock;                           ///< what is ordered before, and itself
  OperationClock begin_clock;                     ///< what is ordered before it begins
  std::vector<Operation*> followers;              ///< queued, and wait for this one
  int num_unfinished_before = 0;
  State state = State::waiting;

  // A launch.
  std::function<void()> body;
  backend::Dim3 grid, block;
  int64_t shared_bytes = 0;
  Here here;
  uint64_t num_blocks = 0, num_started = 0, num_finished = 0;
  const void* kernel = nullptr;
  bool overlaps = false;                ///< its threads all wait for the launch before
  std::shared_ptr<Operation> previous;  ///< the launch that it may begin beside; none: it begins behind all
  std::vector<Operation*> beside;       ///< queued, and may begin once all blocks of this one have

  // Or a copy.
  std::function<void(const Operation&)> action;
};

class Machine {
 public:
  static Machine& instance() {
    static Machine machine;
    return machine;
  }

  const Config& config() const { return config_; }
  Counters counters;
  Random random;

  /// Forgets what is queued and in flight, and starts again with new settings.
  void reset(const Config& config);

  /// Queues an operation whose `after` is set.
  void enqueue(std::shared_ptr<Operation> operation);
  /// Runs until the operation is done. Throws Error for what kernels did wrong; then everything queued is forgotten.
  void run_until_done(const Operation& operation);
  void run_all();
  /// Runs until one more operation is done; false when none is queued.
  bool run_one();
  int64_t num_queued_launches() const;

  /// Whether the operation is ordered before `now` by streams, events or the host.
  bool ordered_before(uint32_t id, const Operation& now) const { return is_in(id, now, now.clock); }
  /// The same of a thread: one that has not waited for the launch before is not ordered after it.
  bool ordered_before(uint32_t id, const Thread& now) const {
    const Operation& operation = *now.block->operation;
    return is_in(id, operation, now.has_waited ? operation.clock : operation.begin_clock);
  }
  /// Whether it is ordered before `now` begins, which may be beside the launch before.
  bool ordered_before_begin(uint32_t id, const Operation& now) const { return is_in(id, now, now.begin_clock); }
  /// Whether the operation has begun and not ended.
  bool in_flight(uint32_t id) const;

  // For what runs inside a kernel.
  /// The running thread; none outside of kernels.
  Thread* running() const { return running_; }
  /// The running thread; throws outside of kernels, where `what` has no meaning.
  Thread& running(const char* what, Here here) const {
    if (running_ == nullptr) refuse_outside_of_kernels(what, here);
    return *running_;
  }
  /// Lets other threads run until this one may go on.
  void park(Thread& thread);
  /// The thread goes on when the launch before its own has ended.
  void wait_for_previous_launch(Thread& thread);
  /// Counts an operation of the thread's warp.
  void count(Thread& thread, int64_t WarpOperations::*what, Here here) const {
    if (config_.count_warps) thread.block->operations.add(what, here.file, here.line, thread.warp(), thread.lane());
  }
  /// Before and after every atomic: others may come between.
  void maybe_yield(Thread& thread);
  /// Watches for threads that wait for what never comes. `changed`: memory has a new value.
  void note_step(Thread& thread, bool changed, Here here);
  /// Ends everything in flight with an error at the thread's place. Unwinds the running thread; the others' frames are
  /// forgotten, and hold nothing.
  [[noreturn]] void fail(Thread& thread, const std::string& what, Here here);
  /// The same with a finished message.
  [[noreturn]] void fail(const std::string& message);
  /// The same for a call that the compiler believes not to throw: forgets the running thread's frames as well.
  [[noreturn]] void fail_without_unwinding(const std::string& message);
  /// The thread has stores that others do not see yet.
  void has_delayed_stores(Thread& thread) { delaying_.push_back(&thread); }
  void made_progress() { steps_ = steps_before_collective_ = 0; }
  /// By itself no progress, as threads may wait in a loop of votes; but more may pass until those count as waiting.
  void passed_collective() {
    steps_before_collective_ += steps_;
    steps_ = 0;
  }

 private:
  Machine() = default;

  bool is_in(uint32_t id, const Operation& now, const OperationClock& clock) const;
  void run(const std::function<bool()>& until);
  static Operation* may_begin_beside(const Operation& operation);
  void become_ready(Operation& operation);
  void start_ready();
  void start_blocks();
  /// The thread that runs next; none when a block can never go on, which is then the failure.
  Thread* pick();
  void enter(Thread& thread);
  void run_threads();
  void retire(Block& block);
  void drain_some();
  void finish(Operation& operation);
  void forget_order();
  void abandon();
  static void thread_main();
  [[noreturn]] static void refuse_outside_of_kernels(const char* what, Here here);

  Config config_;
  std::map<uint32_t, std::shared_ptr<Operation>> queue_;  // waiting or running, by id
  std::vector<Operation*> ready_;                         // wait for nothing any more
  std::vector<Operation*> starting_;                      // launches whose blocks have not all begun
  std::vector<std::unique_ptr<Block>> resident_, spare_;
  std::vector<Thread*> delaying_;
  /// Where an operation stands in its chain.
  struct Place {
    uint32_t chain, number;
  };
  std::vector<Place> places_;  // of operations from all_done_before_ on
  std::vector<uint32_t> chain_sizes_;
  OperationClock known_done_;  // what the host has waited for
  uint32_t next_id_ = 1, all_done_before_ = 1;
  size_t current_block_ = 0;
  unsigned current_rank_ = 0;
  bool rotate_ = false;
  bool changed_ = false;                             // something may have become ready to start
  int64_t steps_ = 0, steps_before_collective_ = 0;  // that changed nothing
  int loads_in_turn_ = 0, loads_of_block_ = 0;
  Thread* running_ = nullptr;
  Fiber main_;
  std::string failure_;
};

}  // namespace simt
