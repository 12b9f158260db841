// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the card has, as the runtime says it.

#include <cstdint>

#include "execute/resident.hpp"

namespace t4 {

inline constexpr uint64_t memory_bytes = uint64_t{15} << 30;

int num_multiprocessors();
Room room();

}  // namespace t4
