// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What kernels read out of a request's blob.

#include <cstdint>

#include "warprank/device/memory.hpp"

namespace warprank::detail::embedding_bag {

/// A position that a blob states.
WARPRANK_DEVICE uint32_t read_entry(const unsigned char* blob, uint32_t entry) {
  return device::load_constant(reinterpret_cast<const uint32_t*>(blob + entry));
}
template <class Value>
WARPRANK_DEVICE const Value* section(const unsigned char* blob, uint32_t position) {
  return reinterpret_cast<const Value*>(blob + position);
}

}  // namespace warprank::detail::embedding_bag
