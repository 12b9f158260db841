// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One contiguous range that many threads append to at once.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <utility>

#include "warprank/core/host_allocator.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Threads copy into ranges of their own side by side; only growing, which moves everything, waits for them.
class BatchMemory {
 public:
  explicit BatchMemory(HostAllocator allocator) : allocator_(std::move(allocator)) {}
  ~BatchMemory() { release(); }
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;

  /// Appends `bytes`, a multiple of 8, which `write(std::byte*)` fills; returns where they begin. Thread-safe.
  template <class Write>
  int64_t append(int64_t bytes, Write&& write) {
    const int64_t begin = reserve(bytes);
    const std::shared_lock<std::shared_mutex> stays(place_mutex_);
    write(data_ + begin);
    return begin;
  }

  /// Makes room for `bytes` beyond size() and returns it; the next append overwrites it. Not thread-safe.
  std::byte* scratch(int64_t bytes) {
    ensure(size_ + bytes);
    return data_ + size_;
  }

  /// Forgets the content and keeps the memory. Not thread-safe.
  void clear() { size_ = 0; }

  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  int64_t reserve(int64_t bytes) {
    const std::lock_guard<std::mutex> one_at_a_time(size_mutex_);
    ensure(size_ + bytes);
    return std::exchange(size_, size_ + bytes);
  }

  void ensure(int64_t bytes) {
    if (bytes <= capacity_) return;
    constexpr int64_t smallest = 64 * 1024;
    const int64_t capacity = std::max({bytes, 2 * capacity_, smallest});
    auto* moved = static_cast<std::byte*>(allocator_.allocate(capacity));
    if (moved == nullptr) throw std::bad_alloc();
    const std::unique_lock<std::shared_mutex> nobody_writes(place_mutex_);
    if (size_ > 0) std::memcpy(moved, data_, static_cast<size_t>(size_));
    release();
    data_ = moved;
    capacity_ = capacity;
  }

  void release() {
    if (data_ != nullptr) allocator_.deallocate(data_, capacity_);
  }

  HostAllocator allocator_;
  std::mutex size_mutex_;          // size_, capacity_ and growing
  std::shared_mutex place_mutex_;  // data_: shared while writing to it, exclusive while it moves
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

}}}  // namespace warprank::v0::detail
