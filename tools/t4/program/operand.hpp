// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "program/instruction.hpp"

namespace t4 {

/// What nvdisasm writes for an operand. `encoding` has the bits of an immediate that is written as a decimal number.
/// Throws std::runtime_error for a bank without a number.
Operand parse_operand(std::string text, uint64_t encoding);

}  // namespace t4
