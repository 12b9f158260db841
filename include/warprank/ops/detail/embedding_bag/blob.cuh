// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What kernels read out of a request's blob.

#include <cstdint>

#include "warprank/device/memory.hpp"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// A position that a blob states.
WARPRANK_DEVICE uint32_t read_entry(const unsigned char* blob, uint32_t entry) {
  return device::load_constant(reinterpret_cast<const uint32_t*>(blob + entry));
}
template <class Value>
WARPRANK_DEVICE const Value* section(const unsigned char* blob, uint32_t position) {
  return reinterpret_cast<const Value*>(blob + position);
}

/// Ids lie end to end, in 64 bits or, where they are narrow, in 32 with a sign.
WARPRANK_DEVICE const unsigned char* address_of_id(const unsigned char* ids, int64_t i, bool is_narrow) {
  return ids + (i << (is_narrow ? 2 : 3));
}
WARPRANK_DEVICE int64_t load_id(const unsigned char* ids, int64_t i, bool is_narrow) {
  const unsigned char* id = address_of_id(ids, i, is_narrow);
  if (is_narrow) return device::load_constant(reinterpret_cast<const int32_t*>(id));
  return device::load_constant(reinterpret_cast<const int64_t*>(id));
}

}}}  // namespace warprank::v0::detail::embedding_bag
