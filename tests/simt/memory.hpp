// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Memory that kernels may use: global allocations whose ranges are known, and a block's shared memory.

#include <cstdint>
#include <utility>
#include <vector>

namespace simt {

/// Global memory, and host memory that kernels may read: one reserved range of addresses, so that a pointer out of
/// bounds is told from one to the host's own data. Every allocation begins a page and is followed by an unmapped one.
/// New memory holds 0xff bytes, which are NaN as floats; pages that nobody touches cost nothing.
class DeviceMemory {
 public:
  static DeviceMemory& instance() {
    static DeviceMemory memory;
    return memory;
  }

  /// Which devices' kernels may use an allocation: a bit for each.
  static constexpr uint32_t every_device = ~0u;
  static constexpr uint32_t bit_of(int device) { return 1u << device; }

  void* allocate(int64_t bytes, uint32_t devices = every_device);
  /// Throws Error when `address` is not the beginning of an allocation.
  void free(void* address);
  void free_all();

  /// Whether the address is one that only kernels' memory has, allocated or not.
  bool reserved(const void* address) const {
    const auto a = reinterpret_cast<uintptr_t>(address);
    return a >= begin_ && a < end_;
  }
  /// Whether [address, address + bytes) lies in one allocation.
  bool contains(const void* address, int64_t bytes) const {
    const auto a = reinterpret_cast<uintptr_t>(address);
    return (a >= latest_begin_ && a + static_cast<uintptr_t>(bytes) <= latest_end_) || find(a, bytes);
  }
  /// Of the allocation that has the address; 0: none has.
  uint32_t devices_of(const void* address) const { return contains(address, 1) ? latest_devices_ : 0; }
  /// Which allocation holds the address, by the order of addresses, and at which byte; (-1, address): none does.
  std::pair<int64_t, int64_t> place_of(const void* address) const;
  int64_t num_allocations() const { return static_cast<int64_t>(allocations_.size()); }
  int64_t allocated_bytes() const {
    int64_t bytes = 0;
    for (const Allocation& allocation : allocations_) bytes += allocation.bytes;
    return bytes;
  }
  /// Of those that these devices alone may use.
  int64_t allocated_bytes(uint32_t devices) const {
    int64_t bytes = 0;
    for (const Allocation& allocation : allocations_)
      if (allocation.devices == devices) bytes += allocation.bytes;
    return bytes;
  }

  /// Throws Error when bytes behind an allocation's end were overwritten since it was made.
  void check_ends() const;

 private:
  DeviceMemory();
  bool find(uintptr_t address, int64_t bytes) const;

  uintptr_t begin_, next_, end_;
  mutable uintptr_t latest_begin_ = 1, latest_end_ = 0;  // the allocation that find() found; or none
  mutable uint32_t latest_devices_ = 0;
  struct Allocation {
    uintptr_t begin;
    int64_t bytes;
    uint32_t devices;
  };
  std::vector<Allocation> allocations_;  // by address
};

/// A block's shared memory: the dynamic part first, then static storages, with red zones around each.
class SharedMemory {
 public:
  static constexpr int64_t red_zone = 128, alignment = 1024;
  static constexpr int64_t arena_bytes = (256 << 10) + 2 * alignment;

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Forgets everything but `dynamic_bytes`, filled with 0xff.
  void reset(int64_t dynamic_bytes);
  /// The storage of `key`, made on the first call.
  char* storage(const void* key, int64_t bytes, int64_t alignment);

  char* dynamic() const { return memory_ + alignment; }
  int64_t static_bytes() const { return static_bytes_; }
  int64_t dynamic_bytes() const { return dynamic_bytes_; }

  /// Whether the address is in the arena, red zones included.
  bool reserved(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(memory_) < uintptr_t{arena_bytes};
  }
  bool contains(const void* address, int64_t bytes) const;
  /// The address's place in the arena.
  int64_t offset(const void* address) const { return static_cast<const char*>(address) - memory_; }
  int64_t used() const { return used_; }
  /// Whether a red zone was overwritten.
  bool damaged() const;

  struct Part {
    int64_t begin, bytes;
    const void* key;
  };
  const std::vector<Part>& parts() const { return parts_; }

 private:
  char* memory_;
  int64_t used_ = 0, static_bytes_ = 0, dynamic_bytes_ = 0;
  std::vector<Part> parts_;
};

}  // namespace simt
