// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The arguments of a Request's setters.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "warprank/batch/format.hpp"

namespace warprank { inline namespace v0 {

/// Values for the duration of one call: any contiguous container (vector, array, span, Span) or a braced list. Integers
/// of 8 bytes all serve as int64_t, so hashes may be unsigned.
template <class Value>
class Values {
 public:
  Values() = default;
  Values(std::initializer_list<Value> list) {  // NOLINT: a braced argument
    set(list.begin(), list.size());
  }
  template <class Container, class Element = std::remove_pointer_t<decltype(std::declval<const Container&>().data())>,
            class = std::enable_if_t<std::is_same_v<std::remove_cv_t<Element>, Value> ||
                                     (std::is_integral_v<Element> && std::is_integral_v<Value> &&
                                      sizeof(Element) == sizeof(Value))>>
  Values(const Container& container) {  // NOLINT: any contiguous container
    set(container.data(), static_cast<size_t>(container.size()));
  }

  /// `count` values from `begin` on.
  Values part(int64_t begin, int64_t count) const {
    Values values;
    values.set(bytes_ + begin * static_cast<int64_t>(sizeof(Value)), static_cast<size_t>(count));
    return values;
  }

  int64_t size() const { return size_; }
  const std::byte* bytes() const { return bytes_; }
  Value operator[](int64_t i) const {
    return detail::load_unaligned<Value>(bytes_ + i * static_cast<int64_t>(sizeof(Value)));
  }

 private:
  void set(const void* data, size_t size) {
    bytes_ = static_cast<const std::byte*>(data);
    size_ = static_cast<int64_t>(size);
  }

  const std::byte* bytes_ = nullptr;
  int64_t size_ = 0;
};

/// How the rows of an axis divide among the rows of its parent: the number of rows of each parent row ...
struct Lengths : Values<int64_t> {
  using Values::Values;
};
/// ... or where each begins, and the total: [parent rows + 1], from 0, never decreasing.
struct Offsets : Values<int64_t> {
  using Values::Values;
};

}}  // namespace warprank::v0
