// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank::test_support {

/// The address of memory that overlaps no array of a test, however large it claims to be, and is not accessed.
template <class Value>
Value* far_away() {
  return reinterpret_cast<Value*>(uintptr_t{1} << 46);
}

}  // namespace warprank::test_support
