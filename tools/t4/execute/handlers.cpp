// SPDX-License-Identifier: Apache-2.0
#include "execute/handlers.hpp"

namespace t4 {

void find_handler(Instruction& instruction) {
  instruction.is_control = control_handler(instruction.opcode) != nullptr;
  instruction.handler = nullptr;
  if (instruction.has(Modifier::unknown)) return;
  for (const auto find :
       {integer_handler, bits_handler, single_handler, half_handler, double_handler, convert_handler, move_handler,
        warp_handler, memory_handler, atomic_handler, tensor_handler, control_handler}) {
    instruction.handler = find(instruction.opcode);
    if (instruction.handler != nullptr) return;
  }
}

}  // namespace t4
