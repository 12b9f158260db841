// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a handler sees: an instruction, the warp, and the lanes that execute it; operands are read for all lanes at
/// once and written for these.

#include <cstring>

#include "execute/warp.hpp"

namespace t4 {

struct Context {
  Warp& warp;
  const Instruction& instruction;
  Mask group;  ///< the lanes that are here
  Mask lanes;  ///< those of them whose guard holds
  Step& step;

  const Operand& operand(size_t i) const {
    if (i >= instruction.operands.size()) fail("has too few operands");
    return instruction.operands[i];
  }
  size_t num_operands() const { return instruction.operands.size(); }
  bool has(Modifier modifier) const { return instruction.has(modifier); }

  /// Names the instruction, its place, and the first lane.
  [[noreturn]] void fail(const std::string& why) const { fail(why, lanes == 0 ? 0 : first_lane(lanes)); }
  [[noreturn]] void fail(const std::string& why, int lane) const;

  // Values. `plus` counts registers or words from the operand's.
  Lanes bits(const Operand& operand, int plus = 0) const;
  Lanes64 bits64(const Operand& operand) const;
  /// With ~, | | and - of integers.
  Lanes integers(const Operand& operand) const;
  Lanes64 integers64(const Operand& operand) const;
  Mask predicate(const Operand& operand) const;
  uint32_t bits_of_lane(const Operand& operand, int lane) const { return bits(operand)[static_cast<size_t>(lane)]; }

  // Results, for `lanes`. What goes to RZ or PT is gone.
  void write(const Operand& operand, const Lanes& values, int plus = 0);
  void write64(const Operand& operand, const Lanes64& values);
  void write(const Operand& operand, Mask values);

  /// The place in a window of memory, or where there is none the global address. Noted in the step.
  uint64_t shared_address(const Operand& operand, int lane) const;
  uint64_t global_address(const Operand& operand, int lane) const;
  void note(uint64_t address) { step.addresses[static_cast<size_t>(step.num_addresses++)] = address; }
};

/// Windows of addresses that generic accesses find shared and local memory in.
inline constexpr uint64_t shared_window = uint64_t{0x71} << 56, local_window = uint64_t{0x72} << 56;

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline double double_of(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <class Function>
Lanes map(const Function& function) {
  Lanes result;
  for (size_t lane = 0; lane < warp_size; ++lane) result[lane] = function(lane);
  return result;
}
template <class Function>
Lanes64 map64(const Function& function) {
  Lanes64 result;
  for (size_t lane = 0; lane < warp_size; ++lane) result[lane] = function(lane);
  return result;
}
/// Of whether something holds for each lane.
template <class Function>
Mask mask_of(const Function& function) {
  Mask result = 0;
  for (size_t lane = 0; lane < warp_size; ++lane) result |= static_cast<Mask>(bool(function(lane))) << lane;
  return result;
}

/// AND, OR or XOR with the last predicate of a comparison.
inline Mask combine(const Context& c, Mask values, Mask with) {
  return c.has(Modifier::OR) ? values | with : c.has(Modifier::XOR) ? values ^ with : values & with;
}
/// The result of a comparison, and its opposite, each combined: P0, P1 of ISETP.GE.AND P0, P1, R0, R1, P2.
inline void write_comparison(Context& c, Mask values, const Operand& with) {
  const Mask last = c.predicate(with);
  c.write(c.operand(0), combine(c, values, last));
  c.write(c.operand(1), combine(c, ~values, last));
}

}  // namespace t4
