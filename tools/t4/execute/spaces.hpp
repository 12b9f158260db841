// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where accesses go: global, shared and local memory, and generic addresses, which may be each of these.

#include "execute/context.hpp"

namespace t4 {

enum class Space : uint8_t { global, shared, local, generic };

/// The space that an address with a window is in; the address becomes one within it.
Space resolve(Space space, uint64_t& address);

/// The bytes of an access. Fails where they are out of bounds or not aligned to their number.
uint8_t* access(Context& c, Space space, uint64_t address, int bytes, int lane);

/// The address of an access in the instruction's space, noted in the step.
uint64_t address_of(Context& c, const Operand& operand, Space space, int lane);

}  // namespace t4
