// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What look-ups and updates of hash tables on a device are told, and what they answer.

#include <cstdint>

#include "warprank/core/device_count.hpp"

namespace warprank { inline namespace v0 { namespace hash_table {

/// A batch of keys in device memory.
struct Keys {
  const int64_t* data = nullptr;  ///< [count.capacity]
  DeviceCount count;
};

/// What became of one key of an update.
enum class Status : uint8_t {
  inserted,
  updated,  ///< the key was there; its row is the new one
  erased,
  absent,    ///< there was no such key to erase
  full,      ///< nothing changed: no bucket of the key has room
  deferred,  ///< nothing changed: what could be used may still be read, or others were at work; try again later
};

/// When an update happens. What it retires may be used again by updates whose `safe` is not below its `current`.
struct Epoch {
  uint64_t current = 0;  ///< of this update: >= 1, one higher for each
  uint64_t safe = 0;     ///< the latest epoch whose retired rows nobody reads any more
};

}}}  // namespace warprank::v0::hash_table
