// SPDX-License-Identifier: Apache-2.0
#include "execute/warp.hpp"

#include <algorithm>

#include "execute/context.hpp"
#include "execute/divergence.hpp"

namespace t4 {
namespace {

constexpr uint32_t garbage = 0xcdcdcdcd;  // in what is not written yet
constexpr int spare_registers = 8;        // for pairs and vectors at the end

Mask guarded(const Warp& warp, const Instruction& instruction, Mask group) {
  if (instruction.guard == true_predicate) return instruction.guard_negative ? 0 : group;
  Mask values = warp.predicates[static_cast<size_t>(instruction.guard)];
  if (instruction.guard_uniform) values = warp.uniform_predicates >> instruction.guard & 1 ? ~Mask{0} : 0;
  return group & (instruction.guard_negative ? ~values : values);
}

/// One further, where others may be.
void advance(Warp& warp, size_t chosen) {
  if (warp.groups.size() == 1) {
    ++warp.groups[0].at;
    return;
  }
  const Group group = warp.groups[chosen];
  warp.groups.erase(warp.groups.begin() + static_cast<long>(chosen));
  go_on(warp, group.lanes, group.at + 1);
}

}  // namespace

std::unique_ptr<Block> begin_block(Launch& launch, uint32_t number) {
  auto block = std::make_unique<Block>();
  block->launch = &launch;
  block->number = number;
  block->index = {number % launch.grid.x, number / launch.grid.x % launch.grid.y,
                  number / launch.grid.x / launch.grid.y};
  block->shared.assign(launch.shared_bytes, static_cast<uint8_t>(garbage));
  const auto threads = static_cast<int>(launch.block.count());
  block->alive = threads;
  block->warps.resize(static_cast<size_t>((threads + warp_size - 1) / warp_size));
  Lanes unwritten;
  unwritten.fill(garbage);
  const int registers = std::min(launch.function->code.num_registers + spare_registers, 256);
  int index = 0;
  for (Warp& warp : block->warps) {
    warp.block = block.get();
    warp.index = index++;
    warp.registers.assign(static_cast<size_t>(registers), unwritten);
    const int rest = threads - warp.index * warp_size;
    warp.all = warp.alive = rest >= warp_size ? ~Mask{0} : (Mask{1} << rest) - 1;
    warp.groups.push_back({0, warp.alive});
  }
  return block;
}

const Instruction& next_instruction(const Warp& warp) {
  const std::vector<Instruction>& code = warp.block->launch->function->code.instructions;
  const auto at = static_cast<size_t>(warp.groups[chosen_group(warp)].at);
  if (at >= code.size()) throw execution_error("a warp ran off the end of " + warp.block->launch->function->name);
  return code[at];
}

Mask next_lanes(const Warp& warp) {
  return guarded(warp, next_instruction(warp), warp.groups[chosen_group(warp)].lanes);
}

void execute_next(Warp& warp, Step& step) {
  const Instruction& instruction = next_instruction(warp);
  const size_t chosen = chosen_group(warp);
  const Group group = warp.groups[chosen];
  warp.turns = warp.groups.size() == 1 ? 0 : warp.turns + 1;
  step.instruction = &instruction;
  step.lanes = guarded(warp, instruction, group.lanes);
  step.num_addresses = 0;
  ++warp.num_executed;
  Context context{warp, instruction, group.lanes, step.lanes, step};
  if (instruction.handler == nullptr) context.fail("the instruction is not known to the executor");
  if (instruction.is_control) {
    warp.groups.erase(warp.groups.begin() + static_cast<long>(chosen));
    return instruction.handler(context);
  }
  advance(warp, chosen);
  if (step.lanes != 0) instruction.handler(context);
}

}  // namespace t4
