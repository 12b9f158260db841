// SPDX-License-Identifier: Apache-2.0
#include "execute/launch.hpp"

#include <algorithm>
#include <cstdlib>

#include "execute/context.hpp"

namespace t4 {
namespace {

// Where code finds in bank 0 what the card knows of a launch.
constexpr size_t block_size_at = 0, grid_size_at = 12, shared_window_at = 0x18, local_window_at = 0x20, stack_at = 0x28;
constexpr uint32_t stack_pointer = 0x8000;  // local memory below it
constexpr uint64_t longest_slice = uint64_t{1} << 16, most_instructions = uint64_t{1} << 31, most_waits = 100000;

template <class T>
void put(std::vector<uint8_t>& bytes, size_t at, const T& value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// One block and what its warps wait for.
struct Running {
  std::unique_ptr<Block> block;
  std::vector<Polls> polls;
};

class Runner {
 public:
  Runner(Launch& launch, uint32_t most_blocks)
      : launch_(launch),
        most_blocks_(std::max(most_blocks, 1u)),
        patience_(launch),
        num_blocks_(static_cast<uint32_t>(launch.grid.count())) {}

  Executed run() {
    while (begun_ < num_blocks_ || !running_.empty()) {
      if (begun_ < num_blocks_ && running_.size() < most_blocks_) begin();
      for (size_t i = 0; i < running_.size();) {
        take_turn(running_[i]);
        if (running_[i].block->is_done()) {
          count(*running_[i].block);
          running_.erase(running_.begin() + static_cast<long>(i));
        } else {
          ++i;
        }
      }
    }
    return executed_;
  }

 private:
  void begin() {
    Running next{begin_block(launch_, begun_++), {}};
    next.polls.resize(next.block->warps.size());
    running_.push_back(std::move(next));
  }
  /// Until the block is done, or all its warps have waited for others.
  void take_turn(Running& running) {
    Block& block = *running.block;
    for (bool goes_on = true; goes_on && !block.is_done();) {
      goes_on = false;
      bool can_any_run = false;
      for (Warp& warp : block.warps) {
        if (!warp.can_run()) continue;
        can_any_run = true;
        goes_on |= run_warp(warp, running.polls[static_cast<size_t>(warp.index)]);
      }
      if (!can_any_run && !block.is_done()) fail_unmet_barrier(block);
    }
  }
  /// Until it cannot, or waits for others, or for long. Whether it did not wait.
  bool run_warp(Warp& warp, Polls& polls) {
    uint64_t n = 0;
    bool waits = false;
    while (warp.can_run() && !waits && n < longest_slice) {
      execute_next(warp, step_);
      waits = polls.waits_after(step_);
      ++n, ++launch_.clock;
    }
    patience_.add(n, waits);
    return !waits;
  }
  void count(const Block& block) {
    for (const Warp& warp : block.warps) {
      executed_.instructions += warp.num_executed;
      executed_.longest_warp = std::max(executed_.longest_warp, warp.num_executed);
    }
  }

  Launch& launch_;
  uint32_t most_blocks_;
  Patience patience_;
  uint32_t num_blocks_, begun_ = 0;
  std::vector<Running> running_;
  Step step_;
  Executed executed_;
};

}  // namespace

Launch make_launch(const Function& function, Dim3 grid, Dim3 block, uint32_t dynamic_shared_bytes,
                   const std::vector<uint8_t>& parameters, Allocations& memory) {
  Launch launch;
  launch.function = &function;
  launch.grid = grid, launch.block = block;
  launch.shared_bytes = function.reserved_shared_bytes + function.static_shared_bytes + dynamic_shared_bytes;
  launch.memory = &memory;
  launch.constants = function.banks[0];
  const size_t base = static_cast<size_t>(function.parameter_base);
  launch.constants.resize(std::max(launch.constants.size(), base + parameters.size()));
  put(launch.constants, block_size_at, block);
  put(launch.constants, grid_size_at, grid);
  put(launch.constants, shared_window_at, shared_window);
  put(launch.constants, local_window_at, local_window);
  put(launch.constants, stack_at, stack_pointer);
  std::copy(parameters.begin(), parameters.end(), launch.constants.begin() + static_cast<long>(base));
  return launch;
}

Executed execute(Launch& launch, uint32_t most_blocks) { return Runner(launch, most_blocks).run(); }

bool Polls::waits_after(const Step& step) {
  constexpr int patience = 4;
  const Opcode opcode = step.instruction->opcode;
  if (opcode == Opcode::NANOSLEEP) return true;
  const bool may_poll =
      step.instruction->has(Modifier::STRONG) && step.num_addresses > 0 &&
      (opcode == Opcode::LDG || opcode == Opcode::LD || opcode == Opcode::ATOM || opcode == Opcode::ATOMG);
  if (!may_poll) return false;
  const auto found = std::find_if(loads_.begin(), loads_.end(), [&](const Load& load) {
    return load.instruction == step.instruction && load.address == step.addresses[0];
  });
  if (found == loads_.end()) {
    loads_[next_++ % most_loads] = {step.instruction, step.addresses[0], 0};
    return false;
  }
  if (++found->times < patience) return false;
  loads_ = {};
  return true;
}

void Patience::add(uint64_t instructions, bool waits) {
  if (launch_.changes != changes_) changes_ = launch_.changes, instructions_ = waits_ = 0;
  instructions_ += instructions, waits_ += waits;
  if (waits_ > most_waits || instructions_ > most_instructions)
    throw execution_error("an endless wait: no memory was changed in " + std::to_string(instructions_) +
                          " instructions of " + launch_.function->name);
}

void fail_unmet_barrier(const Block& block) {
  std::string message = "threads wait for others that never come, in " + block.launch->function->name + ", block (" +
                        std::to_string(block.index.x) + "," + std::to_string(block.index.y) + "," +
                        std::to_string(block.index.z) + ")";
  for (const Warp& warp : block.warps)
    for (const Parked& parked : warp.parked) {
      const auto& code = block.launch->function->code.instructions;
      const Instruction& at = code[static_cast<size_t>(parked.group.at) - 1];
      throw execution_error(message + ": " + std::to_string(count_lanes(parked.group.lanes)) + " of warp " +
                            std::to_string(warp.index) + " at " + at.text);
    }
  throw execution_error(message);
}

}  // namespace t4
