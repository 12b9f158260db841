// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Values of inputs from one of the types that requests hold them in to another.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "warprank/batch/format.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Without branches over values, so that it vectorises; at any addresses.
template <class To, class From, class Convert>
void convert_each(const std::byte* from, int64_t count, std::byte* to, Convert convert) {
  for (int64_t i = 0; i < count; ++i) {
    const To value = convert(load_unaligned<From>(from + i * static_cast<int64_t>(sizeof(From))));
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &value, sizeof value);
  }
}

/// Converts ids. Gives the index of the first that `to_type` cannot hold, when such are refused; -1: none.
inline int64_t convert_ids(const std::byte* from, IdsWire from_type, int64_t count, std::byte* to, IdsWire to_type,
                           OutOfRange out_of_range) {
  if (from_type == to_type) {
    if (count == 1 && to_type == IdsWire::i64)
      std::memcpy(to, from, sizeof(int64_t));  // requests of one row have few values, each a store
    else if (count > 0)
      std::memcpy(to, from, static_cast<size_t>(count * size_of(to_type)));
    return -1;
  }
  if (to_type == IdsWire::i64) {
    convert_each<int64_t, int32_t>(from, count, to, [](int32_t id) { return int64_t{id}; });
    return -1;
  }
  constexpr int64_t least = std::numeric_limits<int32_t>::min(), most = std::numeric_limits<int32_t>::max();
  bool all_fit = true;
  convert_each<int32_t, int64_t>(from, count, to, [&](int64_t id) {
    const int64_t nearest = id < least ? least : id > most ? most : id;
    all_fit &= nearest == id;
    return static_cast<int32_t>(nearest);
  });
  if (all_fit || out_of_range == OutOfRange::saturate) return -1;
  int64_t i = 0;
  while (holds(to_type, load_unaligned<int64_t>(from + 8 * i))) ++i;
  return i;
}

template <class Body>
decltype(auto) dispatch_wire(DenseWire type, Body&& body) {
  if (type == DenseWire::f16) return body(TypeTag<float16>{});
  if (type == DenseWire::bf16) return body(TypeTag<bfloat16>{});
  return body(TypeTag<float>{});
}

/// Of a finite value; what becomes infinite is made the largest that is not, which is one less in bits, when it
/// `saturates`.
template <class To>
To wire_value(float value, bool saturates) {
  if constexpr (std::is_same_v<To, float>) {
    return value;
  } else {
    constexpr bool is_half = std::is_same_v<To, float16>;
    constexpr uint32_t exponent = is_half ? 0x7c00 : 0x7f80;
    uint32_t bits;
    if constexpr (is_half) bits = to_float16(value).bits;
    if constexpr (!is_half) bits = to_bfloat16(value).bits;
    const bool is_infinite = (bits & exponent) == exponent;
    return {static_cast<uint16_t>(bits - static_cast<uint32_t>(is_infinite && saturates))};
  }
}

/// Converts finite values, rounding to nearest. Gives the index of the first that `to_type` cannot hold, when such are
/// refused; -1: none.
inline int64_t convert_dense(const std::byte* from, DenseWire from_type, int64_t count, std::byte* to,
                             DenseWire to_type, OutOfRange out_of_range) {
  if (from_type == to_type) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count * size_of(to_type)));
    return -1;
  }
  const bool saturates = out_of_range == OutOfRange::saturate;
  dispatch_wire(from_type, [&](auto from_tag) {
    dispatch_wire(to_type, [&](auto to_tag) {
      using From = typename decltype(from_tag)::type;
      using To = typename decltype(to_tag)::type;
      convert_each<To, From>(from, count, to, [=](From value) { return wire_value<To>(to_float(value), saturates); });
    });
  });
  return saturates ? -1 : find_not_finite(to, count, to_type);
}

/// What a message says of an id or a value that is refused.
inline const char* expected_text(IdsWire) { return "ids of 32 bits"; }
inline const char* expected_text(DenseWire type) {
  return type == DenseWire::f16 ? "values below 65520, as it holds FP16" : "values that BF16 holds";
}

}}}  // namespace warprank::v0::detail
