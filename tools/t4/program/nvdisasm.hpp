// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "program/disassembly.hpp"

namespace t4 {

/// The code of a cubin, by the nvdisasm of WARPRANK_NVDISASM, of PATH or of /usr/local/cuda. Throws std::runtime_error
/// that says what is missing.
Disassembly disassemble(const std::vector<uint8_t>& cubin);

}  // namespace t4
