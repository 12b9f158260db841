// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arguments and results of look-ups and updates of hash tables on a device.

#include <cstdint>

#include "warprank/core/device_count.hpp"

namespace warprank { inline namespace v0 { namespace hash_table {

/// A batch of keys in device memory.
struct Keys {
  const int64_t* data = nullptr;  ///< [count.capacity]
  DeviceCount count;
};

/// The result of an update for one key.
enum class Status : uint8_t {
  inserted,
  updated,  ///< the key was there; its row is the new one
  erased,
  absent,    ///< there was no such key to erase
  full,      ///< nothing changed: no bucket of the key has room
  deferred,  ///< nothing changed: free memory may still be read, or others were at work; try again later
};

/// The time of an update. Updates whose `safe` is not below its `current` may reuse the memory that it retires.
struct Epoch {
  uint64_t current = 0;  ///< of this update: >= 1, one higher for each
  uint64_t safe = 0;     ///< the latest epoch whose retired rows no reader reads any more
};

}}}  // namespace warprank::v0::hash_table
