// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One instruction of sm_75, decoded from nvdisasm's text and the control code of its encoding.

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "program/opcode.hpp"
#include "program/pipes.hpp"

namespace t4 {

inline constexpr int zero_register = 255, zero_uniform = 63, true_predicate = 7;
inline constexpr uint32_t instruction_bytes = 16;

struct Operand {
  enum class Kind : uint8_t {
    reg,
    uniform,
    predicate,
    uniform_predicate,
    immediate,
    constant,
    memory,
    label,
    special,
    barrier,
    all_predicates
  };
  /// Which half of a register a packed operation takes twice; `both`: each its own; `single`: the FP32 value.
  enum class Half : uint8_t { both, low, high, single };

  Kind kind = Kind::immediate;
  Half half = Half::both;
  bool negative = false, absolute = false, inverted = false;
  bool address_is_32_bits = false, address_is_64_bits = false;
  int index = zero_register;   ///< of the register, predicate or barrier; of the base in memory and constant banks
  int uniform = zero_uniform;  ///< added to the address
  int scale = 1;               ///< of the base
  int part = -1;               ///< byte 0 to 3 of a register; 4, 5: its halves
  int bank = 0;
  int64_t offset = 0;  ///< in bytes
  uint32_t immediate = 0;
  int target = -1;   ///< of a label: index of the instruction
  std::string text;  ///< as written, without what is said above

  bool is_predicate() const { return kind == Kind::predicate || kind == Kind::uniform_predicate; }
  bool is_register() const { return kind == Kind::reg || kind == Kind::uniform; }
};

/// What ptxas tells the card's scheduler.
struct Control {
  static constexpr int no_barrier = 7;
  int stall = 1;                   ///< cycles until the warp may issue again
  int write_barrier = no_barrier;  ///< of six, done when the result is there
  int read_barrier = no_barrier;   ///< done when the operands are read
  unsigned waits = 0;              ///< for which of the six, a bit each
};

struct Context;
using Handler = void (*)(Context&);

struct Instruction {
  uint32_t address = 0;  ///< in bytes, from the beginning of the function
  Opcode opcode = Opcode::unknown;
  std::vector<Modifier> modifiers;  ///< in order
  std::bitset<num_modifiers> has_modifier;
  std::vector<Operand> operands;
  int guard = true_predicate;
  bool guard_negative = false, guard_uniform = false;
  int width = 4;  ///< bytes of an access to memory
  Control control;
  uint64_t encoding = 0;
  std::string text;
  const std::string* file = nullptr;  ///< of the source, where it was compiled with -lineinfo
  int line = 0;
  Handler handler = nullptr;  ///< null: not known
  Pipe pipe = Pipe::alu;      ///< what executes it on the card
  bool is_control = false;    ///< says itself where lanes go on

  bool has(Modifier modifier) const { return has_modifier[static_cast<size_t>(modifier)]; }
  /// The first operand in memory. Null: none.
  const Operand* memory() const {
    for (const Operand& operand : operands)
      if (operand.kind == Operand::Kind::memory) return &operand;
    return nullptr;
  }
};

}  // namespace t4
