// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Memory of several devices at consecutive addresses, in stripes that the devices have in turn. Kernels of any of the
/// devices read and write all of it like their own memory, and need not know which device has which stripe.
///
///     if (can_shard({0, 1})) ShardedMemory rows(bytes, {0, 1}, "table 'user'");
///
/// Atomics are atomic only among the atomics of one device. Other devices see the writes of a launch when it is done:
/// order launches by events.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/on_cuda.hpp"
#include "warprank/device/devices.hpp"
#include "warprank/device/runtime.hpp"

#if defined(WARPRANK_ON_CUDA)
#include "warprank/device/cuda/sharded_memory.cuh"
#else
namespace warprank { inline namespace v0 { namespace device::backend::runtime {

// The executor defines these.
bool can_shard(const std::vector<int>& devices);
int64_t shard_granularity(const std::vector<int>& devices);
/// Null if one of the devices does not have as much memory.
std::shared_ptr<void> allocate_sharded(int64_t bytes, int64_t stripe_bytes, const std::vector<int>& devices);

}}}  // namespace warprank::v0::device::backend::runtime
#endif

namespace warprank { inline namespace v0 { namespace device {

/// Whether memory can be sharded over the devices: each can access the memory of all others.
WARPRANK_HIDDEN inline bool can_shard(const std::vector<int>& devices) { return backend::runtime::can_shard(devices); }

/// The share of each device in sharded memory.
class Stripes {
 public:
  Stripes() = default;
  /// Stripes are as short as devices permit, so that the most requested rows are spread over all devices; but there are
  /// at most most_stripes, since each takes a call of the driver.
  Stripes(int64_t bytes, int64_t granularity, int64_t num_devices) : num_devices_(num_devices) {
    constexpr int64_t most_stripes = 8192;
    stripe_bytes_ = granularity * std::max<int64_t>(1, above(bytes, granularity * most_stripes));
    num_stripes_ = above(bytes, stripe_bytes_);
  }

  int64_t stripe_bytes() const { return stripe_bytes_; }
  /// The bytes on all devices together.
  int64_t bytes() const { return num_stripes_ * stripe_bytes_; }
  /// The bytes on the n-th device.
  int64_t bytes_on(int64_t n) const { return (num_stripes_ + num_devices_ - 1 - n) / num_devices_ * stripe_bytes_; }

 private:
  static int64_t above(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit; }

  int64_t stripe_bytes_ = 0, num_stripes_ = 0, num_devices_ = 1;
};
/// The stripes of so many bytes on these devices.
WARPRANK_HIDDEN inline Stripes stripes_of(int64_t bytes, const std::vector<int>& devices) {
  return {bytes, backend::runtime::shard_granularity(devices), static_cast<int64_t>(devices.size())};
}

/// Uninitialised memory, aligned to 512 bytes. Copies share it. The destructor of the last copy releases it, which
/// waits for the work that is queued on the devices.
class ShardedMemory {
 public:
  ShardedMemory() = default;
  /// `what` names the user of the memory in messages. can_shard must be true of the devices. Throws
  /// out_of_device_memory, and invalid_argument for less than 0 bytes. For 0 bytes data() is null.
  ShardedMemory(int64_t bytes, const std::vector<int>& devices, const std::string& what) {
    if (bytes < 0) throw invalid_argument(what, "0 or more bytes of device memory", std::to_string(bytes));
    if (bytes == 0) return;  // without a call of the driver: devices need not support such memory
    stripes_ = stripes_of(bytes, devices);
    data_ = backend::runtime::allocate_sharded(stripes_.bytes(), stripes_.stripe_bytes(), devices);
    if (data_ != nullptr) return;
    const auto free_bytes = [&](int device) { return device_info(device).free_bytes; };
    const int least =
        *std::min_element(devices.begin(), devices.end(), [&](int a, int b) { return free_bytes(a) < free_bytes(b); });
    const DeviceInfo info = device_info(least);
    throw out_of_device_memory(what + ", its share of device " + std::to_string(least), stripes_.bytes_on(0),
                               info.free_bytes, info.total_bytes);
  }

  void* data() const { return data_.get(); }
  /// The bytes on the n-th device.
  int64_t bytes_on(int64_t n) const { return data_ == nullptr ? 0 : stripes_.bytes_on(n); }

  /// Queues copies from the host, as copy_to_device does.
  void write(int64_t at, const void* from, int64_t bytes, Stream stream) const {
    for (int64_t done = 0; done < bytes;) {
      const int64_t in_stripe = (at + done) % stripes_.stripe_bytes();
      const int64_t size = std::min(bytes - done, stripes_.stripe_bytes() - in_stripe);
      copy_to_device(static_cast<unsigned char*>(data()) + at + done, static_cast<const unsigned char*>(from) + done,
                     size, stream);
      done += size;
    }
  }

 private:
  Stripes stripes_;
  std::shared_ptr<void> data_;
};

}}}  // namespace warprank::v0::device
