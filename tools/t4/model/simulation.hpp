// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Executes a launch and finds how long the card would take: each instruction is executed when the model issues it, so
/// blocks that wait for one another wait in the model's time.

#include "model/code_caches.hpp"
#include "model/multiprocessor.hpp"
#include "model/second_level.hpp"

namespace t4 {

/// What a launch leaves for one that overlaps it.
struct Previous {
  Timing timing;
  uint64_t warps = 0, registers = 0, shared_bytes = 0;  ///< of a block
};

class Simulation {
 public:
  /// `before`: the launch that it overlaps, if any.
  Simulation(const Card& card, SecondLevel& second_level, CodeMemory& code, Launch& launch, bool profiles,
             const Previous* before = nullptr);
  /// Throws execution_error.
  Timing run();
  /// After it.
  Previous as_previous() const { return {timing_, warps_per_block_, registers_per_block_, shared_per_block_}; }

 private:
  struct Taken {
    uint64_t warps = 0, registers = 0, shared_bytes = 0;
  };
  /// A block of the launch before.
  struct Left {
    size_t multiprocessor;
    double until;
  };
  /// When the result and the operands of an instruction are done with.
  struct Done {
    double result, operands;
    Why why = Why::latency;
  };

  // Blocks
  void place_blocks(double now);
  void begin_block_on(size_t multiprocessor, double now);
  void end_block(TimedBlock& block);
  void release_waiting(TimedBlock& block);
  void leave_previous();

  // Schedulers
  void visit(Multiprocessor& multiprocessor, Scheduler& scheduler);
  bool can_issue(Multiprocessor& multiprocessor, Scheduler& scheduler, TimedWarp& warp);
  bool has_code(TimedWarp& warp, uint32_t address);
  bool has_constants(Multiprocessor& multiprocessor, const TimedWarp& warp, const Instruction& instruction);
  void account(TimedWarp& warp, double until, Why why);
  void wait_until(TimedWarp& warp, double time, Why why);

  // Instructions
  void issue(Multiprocessor& multiprocessor, Scheduler& scheduler, TimedWarp& warp);
  Done occupy(Multiprocessor& multiprocessor, Scheduler& scheduler, TimedWarp& warp, const Step& step);
  Done access(Multiprocessor& multiprocessor, TimedWarp& warp, const Step& step);
  Done access_shared(Multiprocessor& multiprocessor, const Step& step);
  Done access_global(Multiprocessor& multiprocessor, const TimedWarp& warp, const Step& step);
  void wait_for_copies(TimedWarp& warp, const Instruction& instruction);
  void finish_warp(Scheduler& scheduler, TimedWarp& warp);

  const Card& card_;
  SecondLevel& second_level_;
  CodeMemory& code_;
  Launch& launch_;
  bool profiles_;
  double now_ = 0, end_ = 0;
  double data_ready_ = 0;   ///< when the launch before has ended, of which this one is the beginning
  std::vector<Left> left_;  ///< blocks of it that are still there
  Taken of_left_;           ///< by each
  uint64_t first_line_;     ///< of the code
  uint32_t num_blocks_, begun_ = 0;
  uint64_t warps_per_block_, registers_per_block_, shared_per_block_;
  std::vector<Multiprocessor> multiprocessors_;
  std::vector<std::unique_ptr<TimedBlock>> blocks_;  ///< that are on one
  Patience patience_;
  Timing timing_;
  Step step_;
  std::vector<uint64_t> sectors_;
  double last_issue_of_last_warp_ = -1;
};

}  // namespace t4
