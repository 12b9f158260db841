// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank::detail {

/// Takes memory from a workspace, or only counts it when that is null.
class WorkspaceCursor {
 public:
  explicit WorkspaceCursor(void* base) : base_(base == nullptr ? 256 : reinterpret_cast<uintptr_t>(base)) {}
  char* take(int64_t bytes) {
    char* at = reinterpret_cast<char*>(base_ + static_cast<uintptr_t>(used_));
    used_ += (bytes + 255) / 256 * 256;
    return at;
  }
  int64_t used() const { return used_; }

 private:
  uintptr_t base_;
  int64_t used_ = 0;
};

}  // namespace warprank::detail
