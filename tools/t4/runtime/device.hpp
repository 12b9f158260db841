// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the card has, as the runtime says it.

#include <cstdint>

#include "execute/resident.hpp"

namespace t4 {

inline constexpr uint64_t memory_bytes = uint64_t{15} << 30;

int num_multiprocessors();
/// Of the code that is executed, as 75.
int capability();
Room room();

}  // namespace t4
