// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank { inline namespace v0 { namespace detail::mlp {

/// Takes memory from a workspace that is not there yet: addresses that stand for places in it, and are of no memory.
class WorkspaceCursor {
 public:
  char* take(int64_t bytes) {
    char* const at = reinterpret_cast<char*>(base + static_cast<uintptr_t>(used_));
    used_ += (bytes + 255) / 256 * 256;
    return at;
  }
  int64_t used() const { return used_; }

  bool has(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= base && at < base + static_cast<uintptr_t>(used_);
  }
  /// From the begin of the workspace.
  static int64_t offset_of(const void* address) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) - base);
  }

 private:
  static constexpr uintptr_t base = uintptr_t{1} << 56;

  int64_t used_ = 0;
};

}}}  // namespace warprank::v0::detail::mlp
