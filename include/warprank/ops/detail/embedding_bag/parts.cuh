// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A lane's part of a row: raw words from memory, then elements added to sums, then elements of y.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/embedding_bag/record.hpp"

namespace warprank::detail::embedding_bag {

template <int Bytes>
struct RawPart {
  uint32_t words[Bytes / 4];
};
/// Elements of a part.
template <class Row, int Bytes>
inline constexpr int part_size = Bytes / static_cast<int>(sizeof(Row));

/// -0, which changes no sum, 0 too.
template <class Row>
inline constexpr uint32_t no_elements = std::is_same_v<Row, float>    ? 0x80000000u
                                        : std::is_same_v<Row, int8_t> ? 0u
                                                                      : 0x80008000u;
/// What sums begin with. Those of I8 are products, and never bits that were stored.
template <class Row>
inline constexpr float no_sum = std::is_same_v<Row, int8_t> ? 0.0f : -0.0f;

template <class Row, int Bytes>
WARPRANK_DEVICE RawPart<Bytes> no_part() {
  RawPart<Bytes> raw;
  WARPRANK_UNROLL
  for (uint32_t& word : raw.words) word = no_elements<Row>;
  return raw;
}
template <int Bytes>
WARPRANK_DEVICE RawPart<Bytes> load_part(const unsigned char* part, bool is_wide_row) {
  constexpr int words = Bytes / 4;
  const auto* from = reinterpret_cast<const uint32_t*>(part);
  const auto loaded = is_wide_row ? device::load_vector_once<words>(from) : device::load_vector_constant<words>(from);
  RawPart<Bytes> raw;
  WARPRANK_UNROLL
  for (int i = 0; i < words; ++i) raw.words[i] = loaded[i];
  return raw;
}

/// Of the elements of a part. By a name of its own: clang 14 does not parse the array as a parameter.
template <class Row, int Bytes>
using PartSums = float[part_size<Row, Bytes>];

/// Adds the elements; of I8 scale q, without offsets.
template <class Row, int Bytes>
WARPRANK_DEVICE void add_part(PartSums<Row, Bytes>& sums, const RawPart<Bytes>& raw, float scale) {
  WARPRANK_UNROLL
  for (int w = 0; w < Bytes / 4; ++w) {
    const uint32_t word = raw.words[w];
    if constexpr (std::is_same_v<Row, float>) {
      sums[w] += device::float_of_bits(word);
    } else if constexpr (std::is_same_v<Row, half>) {
      sums[2 * w] += device::widen(device::low_half(word));
      sums[2 * w + 1] += device::widen(device::high_half(word));
    } else if constexpr (std::is_same_v<Row, bfloat16>) {
      sums[2 * w] += device::float_of_bits(word << 16);
      sums[2 * w + 1] += device::float_of_bits(word & 0xffff0000u);
    } else {
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) sums[4 * w + i] = std::fma(scale, device::widen_byte(word, i), sums[4 * w + i]);
    }
  }
}

/// Stores N elements at y, vectors where they are aligned.
template <class Out, int N>
WARPRANK_DEVICE void store_elements(Out* y, const float (&values)[N], bool is_aligned) {
  constexpr int whole = 16 / static_cast<int>(sizeof(Out)), fit = N < whole ? N : whole;
  if (is_aligned) {
    WARPRANK_UNROLL
    for (int i = 0; i < N; i += fit) {
      device::Vector<Out, fit> some;
      WARPRANK_UNROLL
      for (int j = 0; j < fit; ++j) some[j] = device::narrow<Out>(values[i + j]);
      device::store_vector(y + i, some);
    }
  } else {
    WARPRANK_UNROLL
    for (int i = 0; i < N; ++i) device::store(y + i, device::narrow<Out>(values[i]));
  }
}
WARPRANK_DEVICE int64_t place_in_y(const Record& f, int64_t row, int column) {
  return row * int64_t{f.y_stride} + column;
}
/// Stores N columns of a row of y from `column` on.
template <int N>
WARPRANK_DEVICE void store_columns(const Record& f, int64_t row, int column, const float (&values)[N]) {
  const int64_t at = place_in_y(f, row, column);
  const bool is_aligned = f.has(Flag::y_is_aligned);
  if (f.has(Flag::y_is_half)) {
    store_elements(reinterpret_cast<half*>(f.y) + at, values, is_aligned);
  } else {
    store_elements(reinterpret_cast<float*>(f.y) + at, values, is_aligned);
  }
}
/// Stores a part of a row that is alone in its bag: FP16 as it is, unless it is not aligned.
template <class Row, int Bytes>
WARPRANK_DEVICE void store_row(const Record& f, int64_t row, int part, const RawPart<Bytes>& raw, float scale,
                               float offset) {
  constexpr int size = part_size<Row, Bytes>;
  if constexpr (std::is_same_v<Row, half>) {
    if (f.has(Flag::y_is_half) && f.has(Flag::y_is_aligned)) {
      device::Vector<uint32_t, Bytes / 4> words;
      WARPRANK_UNROLL
      for (int i = 0; i < Bytes / 4; ++i) words[i] = raw.words[i];
      half* const y = reinterpret_cast<half*>(f.y) + place_in_y(f, row, part * size);
      return device::store_vector(reinterpret_cast<uint32_t*>(y), words);
    }
  }
  float values[size];
  WARPRANK_UNROLL
  for (float& value : values) value = no_sum<Row>;
  add_part<Row, Bytes>(values, raw, scale);
  if constexpr (std::is_same_v<Row, int8_t>) {  // rounded as in a bag
    WARPRANK_UNROLL
    for (float& value : values) value += offset;
  }
  store_columns(f, row, part * size, values);
}

/// The row of the table that an id names, padding_row or missing_row.
WARPRANK_DEVICE uint32_t row_of(const Record& f, int64_t id) {
  if (static_cast<uint64_t>(id) < f.num_rows) return static_cast<uint32_t>(id);
  return id == -1 ? padding_row : missing_row;
}
WARPRANK_DEVICE const unsigned char* row_address(const Record& f, uint32_t row) {
  return f.rows + uint64_t{row} * f.row_stride;
}

}  // namespace warprank::detail::embedding_bag
