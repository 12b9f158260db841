// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "program/opcode.hpp"

namespace t4 {

/// What executes an operation.
enum class Pipe : uint8_t { alu, fma, half, function, memory, tensor, fp64, branch };
inline constexpr int num_pipes = 8;

Pipe pipe_of(Opcode opcode);

}  // namespace t4
