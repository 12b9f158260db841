// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Memory of the current device, and memory of the host that devices copy from and to.

#include <cstdint>
#include <memory>
#include <string>

#include "warprank/core/cuda_error.hpp"
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

}  // namespace detail

/// Memory of the current device, uninitialised, aligned to 256 bytes. When it goes it is released, which waits for what
/// is queued on the device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// `what` is who needs it, for the message. Throws out_of_device_memory, cuda_error where there is no device, and
  /// invalid_argument for less than 0 bytes. 0 bytes are null.
  DeviceMemory(int64_t bytes, const std::string& what) : bytes_(bytes) {
    if (bytes < 0) raise(invalid_argument(what, "0 or more bytes of device memory", std::to_string(bytes)));
    if (bytes == 0) return;
    data_.reset(backend::runtime::allocate(bytes));
    if (data_ != nullptr) return;
    const auto [free_bytes, total_bytes] = backend::runtime::free_and_total_bytes();
    raise(out_of_device_memory(what, bytes, free_bytes, total_bytes));
  }

  void* data() const { return data_.get(); }
  int64_t bytes() const { return data_ == nullptr ? 0 : bytes_; }

 private:
  struct Release {
    void operator()(void* data) const { backend::runtime::release(data); }
  };
  std::unique_ptr<void, Release> data_;
  int64_t bytes_ = 0;
};

/// Pinned memory of the host: devices copy from and to it while the host does something else. The machine has little.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  /// `what` is who needs it, for the message. Throws cuda_error, and invalid_argument for less than 0 bytes. 0 bytes
  /// are null.
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

/// Memory of the host that kernels read and write over the bus, at the addresses that it has on the host: pinned, so
/// the machine must have it. In huge pages where the system has some, or a device would look up the place of each 4 KB.
/// Copies share it.
class MappedMemory {
 public:
  MappedMemory() = default;
  /// `what` is who needs it, for the message. Throws cuda_error, and invalid_argument for less than 0 bytes. 0 bytes
  /// are null.
  MappedMemory(int64_t bytes, const std::string& what) : bytes_(bytes) {
    if (bytes < 0) raise(invalid_argument(what, "0 or more bytes of mapped memory", std::to_string(bytes)));
    if (bytes == 0) return;
    data_ = backend::runtime::allocate_mapped(bytes);
    if (data_ == nullptr) raise(detail::no_pinned_memory(what, bytes));
  }

  void* data() const { return data_.get(); }
  int64_t bytes() const { return data_ == nullptr ? 0 : bytes_; }

  /// Copies from the host, before it is shown to a launch or while none that was shown it runs. By any threads at once.
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
