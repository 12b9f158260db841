// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

#include "warprank/core/release_pages.hpp"

namespace warprank::detail {

/// Memory full of zeros, which costs nothing until it is touched. 2 MB and more are aligned to and advised for huge
/// pages; all is aligned to 4096 bytes.
class ZeroedMemory {
 public:
  ZeroedMemory() = default;
  explicit ZeroedMemory(int64_t size) : size_(size) {
    if (size == 0) return;
    constexpr uint64_t huge_page = uint64_t{2} << 20;
    const bool is_huge = static_cast<uint64_t>(size) >= huge_page;
    mapped_ = static_cast<uint64_t>(size) + (is_huge ? huge_page : 0);
    map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map_ == MAP_FAILED) {
      map_ = nullptr;
      throw std::bad_alloc();
    }
    auto address = reinterpret_cast<uintptr_t>(map_);
    if (is_huge) address = (address + huge_page - 1) / huge_page * huge_page;
    data_ = reinterpret_cast<unsigned char*>(address);
    if (is_huge) ::madvise(data_, static_cast<uint64_t>(size), MADV_HUGEPAGE);
  }
  ~ZeroedMemory() {
    if (map_ == nullptr) return;
    release_pages(data_, size_);
    ::munmap(map_, mapped_);
  }
  ZeroedMemory(ZeroedMemory&& other) noexcept { swap(other); }
  ZeroedMemory& operator=(ZeroedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ZeroedMemory(const ZeroedMemory&) = delete;
  ZeroedMemory& operator=(const ZeroedMemory&) = delete;

  unsigned char* data() { return data_; }
  const unsigned char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  void swap(ZeroedMemory& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  void* map_ = nullptr;
  uint64_t mapped_ = 0;
  unsigned char* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace warprank::detail
