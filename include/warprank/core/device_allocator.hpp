// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where the memory of devices comes from, for a service that has a pool of its own.

#include <cstdint>
#include <functional>

namespace warprank { inline namespace v0 {

/// Takes the place of cudaMalloc and cudaFree. The device is the calling thread's current one; several threads may call
/// at once.
struct DeviceAllocator {
  /// `bytes` > 0 of memory aligned to 256 bytes that every stream of the device can use at once; null when there is
  /// none, or an exception that says why.
  std::function<void*(int64_t bytes, int device)> allocate;
  /// What was queued on the device by then has ended. Throws nothing.
  std::function<void(void* memory, int64_t bytes, int device)> deallocate;
  /// How much it could give, which swaps and contexts are held against before they allocate. Null: what is free on the
  /// device, which a pool that has taken it all makes 0.
  std::function<int64_t(int device)> free_bytes = nullptr;
};

/// An allocator that asks a resource with `void* allocate(size_t bytes, size_t alignment)` and
/// `void deallocate(void*, size_t bytes, size_t alignment)`, as std::pmr and cuda::mr have them. The resource lives
/// longer than everything that was allocated.
template <class Resource>
DeviceAllocator allocator_of(Resource& resource) {
  constexpr size_t alignment = 256;
  return {[&resource](int64_t bytes, int) { return resource.allocate(static_cast<size_t>(bytes), alignment); },
          [&resource](void* memory, int64_t bytes, int) {
            resource.deallocate(memory, static_cast<size_t>(bytes), alignment);
          }};
}

}}  // namespace warprank::v0
