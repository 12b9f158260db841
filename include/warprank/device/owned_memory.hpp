// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Memory of the current device, and memory of the host that devices copy from and to.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/device_allocator.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/host_allocator.hpp"
#include "warprank/device/devices.hpp"

namespace warprank { inline namespace v0 { namespace device {

namespace detail {

WARPRANK_HIDDEN inline cuda_error no_pinned_memory(const std::string& what, int64_t bytes) {
  constexpr int out_of_memory = 2;
  return {what + ": expected " + std::to_string(bytes) + " bytes of pinned memory, got none", out_of_memory,
          "cudaErrorMemoryAllocation"};
}

/// The allocators by device; null: the runtime allocates.
struct DeviceAllocators {
  std::mutex mutex;
  std::map<int, std::shared_ptr<const DeviceAllocator>> of;
};
WARPRANK_HIDDEN inline DeviceAllocators& device_allocators() {
  static auto* const all = new DeviceAllocators;  // for memory that is released when the process ends
  return *all;
}
WARPRANK_HIDDEN inline std::shared_ptr<const DeviceAllocator> device_allocator(int device) {
  DeviceAllocators& all = device_allocators();
  const std::lock_guard lock(all.mutex);
  const auto it = all.of.find(device);
  return it == all.of.end() ? nullptr : it->second;
}

}  // namespace detail

/// From now on, new DeviceMemory of the device comes from the allocator, and goes back to it even if another one is set
/// by then. Without `allocate` the runtime allocates again. Throws invalid_argument for an allocator that has only one
/// of allocate and deallocate.
WARPRANK_HIDDEN inline void set_allocator(int device, DeviceAllocator allocator) {
  const bool has_allocate = allocator.allocate != nullptr, has_deallocate = allocator.deallocate != nullptr;
  if (has_allocate != has_deallocate)
    raise(invalid_argument("allocator of device " + std::to_string(device), "allocate and deallocate, or neither",
                           has_allocate ? "no deallocate" : "no allocate"));
  detail::DeviceAllocators& all = detail::device_allocators();
  const std::lock_guard lock(all.mutex);
  all.of[device] = has_allocate ? std::make_shared<const DeviceAllocator>(std::move(allocator)) : nullptr;
}

/// The bytes that could be allocated on the device now: by its allocator if that has `free_bytes`, else by the runtime.
WARPRANK_HIDDEN inline int64_t free_bytes(int device) {
  const std::shared_ptr<const DeviceAllocator> allocator = detail::device_allocator(device);
  const DeviceGuard current(device);
  if (allocator != nullptr && allocator->free_bytes) return allocator->free_bytes(device);
  return backend::runtime::free_and_total_bytes().first;
}

/// Memory of the current device, uninitialised, aligned to 256 bytes, from the allocator that is set for the device,
/// else from the runtime. Its destructor releases it, which waits for the work that is queued on the device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// `what` names the user of the memory in messages. Throws out_of_device_memory, cuda_error if there is no device,
  /// invalid_argument for less than 0 bytes and for misaligned memory of an allocator, and the allocator's exceptions.
  /// For 0 bytes data() is null.
  DeviceMemory(int64_t bytes, const std::string& what) {
    if (bytes < 0) raise(invalid_argument(what, "0 or more bytes of device memory", std::to_string(bytes)));
    if (bytes == 0) return;
    const int device = backend::runtime::current_device();
    Release release{detail::device_allocator(device), bytes, device};
    void* const data =
        release.allocator ? release.allocator->allocate(bytes, device) : backend::runtime::allocate(bytes);
    const bool is_of_allocator = release.allocator != nullptr;
    data_ = {data, std::move(release)};
    if (data_ == nullptr) {
      const int64_t total_bytes = backend::runtime::free_and_total_bytes().second;
      raise(out_of_device_memory(is_of_allocator ? what + ", of the device's allocator" : what, bytes,
                                 free_bytes(device), total_bytes));
    }
    if (const uintptr_t beyond = reinterpret_cast<uintptr_t>(data) % 256; beyond != 0)
      raise(invalid_argument(what + ", of the device's allocator", "memory that is aligned to 256 bytes",
                             "an address " + std::to_string(beyond) + " bytes behind"));
  }

  void* data() const { return data_.get(); }
  int64_t bytes() const { return data_ == nullptr ? 0 : data_.get_deleter().bytes; }

 private:
  struct Release {
    std::shared_ptr<const DeviceAllocator> allocator;
    int64_t bytes;
    int device;

    void operator()(void* data) const {
      if (allocator == nullptr) return backend::runtime::release(data);
      backend::runtime::finish(device, [&] { allocator->deallocate(data, bytes, device); });
    }
  };
  std::unique_ptr<void, Release> data_;
};

/// Pinned memory of the host: devices copy from and to it while the host does other work. The machine has little of it.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  /// `what` names the user of the memory in messages. Throws cuda_error, and invalid_argument for less than 0 bytes.
  /// For 0 bytes data() is null.
  PinnedMemory(int64_t bytes, const std::string& what) : bytes_(bytes) {
    if (bytes < 0) raise(invalid_argument(what, "0 or more bytes of pinned memory", std::to_string(bytes)));
    if (bytes == 0) return;
    data_.reset(backend::runtime::allocate_pinned(bytes));
    if (data_ == nullptr) raise(detail::no_pinned_memory(what, bytes));
  }

  void* data() const { return data_.get(); }
  int64_t bytes() const { return data_ == nullptr ? 0 : bytes_; }

 private:
  struct Release {
    void operator()(void* data) const { backend::runtime::release_pinned(data); }
  };
  std::unique_ptr<void, Release> data_;
  int64_t bytes_ = 0;
};

/// Memory of the host that kernels read and write over the bus, at its addresses on the host. It is pinned, so the
/// machine must have as much. It lies in huge pages if the system has some; else a device would look up the place of
/// each 4 KB. Copies share it.
class MappedMemory {
 public:
  MappedMemory() = default;
  /// `what` names the user of the memory in messages. Throws cuda_error, and invalid_argument for less than 0 bytes.
  /// For 0 bytes data() is null.
  MappedMemory(int64_t bytes, const std::string& what) : bytes_(bytes) {
    if (bytes < 0) raise(invalid_argument(what, "0 or more bytes of mapped memory", std::to_string(bytes)));
    if (bytes == 0) return;
    data_ = backend::runtime::allocate_mapped(bytes);
    if (data_ == nullptr) raise(detail::no_pinned_memory(what, bytes));
  }

  void* data() const { return data_.get(); }
  int64_t bytes() const { return data_ == nullptr ? 0 : bytes_; }

  /// Copies from the host. No launch that uses the memory may run meanwhile. For any threads at once.
  void write(int64_t at, const void* from, int64_t bytes) const {
    backend::runtime::write_mapped(static_cast<unsigned char*>(data()) + at, from, bytes);
  }

 private:
  std::shared_ptr<void> data_;
  int64_t bytes_ = 0;
};

/// Pinned memory for batches that go to a device.
WARPRANK_HIDDEN inline HostAllocator pinned_allocator(int device_index = 0) {
  HostAllocator allocator;
  allocator.allocate = [device_index](int64_t bytes) {
    const DeviceGuard current(device_index);
    return backend::runtime::allocate_pinned(bytes);
  };
  allocator.deallocate = [](void* memory, int64_t) { backend::runtime::release_pinned(memory); };
  return allocator;
}

}}}  // namespace warprank::v0::device
