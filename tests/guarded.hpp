// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "warprank/core/view.hpp"

namespace warprank::test {

/// A strided matrix of floats that shows every access outside it: it ends where the next page is inaccessible, so a
/// read or write after the last element faults, and all around its elements lies a pattern that gap_intact() checks.
/// Rows are aligned to no more than a float.
class GuardedMatrix {
 public:
  GuardedMatrix(int64_t rows, int64_t cols, int64_t gap = 3) : rows_(rows), cols_(cols), stride_(cols + gap) {
    const int64_t page = sysconf(_SC_PAGESIZE), floats_of_page = page / static_cast<int64_t>(sizeof(float));
    const int64_t used = rows == 0 ? 0 : rows * stride_ - gap;
    size_ = (used / floats_of_page + 1) * floats_of_page;
    bytes_ = size_ * static_cast<int64_t>(sizeof(float)) + page;
    void* map = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    map_ = static_cast<float*>(map);
    mprotect(map_ + size_, static_cast<size_t>(page), PROT_NONE);
    for (int64_t i = 0; i < size_; ++i) std::memcpy(map_ + i, &pattern, sizeof pattern);
    begin_ = map_ + (size_ - used);
  }
  /// With the given values, [rows, cols], or without if there are none.
  GuardedMatrix(int64_t rows, int64_t cols, const std::vector<float>& values) : GuardedMatrix(rows, cols) {
    if (values.empty()) return;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) view().row(r)[c] = values[static_cast<size_t>(r * cols + c)];
  }
  ~GuardedMatrix() { munmap(map_, static_cast<size_t>(bytes_)); }
  GuardedMatrix(const GuardedMatrix&) = delete;
  GuardedMatrix& operator=(const GuardedMatrix&) = delete;

  Matrix<float> view() const { return {begin_, rows_, cols_, stride_}; }
  std::vector<float> values() const {
    std::vector<float> dense;
    for (int64_t r = 0; r < rows_; ++r) dense.insert(dense.end(), view().row(r), view().row(r) + cols_);
    return dense;
  }
  float at(int64_t r, int64_t c) const { return begin_[r * stride_ + c]; }

  /// Whether all outside the elements is as it was.
  bool gap_intact() const {
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t offset = i - (begin_ - map_);
      if (offset >= 0 && offset % stride_ < cols_) continue;
      if (std::memcmp(map_ + i, &pattern, sizeof pattern) != 0) return false;
    }
    return true;
  }

 private:
  static constexpr uint32_t pattern = 0x7fc0dead;  // a NaN: one that is read shows in the results

  int64_t rows_, cols_, stride_, size_ = 0, bytes_ = 0;
  float *map_ = nullptr, *begin_ = nullptr;
};

}  // namespace warprank::test
