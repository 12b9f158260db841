// SPDX-License-Identifier: Apache-2.0
#include "model/simulation.hpp"

#include <algorithm>
#include <cmath>

#include "execute/resident.hpp"
#include "model/accesses.hpp"

namespace t4 {
namespace {

constexpr int64_t constant_line_bytes = 64;
constexpr double begin_cycles = 10, begin_cycles_of_warp = 2;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

std::string place_of(const Instruction& instruction) {
  if (instruction.file == nullptr) return instruction.text;
  const std::string& file = *instruction.file;
  size_t slash = file.rfind('/');
  if (slash != std::string::npos && slash > 0) slash = file.rfind('/', slash - 1);
  return file.substr(slash == std::string::npos ? 0 : slash + 1) + ":" + std::to_string(instruction.line);
}

}  // namespace

Simulation::Simulation(const Card& card, SecondLevel& second_level, CodeMemory& code, Launch& launch, bool profiles,
                       const Previous* before)
    : card_(card),
      second_level_(second_level),
      code_(code),
      launch_(launch),
      profiles_(profiles),
      first_line_(code.first_line(*launch.function)),
      num_blocks_(static_cast<uint32_t>(launch.grid.count())),
      warps_per_block_((launch.block.count() + warp_size - 1) / warp_size),
      registers_per_block_(registers_of_warp(*launch.function) * warps_per_block_),
      shared_per_block_(round_up(launch.shared_bytes, shared_unit)),
      multiprocessors_(static_cast<size_t>(card.multiprocessors), Multiprocessor(card)),
      patience_(launch) {
  if (before == nullptr) return;
  const double begin = before->timing.dependents_begin;
  data_ready_ = before->timing.cycles - begin;
  for (const Timing::Stay& block : before->timing.blocks) {
    if (block.end <= begin) continue;
    Multiprocessor& multiprocessor = multiprocessors_[block.multiprocessor];
    ++multiprocessor.num_blocks;
    multiprocessor.num_warps += before->warps;
    multiprocessor.registers += before->registers;
    multiprocessor.shared_bytes += before->shared_bytes;
    left_.push_back({block.multiprocessor, block.end - begin});
  }
  of_left_ = {before->warps, before->registers, before->shared_bytes};
}

Timing Simulation::run() {
  second_level_.begin_launch();
  code_.begin_launch();
  place_blocks(0);
  while (!blocks_.empty() || !left_.empty()) {
    double next = never;
    for (const Left& left : left_) next = std::min(next, left.until);
    for (Multiprocessor& multiprocessor : multiprocessors_)
      for (Scheduler& scheduler : multiprocessor.schedulers) {
        if (scheduler.wake <= now_) visit(multiprocessor, scheduler);
        next = std::min(next, scheduler.wake);
      }
    if (blocks_.empty() && left_.empty()) break;
    if (next == never) fail_unmet_barrier(*blocks_.front()->block);
    now_ = std::max(now_ + 1, std::ceil(next));
    leave_previous();
  }
  second_level_.end_launch();
  // Of what was done before the launch before had ended nothing counts.
  timing_.cycles = std::max(end_ - data_ready_, 0.0);
  timing_.microseconds = timing_.cycles / card_.gigahertz * 1e-3;
  return timing_;
}

// ---- Blocks

/// Blocks of the launch before that have ended make room.
void Simulation::leave_previous() {
  const size_t before = left_.size();
  for (size_t i = 0; i < left_.size();) {
    if (left_[i].until > now_) {
      ++i;
      continue;
    }
    Multiprocessor& multiprocessor = multiprocessors_[left_[i].multiprocessor];
    --multiprocessor.num_blocks;
    multiprocessor.num_warps -= of_left_.warps;
    multiprocessor.registers -= of_left_.registers;
    multiprocessor.shared_bytes -= of_left_.shared_bytes;
    left_[i] = left_.back();
    left_.pop_back();
  }
  if (left_.size() < before) place_blocks(now_ + begin_cycles);
}

/// Each on the multiprocessor with the fewest that has place. Those of the launch before are not among them: which
/// multiprocessors have the code already would be chance.
void Simulation::place_blocks(double now) {
  const Room room = room_of(card_);
  while (begun_ < num_blocks_) {
    size_t best = multiprocessors_.size();
    for (size_t i = 0; i < multiprocessors_.size(); ++i) {
      const Multiprocessor& one = multiprocessors_[i];
      const bool fits = one.num_blocks < room.blocks && one.num_warps + warps_per_block_ <= room.warps &&
                        one.registers + registers_per_block_ <= num_registers &&
                        one.shared_bytes + shared_per_block_ <= room.shared_bytes;
      if (fits && (best == multiprocessors_.size() || one.own_blocks < multiprocessors_[best].own_blocks)) best = i;
    }
    if (best == multiprocessors_.size()) return;
    begin_block_on(best, now);
  }
}

void Simulation::begin_block_on(size_t index, double now) {
  Multiprocessor& multiprocessor = multiprocessors_[index];
  ++multiprocessor.num_blocks, ++multiprocessor.own_blocks;
  multiprocessor.num_warps += warps_per_block_;
  multiprocessor.registers += registers_per_block_;
  multiprocessor.shared_bytes += shared_per_block_;
  auto timed = std::make_unique<TimedBlock>();
  timed->block = begin_block(launch_, begun_++);
  timed->multiprocessor = index;
  timed->begin = now;
  for (Warp& warp : timed->block->warps) {
    auto one = std::make_unique<TimedWarp>();
    one->warp = &warp;
    one->block = timed.get();
    const auto fewest =
        std::min_element(multiprocessor.schedulers.begin(), multiprocessor.schedulers.end(),
                         [](const Scheduler& a, const Scheduler& b) { return a.warps.size() < b.warps.size(); });
    one->scheduler = warps_per_block_ >= Multiprocessor::num_schedulers
                         ? warp.index % Multiprocessor::num_schedulers
                         : static_cast<int>(fewest - multiprocessor.schedulers.begin());
    one->ready = now + begin_cycles + begin_cycles_of_warp * warp.index;
    one->accounted = now;
    Scheduler& scheduler = multiprocessor.schedulers[static_cast<size_t>(one->scheduler)];
    scheduler.warps.push_back(one.get());
    scheduler.wake = std::min(scheduler.wake, one->ready);
    timed->warps.push_back(std::move(one));
  }
  blocks_.push_back(std::move(timed));
}

void Simulation::end_block(TimedBlock& block) {
  timing_.blocks.push_back({block.multiprocessor, block.begin - data_ready_, now_ + 1 - data_ready_});
  timing_.dependents_begin = std::max(timing_.dependents_begin, std::min(block.lets_begin, now_ + 1) - data_ready_);
  Multiprocessor& multiprocessor = multiprocessors_[block.multiprocessor];
  --multiprocessor.num_blocks, --multiprocessor.own_blocks;
  multiprocessor.num_warps -= warps_per_block_;
  multiprocessor.registers -= registers_per_block_;
  multiprocessor.shared_bytes -= shared_per_block_;
  blocks_.erase(
      std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& candidate) { return candidate.get() == &block; }));
  place_blocks(now_ + begin_cycles);
}

/// Warps that a barrier has let go.
void Simulation::release_waiting(TimedBlock& block) {
  for (const auto& warp : block.warps) {
    if (!warp->waits || !warp->warp->can_run()) continue;
    warp->waits = false;
    wait_until(*warp, std::max(now_, block.barrier - card_.barrier_interval) + card_.barrier_latency, Why::barrier);
    Scheduler& scheduler = multiprocessors_[block.multiprocessor].schedulers[static_cast<size_t>(warp->scheduler)];
    scheduler.wake = std::min(scheduler.wake, warp->ready);
  }
}

// ---- Schedulers

void Simulation::account(TimedWarp& warp, double until, Why why) {
  if (until <= warp.accounted) return;
  timing_.stalls[static_cast<size_t>(why)] += until - warp.accounted;
  warp.accounted = until;
}
void Simulation::wait_until(TimedWarp& warp, double time, Why why) {
  if (time > warp.ready) warp.ready = time;
  warp.ready_why = why;
}

/// Issues one instruction, if a warp can, and finds when to look again.
void Simulation::visit(Multiprocessor& multiprocessor, Scheduler& scheduler) {
  scheduler.wake = never;
  const size_t count = scheduler.warps.size();
  size_t chosen = count;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = (scheduler.last + i) % count;
    TimedWarp& warp = *scheduler.warps[at];
    if (!warp.waits && can_issue(multiprocessor, scheduler, warp) && chosen == count) chosen = at;
  }
  if (chosen == count) return;
  scheduler.last = chosen;
  issue(multiprocessor, scheduler, *scheduler.warps[chosen]);
  scheduler.wake = std::min(scheduler.wake, now_ + 1);
}

/// Else the scheduler looks again when it may.
bool Simulation::can_issue(Multiprocessor& multiprocessor, Scheduler& scheduler, TimedWarp& warp) {
  const Instruction& instruction = next_instruction(*warp.warp);
  double earliest = warp.ready;
  Why why = warp.ready_why;
  for (size_t i = 0; i < warp.barriers.size(); ++i)
    if ((instruction.control.waits >> i & 1) != 0 && warp.barriers[i] > earliest)
      earliest = warp.barriers[i], why = warp.barrier_why[i];
  const auto later = [&](double time) {
    scheduler.wake = std::min(scheduler.wake, time);
    return false;
  };
  if (earliest > now_) return later(earliest);
  account(warp, earliest, why);
  if (!has_code(warp, instruction.address)) return later(warp.ready);
  if (!has_constants(multiprocessor, warp, instruction)) {
    account(warp, now_, Why::turn);
    warp.ready = now_ + card_.constant_miss_cycles;
    warp.ready_why = Why::constant;
    return later(warp.ready);
  }
  const double free = scheduler.pipes[static_cast<size_t>(instruction.pipe)];
  if (free > now_) {
    if (warp.ready < free) {
      account(warp, now_, Why::turn);
      warp.ready = free, warp.ready_why = Why::pipe;
    }
    return later(free);
  }
  return true;
}

/// Whether the line of code is there, or when the warp is ready again. The next one is fetched ahead.
bool Simulation::has_code(TimedWarp& warp, uint32_t address) {
  const uint64_t line = first_line_ + address / CodeCaches::line_bytes;
  if (line == warp.code_line) return true;
  CodeCaches& code = code_.of(warp.block->multiprocessor);
  const bool follows = warp.code_line != no_line && line == warp.code_line + 1;
  const double there = code.ask(warp.scheduler, line, now_, follows);
  code.ask(warp.scheduler, line + 1, std::max(there, now_), true);
  warp.code_line = line;
  if (there <= now_) return true;
  warp.ready = there, warp.ready_why = Why::fetch;
  return false;
}

bool Simulation::has_constants(Multiprocessor& multiprocessor, const TimedWarp& warp, const Instruction& instruction) {
  bool has = true;
  for (const Operand& operand : instruction.operands) {
    const bool is_plain = operand.kind == Operand::Kind::constant && operand.bank == 0 &&
                          operand.index == zero_register && operand.uniform == zero_uniform;
    if (is_plain && next_lanes(*warp.warp) != 0)
      has &= !multiprocessor.constants.insert(operand.offset / constant_line_bytes).second;
  }
  return has;
}

// ---- Instructions

void Simulation::issue(Multiprocessor& multiprocessor, Scheduler& scheduler, TimedWarp& warp) {
  const Instruction& instruction = next_instruction(*warp.warp);
  account(warp, now_, Why::turn);
  if (profiles_) {
    Timing::Line& line = warp.profile[&instruction];
    line.cycles += now_ - warp.issued_at, ++line.instructions;
  }
  warp.issued_at = now_;
  ++timing_.instructions;
  ++timing_.issued[static_cast<size_t>(instruction.pipe)];
  launch_.clock = static_cast<uint64_t>(now_);
  execute_next(*warp.warp, step_);
  patience_.add(1, warp.polls.waits_after(step_));

  warp.ready = now_ + std::max(1, instruction.control.stall);
  warp.ready_why = Why::latency;
  const Done done = occupy(multiprocessor, scheduler, warp, step_);
  const bool goes_on = warp.warp->can_run();
  if (instruction.pipe == Pipe::branch && goes_on &&
      next_instruction(*warp.warp).address != instruction.address + instruction_bytes &&
      now_ + card_.branch_latency > warp.ready)
    wait_until(warp, now_ + card_.branch_latency, Why::branch);
  if (instruction.opcode == Opcode::PREEXIT) warp.block->lets_begin = std::min(warp.block->lets_begin, now_);
  if (instruction.opcode == Opcode::ACQBULK && data_ready_ > warp.ready) wait_until(warp, data_ready_, Why::start);
  if (instruction.opcode == Opcode::DEPBAR) wait_for_copies(warp, instruction);
  if (instruction.opcode == Opcode::MEMBAR) wait_until(warp, now_ + 1.5 * card_.l2_latency, Why::global);
  const auto set = [&](int barrier, double time, Why why) {
    if (barrier == Control::no_barrier || time <= warp.barriers[static_cast<size_t>(barrier)]) return;
    warp.barriers[static_cast<size_t>(barrier)] = time;
    warp.barrier_why[static_cast<size_t>(barrier)] = why;
  };
  set(instruction.control.write_barrier, done.result, done.why);
  set(instruction.control.read_barrier, done.operands, done.why == Why::latency ? Why::exchange : done.why);

  const bool arrives = instruction.opcode == Opcode::BAR && step_.lanes != 0;
  if (arrives && !instruction.has(Modifier::ARV)) warp.waits = true;
  if (!goes_on) warp.waits = true;
  TimedBlock& block = *warp.block;
  if (arrives) block.barrier = std::max(now_, block.barrier) + card_.barrier_interval;
  if (warp.warp->is_done()) finish_warp(scheduler, warp);
  if (arrives || instruction.opcode == Opcode::EXIT) release_waiting(block);
  if (block.block->is_done()) end_block(block);
}

/// DEPBAR.LE SB0, 0x2: until so many groups of copies are left.
void Simulation::wait_for_copies(TimedWarp& warp, const Instruction& instruction) {
  const size_t most = instruction.operands.size() > 1 ? instruction.operands[1].immediate : 0;
  if (warp.copies.size() <= most) return;
  const double there = warp.copies[warp.copies.size() - 1 - most];
  if (there > warp.ready) wait_until(warp, there, Why::global);
}

void Simulation::finish_warp(Scheduler& scheduler, TimedWarp& warp) {
  end_ = std::max(end_, now_ + 1);
  timing_.longest_warp = std::max(timing_.longest_warp, warp.warp->num_executed);
  scheduler.warps.erase(std::find(scheduler.warps.begin(), scheduler.warps.end(), &warp));
  if (!profiles_ || warp.issued_at <= last_issue_of_last_warp_) return;
  last_issue_of_last_warp_ = warp.issued_at;
  timing_.last_warp.clear();
  for (const auto& [instruction, line] : warp.profile) {
    Timing::Line& sum = timing_.last_warp[place_of(*instruction)];
    sum.cycles += line.cycles, sum.instructions += line.instructions;
  }
}

Simulation::Done Simulation::occupy(Multiprocessor& multiprocessor, Scheduler& scheduler, TimedWarp& warp,
                                    const Step& step) {
  constexpr double fixed_latency = 6, tensor_latency = 16, fp64_interval = 16, fp64_latency = 48;
  const Pipe pipe = step.instruction->pipe;
  double& taken = scheduler.pipes[static_cast<size_t>(pipe)];
  Done done{now_ + fixed_latency, now_ + fixed_latency};
  switch (pipe) {
    case Pipe::alu:
      taken = now_ + 2;
      return done;
    case Pipe::fma:
    case Pipe::half:
      taken = now_ + (step.instruction->opcode == Opcode::IMAD ? 2 : card_.fma_interval);
      return done;
    case Pipe::tensor:
      taken = now_ + card_.tensor_interval * (step.instruction->has(Modifier::M16816) ? 2 : 1);
      done.result = now_ + tensor_latency;
      return done;
    case Pipe::function: {
      const double begin = std::max(now_, taken);
      taken = begin + card_.function_interval;
      return {begin + card_.function_latency, begin + fixed_latency, Why::function};
    }
    case Pipe::fp64: {
      const double begin = std::max(now_, multiprocessor.fp64);
      multiprocessor.fp64 = begin + fp64_interval;
      return {begin + fp64_latency, now_ + fixed_latency, Why::function};
    }
    case Pipe::memory:
      taken = now_ + 2;
      return access(multiprocessor, warp, step);
    case Pipe::branch:
      return done;
  }
  return done;
}

Simulation::Done Simulation::access(Multiprocessor& multiprocessor, TimedWarp& warp, const Step& step) {
  const double begin = std::max(now_, multiprocessor.memory_pipe);
  switch (step.instruction->opcode) {
    case Opcode::SHFL:
      multiprocessor.memory_pipe = begin + card_.memory_interval;
      return {begin + card_.shuffle_latency, begin + 8, Why::exchange};
    case Opcode::S2R:
    case Opcode::S2UR:
    case Opcode::R2UR:
    case Opcode::LDC:
    case Opcode::MATCH:
    case Opcode::MOVM:
    case Opcode::REDUX:
      multiprocessor.memory_pipe = begin + card_.memory_interval;
      return {begin + card_.special_latency, begin + 8, Why::exchange};
    case Opcode::LDS:
    case Opcode::STS:
    case Opcode::ATOMS:
    case Opcode::LDSM:
      return access_shared(multiprocessor, step);
    case Opcode::LDGSTS: {
      const Done done = access_global(multiprocessor, warp, step);
      warp.copied = std::max(warp.copied, done.result);
      return done;
    }
    case Opcode::LDGDEPBAR:
      warp.copies.push_back(std::max(warp.copied, warp.copies.empty() ? 0 : warp.copies.back()));
      return {std::max(warp.copied, now_), now_, Why::global};
    default:
      return access_global(multiprocessor, warp, step);
  }
}

Simulation::Done Simulation::access_shared(Multiprocessor& multiprocessor, const Step& step) {
  const Instruction& instruction = *step.instruction;
  const bool is_atomic = instruction.opcode == Opcode::ATOMS;
  int times = 1;
  if (step.num_addresses > 0)
    times = instruction.opcode == Opcode::LDSM
                ? std::max(1, step.num_addresses / 8)
                : wavefronts(step.addresses.data(), step.num_addresses, instruction.width);
  timing_.wavefronts += static_cast<uint64_t>(times);
  const double begin = std::max(now_, multiprocessor.memory_pipe), more = card_.memory_interval * (times - 1);
  multiprocessor.memory_pipe = begin + card_.memory_interval * times;
  return {begin + card_.shared_latency + more + (is_atomic ? 3 : 0), begin + 8 + more, Why::shared};
}

Simulation::Done Simulation::access_global(Multiprocessor& multiprocessor, const TimedWarp& warp, const Step& step) {
  const Instruction& instruction = *step.instruction;
  const Opcode opcode = instruction.opcode;
  const bool is_local = opcode == Opcode::LDL || opcode == Opcode::STL;
  const bool loads = opcode == Opcode::LDG || opcode == Opcode::LDL || opcode == Opcode::LD || opcode == Opcode::LDGSTS;
  const bool is_atomic =
      opcode == Opcode::ATOMG || opcode == Opcode::ATOM || opcode == Opcode::RED || opcode == Opcode::REDG;
  const bool passes_l1 = instruction.has(Modifier::GPU) ||
                         (instruction.has(Modifier::SYS) && instruction.has(Modifier::STRONG)) || is_atomic ||
                         instruction.has(Modifier::BYPASS);
  std::array<uint64_t, warp_size> addresses = step.addresses;
  if (is_local)  // a word of all lanes in a line
    for (int i = 0; i < step.num_addresses; ++i) {
      constexpr uint64_t window = uint64_t{0x6} << 44, bytes_of_warp = 0x100000;
      const uint64_t number = warp.warp->block->number * warps_per_block_ + static_cast<uint64_t>(warp.warp->index);
      uint64_t& address = addresses[static_cast<size_t>(i)];
      address = window + number * bytes_of_warp + address / 4 * 128 + static_cast<uint64_t>(i) * 4;
    }
  find_sectors(addresses.data(), step.num_addresses, instruction.width, sectors_);
  const auto num_sectors = static_cast<int>(sectors_.size());
  const double bytes_at_once = 128 / card_.memory_interval;  // 64 of Turing's
  const double cycles = std::max({card_.memory_interval, static_cast<double>(count_lines(sectors_)),
                                  std::ceil(num_sectors * 32 / bytes_at_once),
                                  std::floor(step.num_addresses * instruction.width / bytes_at_once)});
  const double begin = std::max(now_, multiprocessor.memory_pipe);
  multiprocessor.memory_pipe = begin + cycles;
  timing_.sectors += static_cast<uint64_t>(num_sectors);
  double result = step.num_addresses == 0 ? begin + 6 : begin + card_.l1_latency;
  for (const uint64_t sector : sectors_) {
    if (loads && !passes_l1) {
      double& there = multiprocessor.l1.line(sector / 4).there[sector % 4];
      if (there < 0) {
        there = second_level_.ask(sector, begin + cycles, false, multiprocessor.l2_port, timing_);
      } else {
        ++timing_.l1_hits;
      }
      result = std::max(result, there);
    } else {
      const double there =
          second_level_.ask(sector, begin + cycles, !loads && !is_atomic, multiprocessor.l2_port, timing_);
      if (loads || is_atomic) result = std::max(result, there + (is_atomic ? 20 : 0));
    }
  }
  if (!loads && !is_atomic) end_ = std::max(end_, begin + cycles);
  return {result, begin + cycles + 10, Why::global};
}

}  // namespace t4
