// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shared memory of a block. No constructor runs: the block writes all values.

#include <type_traits>

#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// One `Storage` per block, at most 48 KB in all; every call with the same type gives the same one. A kernel declares
/// one struct of its own and calls this once.
template <class Storage>
WARPRANK_DEVICE Storage& static_shared(Here here = Here::current()) {
  static_assert(std::is_trivially_copyable_v<Storage>, "no constructor runs in shared memory");
  return backend::static_shared<Storage>(here);
}

/// The bytes that the launch asked for, aligned to 128.
template <class Value>
WARPRANK_DEVICE Value* dynamic_shared(Here here = Here::current()) {
  static_assert(std::is_trivially_copyable_v<Value>, "no constructor runs in shared memory");
  return static_cast<Value*>(backend::dynamic_shared(here));
}

}}}  // namespace warprank::v0::device
