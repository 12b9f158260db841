// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Several devices: memory belongs to the one that was current when it was allocated, or to several in stripes
/// (device/sharded_memory.hpp), and kernels of others must not touch it. Streams and events belong to a device, too.
/// What devices do is ordered by events, or by what is released and acquired in the scope of the system.

#include <cstdint>
#include <string>

#include "simt/machine.hpp"
#include "simt/memory.hpp"

namespace simt {

/// Whether devices can access each other's memory where they are told to; they can after a reset.
void allow_peer_access(bool allowed);
/// What a device holds now.
int64_t allocated_bytes(int device);

/// Whether the thread's device may use memory that kernels may use: its own, or the host's.
inline bool may_use(const Thread& thread, const void* address) {
  if (Machine::instance().config().devices < 2) return true;
  const DeviceMemory& memory = DeviceMemory::instance();
  return !memory.reserved(address) ||
         (memory.devices_of(address) & DeviceMemory::bit_of(thread.block->operation->device)) != 0;
}
inline std::string text_of_other_device(const Thread& thread) {
  return "memory of another device, which device " + std::to_string(thread.block->operation->device) +
         " may not access";
}

}  // namespace simt
