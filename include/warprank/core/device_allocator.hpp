// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The source of device memory, for a service that has a pool of its own.

#include <cstdint>
#include <functional>

namespace warprank { inline namespace v0 {

/// Takes the place of cudaMalloc and cudaFree. The device is the calling thread's current one; several threads may call
/// at once.
struct DeviceAllocator {
  /// `bytes` > 0 of memory aligned to 256 bytes that every stream of the device can use at once; null if there is none,
  /// or an exception with the reason.
  std::function<void*(int64_t bytes, int device)> allocate;
  /// Called when all earlier work on the device has ended. Throws nothing.
  std::function<void(void* memory, int64_t bytes, int device)> deallocate;
  /// The bytes that it could give; swaps and contexts compare their needs with them before they allocate. Null: the
  /// free memory of the device, which is 0 if a pool has taken all of it.
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
