// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What fuzz targets make of the bytes that they are given.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace warprank::test_support {

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// Takes values off the front of the input; zeros once it is used up.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <class Value>
  Value take() {
    Value value{};
    const size_t bytes = std::min(size_, sizeof value);
    if (bytes > 0) std::memcpy(&value, data_, bytes);  // of no input the address is null
    data_ += bytes;
    size_ -= bytes;
    return value;
  }
  /// Up to 15 values; of integers every other one is small, so that some fit together.
  template <class Value>
  std::vector<Value> take_all() {
    std::vector<Value> values(take<uint8_t>() % 16);
    const bool small = take<uint8_t>() % 4 != 0;
    for (Value& value : values) value = small ? static_cast<Value>(take<uint8_t>() % 8) : take<Value>();
    return values;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace warprank::test_support
