// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace t4 {

/// The memory that kernels may use. What is not in it is out of bounds.
class Allocations {
 public:
  struct Range {
    uint64_t begin = 0, end = 0;
    bool contains(uint64_t address, uint64_t bytes) const { return address >= begin && address + bytes <= end; }
  };

  void add(const void* begin, uint64_t bytes);
  void remove(const void* begin);
  bool contains(uint64_t address, uint64_t bytes);
  /// The one that ends or begins closest to an address; empty where there is none.
  Range closest(uint64_t address);
  /// The one that an address is in; empty where there is none.
  Range find(uint64_t address);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> ends_;  ///< by where they begin
  Range last_;                         ///< that was asked for
};

}  // namespace t4
