// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "program/instruction.hpp"

namespace t4 {

/// Sets what executes an instruction: nothing where its operation or one of its modifiers is not known.
void find_handler(Instruction& instruction);

// By kind; null for the operations of other kinds.
Handler integer_handler(Opcode opcode);
Handler bits_handler(Opcode opcode);
Handler single_handler(Opcode opcode);
Handler half_handler(Opcode opcode);
Handler double_handler(Opcode opcode);
Handler convert_handler(Opcode opcode);
Handler move_handler(Opcode opcode);
Handler warp_handler(Opcode opcode);
Handler memory_handler(Opcode opcode);
Handler atomic_handler(Opcode opcode);
Handler tensor_handler(Opcode opcode);
Handler control_handler(Opcode opcode);

}  // namespace t4
