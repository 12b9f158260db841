// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Owned memory for tables, which may come from a pool and goes back to it.

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "warprank/core/page_pool.hpp"

namespace warprank { inline namespace v0 {

class Pages {
 public:
  Pages() = default;
  /// Their content is unknown. Without a pool: the system's pages.
  explicit Pages(int64_t size, std::shared_ptr<PagePool> pool = nullptr)
      : pool_(size > 0 ? std::move(pool) : nullptr), size_(size) {
    block_ = pool_ ? pool_->take(size) : detail::PageBlock(size);
  }
  /// Full of zeros, which cost nothing until they are touched, unless there is a pool.
  static Pages zeroed(int64_t size, std::shared_ptr<PagePool> pool = nullptr) {
    Pages pages(size, std::move(pool));
    if (pages.pool_) std::memset(pages.data(), 0, static_cast<size_t>(size));
    return pages;
  }
  ~Pages() {
    if (pool_) pool_->give(std::move(block_));
  }
  Pages(Pages&& other) noexcept { swap(other); }
  Pages& operator=(Pages&& other) noexcept {
    swap(other);
    return *this;
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  unsigned char* data() { return block_.data(); }
  const unsigned char* data() const { return block_.data(); }
  int64_t size() const { return size_; }

 private:
  void swap(Pages& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_, other.block_);
    std::swap(size_, other.size_);
  }

  std::shared_ptr<PagePool> pool_;
  detail::PageBlock block_;
  int64_t size_ = 0;
};

}}  // namespace warprank::v0
