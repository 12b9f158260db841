// SPDX-License-Identifier: Apache-2.0
//
// Branches, convergence, barriers, the end. These say themselves where the lanes of the group go on.

#include "execute/context.hpp"
#include "execute/divergence.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

using Kind = Operand::Kind;

int here(const Context& c) { return static_cast<int>(c.instruction.address / instruction_bytes); }

/// The lanes whose further predicates hold, too.
Mask with_predicates(const Context& c) {
  Mask lanes = c.lanes;
  for (const Operand& operand : c.instruction.operands)
    if (operand.is_predicate()) lanes &= c.predicate(operand);
  return lanes;
}
const Operand* find(const Context& c, Kind kind) {
  for (const Operand& operand : c.instruction.operands)
    if (operand.kind == kind) return &operand;
  return nullptr;
}
uint32_t barrier_of(const Context& c) {
  const Operand* barrier = find(c, Kind::barrier);
  if (barrier == nullptr || barrier->index >= Warp::num_barriers) c.fail("the barrier is not known");
  return static_cast<uint32_t>(barrier->index);
}
void others_go_on(Context& c, Mask lanes) { go_on(c.warp, c.group & ~lanes, here(c) + 1); }

// BRA target; CALL.REL.NOINC target. .DIV: where some lanes are elsewhere; .CONV: where none are.
void branch(Context& c) {
  const Operand* label = find(c, Kind::label);
  if (label == nullptr) c.fail("the target is not known");
  Mask lanes = with_predicates(c);
  const bool is_whole = c.group == c.warp.alive;
  if ((c.has(Modifier::DIV) && is_whole) || (c.has(Modifier::CONV) && !is_whole)) lanes = 0;
  others_go_on(c, lanes);
  go_on(c.warp, lanes, label->target);
}
/// To what a register says, in bytes from somewhere.
void jump(Context& c, int64_t from) {
  const Operand* base = find(c, Kind::reg);
  if (base == nullptr) c.fail("the target is not known");
  const Lanes targets = c.bits(*base);
  others_go_on(c, c.lanes);
  for_each_lane(c.lanes, [&](int lane) {
    const int64_t target = from + static_cast<int32_t>(targets[static_cast<size_t>(lane)]);
    go_on(c.warp, Mask{1} << lane, static_cast<int>(target / instruction_bytes));
  });
}
// RET.REL.NODEC R4 function: from the function's beginning.
void ret(Context& c) { jump(c, 0); }
// BRX R4 -0x120: from the next instruction.
void brx(Context& c) { jump(c, c.operand(0).offset + c.instruction.address + instruction_bytes); }

void exit(Context& c) {
  const Mask lanes = with_predicates(c);
  others_go_on(c, lanes);
  end_threads(c.warp, lanes);
}

// BSSY B0, where: these lanes are to meet at BSYNC B0.
void bssy(Context& c) {
  c.warp.barriers[barrier_of(c)] = c.group;
  others_go_on(c, 0);
}
void bsync(Context& c) {
  others_go_on(c, c.lanes);
  park(c.warp, Parked::Why::convergence, barrier_of(c), c.lanes, here(c));
  release_converged(c.warp);
}
// BREAK B0: these lanes will not come.
void break_from(Context& c) {
  others_go_on(c, 0);
  c.warp.barriers[barrier_of(c)] &= ~with_predicates(c);
  release_converged(c.warp);
}
// BMOV.32.CLEAR R0, B0 and BMOV.32 B0, R0
void bmov(Context& c) {
  others_go_on(c, 0);
  if (c.lanes == 0) return;
  Mask& barrier = c.warp.barriers[barrier_of(c)];
  if (c.operand(0).kind == Kind::barrier) {
    barrier = c.bits_of_lane(c.operand(1), first_lane(c.lanes));
  } else {
    c.write(c.operand(0), map([&](size_t) { return barrier; }));
    if (c.has(Modifier::CLEAR)) barrier = 0;
  }
  release_converged(c.warp);
}

// WARPSYNC 0xff, R0 or .ALL: wait for these lanes, wherever they come. .COLLECTIVE R0, where: for what follows until
// ENDCOLLECTIVE, behind which they go on.
void warpsync(Context& c) {
  others_go_on(c, c.lanes);
  const Operand* mask = nullptr;
  for (const Operand& operand : c.instruction.operands)
    if (operand.is_register() || operand.kind == Kind::immediate) mask = &operand;
  const Operand* label = c.has(Modifier::COLLECTIVE) ? nullptr : find(c, Kind::label);
  const int at = label == nullptr ? here(c) : label->target - 1;
  Lanes who{};
  if (mask == nullptr || c.has(Modifier::ALL)) {
    who.fill(~Mask{0});
  } else {
    who = c.bits(*mask);
  }
  for (Mask rest = c.lanes; rest != 0;) {
    const Mask wanted = who[static_cast<size_t>(first_lane(rest))];
    const Mask same = mask_of([&](size_t l) { return who[l] == wanted; }) & rest;
    park(c.warp, Parked::Why::warp, wanted & c.warp.all, same, at);
    rest &= ~same;
  }
  release_converged(c.warp);
}

// BAR.SYNC 0x0; BAR.SYNC 0x1, 0x40; BAR.ARV 0x1, 0x40; BAR.RED.POPC 0x0, P0
void bar(Context& c) {
  if (c.lanes == 0) return others_go_on(c, 0);
  uint32_t number = 0;
  int expected = 0;
  const Operand* with = nullptr;
  bool has_number = false;
  for (const Operand& operand : c.instruction.operands) {
    if (operand.is_predicate()) {
      with = &operand;
      continue;
    }
    const uint32_t value = c.bits_of_lane(operand, first_lane(c.lanes));
    if (has_number) {
      expected = static_cast<int>(value);
    } else {
      number = value % Warp::num_barriers;
    }
    has_number = true;
  }
  Block& block = *c.warp.block;
  Block::Barrier& barrier = block.barriers[number];
  if (barrier.arrived == 0) barrier.reduced = c.has(Modifier::AND) ? 1 : 0;
  if (c.has(Modifier::RED)) {
    const Mask yes = (with == nullptr ? ~Mask{0} : c.predicate(*with)) & c.lanes;
    if (c.has(Modifier::POPC)) {
      barrier.reduced += static_cast<uint32_t>(count_lanes(yes));
    } else if (c.has(Modifier::AND)) {
      barrier.reduced &= yes == c.lanes;
    } else {
      barrier.reduced |= yes != 0;
    }
  }
  if (c.has(Modifier::ARV)) {
    others_go_on(c, 0);
  } else {
    others_go_on(c, c.lanes);
    park(c.warp, Parked::Why::block, number, c.lanes, here(c));
  }
  arrive(block, number, count_lanes(c.lanes), expected);
  release_barriers(block);
}

// B2R.RESULT R0, P0: what the last barrier with a reduction gave.
void b2r(Context& c) {
  others_go_on(c, 0);
  if (c.lanes == 0) return;
  for (const Operand& operand : c.instruction.operands) {
    if (operand.is_predicate()) c.write(operand, c.warp.reduced != 0 ? ~Mask{0} : 0);
    if (operand.kind == Kind::reg) c.write(operand, map([&](size_t) { return c.warp.reduced; }));
  }
}

// BPT.TRAP: an assertion of the kernel's.
void trap(Context& c) {
  if (c.lanes == 0) return others_go_on(c, 0);
  c.fail("the kernel has trapped");
}
void nothing(Context& c) { others_go_on(c, 0); }

}  // namespace

Handler control_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::BRA:
    case Opcode::CALL:
      return branch;
    case Opcode::RET:
      return ret;
    case Opcode::BRX:
      return brx;
    case Opcode::EXIT:
    case Opcode::KILL:
      return exit;
    case Opcode::BSSY:
      return bssy;
    case Opcode::BSYNC:
      return bsync;
    case Opcode::BREAK:
      return break_from;
    case Opcode::BMOV:
      return bmov;
    case Opcode::WARPSYNC:
      return warpsync;
    case Opcode::BAR:
      return bar;
    case Opcode::B2R:
      return b2r;
    case Opcode::BPT:
      return trap;
    case Opcode::NOP:
    case Opcode::YIELD:
    case Opcode::NANOSLEEP:
    case Opcode::MEMBAR:
    case Opcode::ERRBAR:
    case Opcode::DEPBAR:
    case Opcode::CCTL:
    case Opcode::CGAERRBAR:
    case Opcode::ENDCOLLECTIVE:
    case Opcode::LDGDEPBAR:
    case Opcode::PREEXIT:
    case Opcode::ACQBULK:
      return nothing;
    default:
      return nullptr;
  }
}

}  // namespace t4
