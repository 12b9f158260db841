// SPDX-License-Identifier: Apache-2.0
#include "simt/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "simt/asan.hpp"
#include "simt/config.hpp"

namespace simt {
namespace {

constexpr int64_t page = 4096, reserved_bytes = int64_t{1} << 40;
constexpr unsigned char unwritten = 0xff, zone = 0xfd;
// Larger allocations are left untouched: tables of many gigabytes must cost nothing.
constexpr int64_t max_filled_bytes = int64_t{64} << 20;

constexpr int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

bool all_bytes_are(const char* begin, int64_t bytes, unsigned char value) {
  if (bytes == 0) return true;
  return static_cast<unsigned char>(*begin) == value &&
         std::memcmp(begin, begin + 1, static_cast<size_t>(bytes - 1)) == 0;
}

}  // namespace

DeviceMemory::DeviceMemory() {
  void* range = mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw std::bad_alloc();
  begin_ = next_ = reinterpret_cast<uintptr_t>(range);
  end_ = begin_ + reserved_bytes;
}

void* DeviceMemory::allocate(int64_t bytes, uint32_t devices) {
  if (bytes < 0) throw Error("allocate: " + std::to_string(bytes) + " bytes");
  const int64_t mapped = round_up(bytes == 0 ? 1 : bytes, page);
  if (next_ + static_cast<uintptr_t>(mapped + page) > end_) throw std::bad_alloc();
  void* memory = mmap(reinterpret_cast<void*>(next_), static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  char* address = static_cast<char*>(memory);
  if (bytes <= max_filled_bytes) std::memset(address, unwritten, static_cast<size_t>(bytes));
  std::memset(address + bytes, zone, static_cast<size_t>(mapped - bytes));
  forbid(address + bytes, mapped - bytes);
  allocations_.push_back({next_, bytes, devices});
  // Addresses are not used again: a pointer to memory that was freed never becomes valid.
  next_ += static_cast<uintptr_t>(mapped + page);
  return memory;
}

void DeviceMemory::free(void* address) {
  if (address == nullptr) return;
  const auto found = std::find_if(allocations_.begin(), allocations_.end(), [&](const Allocation& allocation) {
    return allocation.begin == reinterpret_cast<uintptr_t>(address);
  });
  if (found == allocations_.end()) throw Error("free: the address is not the beginning of an allocation");
  const int64_t mapped = round_up(found->bytes == 0 ? 1 : found->bytes, page);
  allow(address, mapped);
  mmap(address, static_cast<size_t>(mapped), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  allocations_.erase(found);
  latest_begin_ = 1;
  latest_end_ = 0;
}

void DeviceMemory::free_all() {
  while (!allocations_.empty()) free(reinterpret_cast<void*>(allocations_.front().begin));
}

bool DeviceMemory::find(uintptr_t address, int64_t bytes) const {
  auto after = std::upper_bound(allocations_.begin(), allocations_.end(), address,
                                [](uintptr_t a, const Allocation& allocation) { return a < allocation.begin; });
  if (after == allocations_.begin()) return false;
  --after;
  latest_begin_ = after->begin;
  latest_end_ = after->begin + static_cast<uintptr_t>(after->bytes);
  latest_devices_ = after->devices;
  return address + static_cast<uintptr_t>(bytes) <= latest_end_;
}

std::pair<int64_t, int64_t> DeviceMemory::place_of(const void* address) const {
  const auto a = reinterpret_cast<uintptr_t>(address);
  for (size_t i = 0; i < allocations_.size(); ++i) {
    const auto& [begin, bytes, devices] = allocations_[i];
    if (a >= begin && a - begin <= static_cast<uintptr_t>(bytes))
      return {static_cast<int64_t>(i), static_cast<int64_t>(a - begin)};
  }
  return {-1, static_cast<int64_t>(a)};
}

void DeviceMemory::check_ends() const {
  if (address_sanitizer) return;
  for (const auto& [begin, bytes, devices] : allocations_) {
    const int64_t mapped = round_up(bytes == 0 ? 1 : bytes, page);
    if (!all_bytes_are(reinterpret_cast<const char*>(begin) + bytes, mapped - bytes, zone)) {
      throw Error("global memory out of bounds: written behind the end of an allocation of " + std::to_string(bytes) +
                  " bytes; the race build names the line");
    }
  }
}

SharedMemory::SharedMemory() {
  memory_ = static_cast<char*>(std::aligned_alloc(alignment, arena_bytes));
  if (memory_ == nullptr) throw std::bad_alloc();
  std::memset(memory_, zone, arena_bytes);
}

SharedMemory::~SharedMemory() {
  allow(memory_, arena_bytes);
  std::free(memory_);
}

void SharedMemory::reset(int64_t dynamic_bytes) {
  allow(memory_, arena_bytes);
  std::memset(memory_ + alignment - red_zone, zone, static_cast<size_t>(used_ == 0 ? 0 : used_ - alignment + red_zone));
  std::memset(dynamic(), unwritten, static_cast<size_t>(dynamic_bytes));
  dynamic_bytes_ = dynamic_bytes;
  static_bytes_ = 0;
  parts_.clear();
  parts_.push_back({alignment, dynamic_bytes, nullptr});
  used_ = alignment + round_up(dynamic_bytes, red_zone) + red_zone;
  forbid(memory_, alignment);
  forbid(dynamic() + dynamic_bytes, arena_bytes - alignment - dynamic_bytes);
}

char* SharedMemory::storage(const void* key, int64_t bytes, int64_t storage_alignment) {
  for (const Part& part : parts_) {
    if (part.key == key) return memory_ + part.begin;
  }
  const int64_t begin = round_up(used_, storage_alignment < red_zone ? red_zone : storage_alignment);
  if (begin + bytes + red_zone > arena_bytes - alignment) return nullptr;
  static_bytes_ += bytes;
  parts_.push_back({begin, bytes, key});
  used_ = begin + round_up(bytes, red_zone) + red_zone;
  allow(memory_ + begin, bytes);
  std::memset(memory_ + begin, unwritten, static_cast<size_t>(bytes));
  return memory_ + begin;
}

bool SharedMemory::contains(const void* address, int64_t bytes) const {
  if (!reserved(address)) return false;
  const int64_t begin = offset(address);
  for (const Part& part : parts_) {
    if (begin >= part.begin && begin + bytes <= part.begin + part.bytes) return true;
  }
  return false;
}

bool SharedMemory::damaged() const {
  if (address_sanitizer) return false;
  int64_t gap = alignment - red_zone;
  for (const Part& part : parts_) {
    if (!all_bytes_are(memory_ + gap, part.begin - gap, zone)) return true;
    gap = part.begin + part.bytes;
  }
  return !all_bytes_are(memory_ + gap, used_ - gap, zone);
}

}  // namespace simt
