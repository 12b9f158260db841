// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Memory that is reused. The system gives memory as pages full of zeros, one by one as they are touched. Other threads
/// wait for this, and for the return of the pages, when hundreds of MB are loaded beside them.

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "warprank/core/release_pages.hpp"

namespace warprank { inline namespace v0 {
namespace detail {

/// Memory of the system, full of zeros until it is written. 2 MB and more are aligned to and advised for huge pages;
/// all is aligned to 4096 bytes.
class PageBlock {
 public:
  PageBlock() = default;
  explicit PageBlock(int64_t room) : room_(room) {
    if (room == 0) return;
    constexpr uint64_t huge_page = uint64_t{2} << 20;
    const bool is_huge = static_cast<uint64_t>(room) >= huge_page;
    mapped_ = static_cast<uint64_t>(room) + (is_huge ? huge_page : 0);
    map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map_ == MAP_FAILED) {
      map_ = nullptr;
      throw std::bad_alloc();
    }
    auto address = reinterpret_cast<uintptr_t>(map_);
    if (is_huge) address = (address + huge_page - 1) / huge_page * huge_page;
    data_ = reinterpret_cast<unsigned char*>(address);
    if (is_huge) ::madvise(data_, static_cast<uint64_t>(room), MADV_HUGEPAGE);
  }
  ~PageBlock() {
    if (map_ == nullptr) return;
    release_pages(data_, room_);
    ::munmap(map_, mapped_);
  }
  PageBlock(PageBlock&& other) noexcept { swap(other); }
  PageBlock& operator=(PageBlock&& other) noexcept {
    swap(other);
    return *this;
  }
  PageBlock(const PageBlock&) = delete;
  PageBlock& operator=(const PageBlock&) = delete;

  unsigned char* data() const { return data_; }
  int64_t room() const { return room_; }

  int64_t size = 0;  ///< of its present or last content: no more bytes have ever been touched

 private:
  void swap(PageBlock& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(room_, other.room_);
    std::swap(size, other.size);
  }

  void* map_ = nullptr;
  uint64_t mapped_ = 0;
  unsigned char* data_ = nullptr;
  int64_t room_ = 0;
};

}  // namespace detail

/// Keeps the memory of freed tables for later tables: at most as many bytes as are in use. Any threads at once.
class PagePool {
 public:
  PagePool() = default;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// Touches as much memory again as is in use now, so that tables loaded beside the present ones find touched memory.
  void double_up() {
    std::vector<int64_t> sizes;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      sizes = in_use_;
    }
    std::vector<detail::PageBlock> blocks;
    for (const int64_t size : sizes) {
      blocks.push_back(take(size));
      std::memset(blocks.back().data(), 0, static_cast<size_t>(size));
    }
    for (detail::PageBlock& block : blocks) give(std::move(block));
  }

  int64_t bytes_in_use() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sum(in_use_);
  }
  /// Bytes that are kept and not in use.
  int64_t free_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sum_free();
  }

  /// For Pages. A block with room for the bytes: the smallest that fits and is at most twice as large, else a new
  /// block. A new block has an eighth more room, for a table that grows; this costs nothing until it is touched.
  detail::PageBlock take(int64_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->room() >= size && it->room() / 2 <= size && (best == free_.end() || it->room() < best->room())) best = it;
    detail::PageBlock block;
    if (best == free_.end()) {
      block = detail::PageBlock(size + size / 8);
    } else {
      block = std::move(*best);
      free_.erase(best);
    }
    block.size = std::max(block.size, size);
    free_.reserve(free_.size() + in_use_.size() + 1);  // so that nothing fails when it comes back
    in_use_.push_back(block.size);
    return block;
  }
  void give(detail::PageBlock block) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      in_use_.erase(std::find(in_use_.begin(), in_use_.end(), block.size));
      free_.push_back(std::move(block));
    }
    while (drop_one()) {
    }
  }

 private:
  /// The oldest block of the excess; false if there is no excess.
  bool drop_one() {
    detail::PageBlock dropped;  // behind the lock: the system takes its time
    const std::lock_guard<std::mutex> lock(mutex_);
    if (sum_free() <= sum(in_use_)) return false;
    dropped = std::move(free_.front());
    free_.erase(free_.begin());
    return true;
  }
  static int64_t sum(const std::vector<int64_t>& sizes) {
    int64_t bytes = 0;
    for (const int64_t size : sizes) bytes += size;
    return bytes;
  }
  int64_t sum_free() const {
    int64_t bytes = 0;
    for (const detail::PageBlock& block : free_) bytes += block.size;
    return bytes;
  }

  mutable std::mutex mutex_;
  std::vector<int64_t> in_use_;          // sizes of the blocks that are taken
  std::vector<detail::PageBlock> free_;  // as they came back
};

}}  // namespace warprank::v0
