// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A lane's part of a row: raw words from memory, then elements added to a pool, then elements of y.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/embedding_bag/general/descriptor.hpp"

namespace warprank::detail::embedding_bag::general {

/// What a tile has pooled of a bag; each lane has its own columns.
struct Pool {
  float values[max_lane_elements];  // sums or maxima
  uint32_t elements;                // ids that are not padding
  double divisor;                   // of weighted means: sum of w or w^2
};

WARPRANK_DEVICE void clear(Pool& pool, bool is_max) {
  WARPRANK_UNROLL
  for (float& value : pool.values) value = is_max ? -INFINITY : 0.0f;
  pool.elements = 0;
  pool.divisor = 0;
}

/// A weight, wherever it lies.
WARPRANK_DEVICE float load_weight(const Descriptor& f, const unsigned char* weight) {
  if (f.weights_are_half) return device::widen(device::load_constant(reinterpret_cast<const half*>(weight)));
  if (f.weights_are_bfloat16) {
    return device::widen(device::load_constant(reinterpret_cast<const bfloat16*>(weight)));
  }
  return device::load_constant(reinterpret_cast<const float*>(weight));
}

/// NaN when one of them is.
WARPRANK_DEVICE float larger(float a, float b) { return b > a || b != b ? b : a; }

/// Counts an id that is not padding.
WARPRANK_DEVICE void count_element(const Descriptor& f, Pool& pool, float weight) {
  ++pool.elements;
  if (!f.is_weighted || f.pooling == Pooling::sum) return;
  const double factor = f.pooling == Pooling::mean ? 1.0f : weight;
  pool.divisor += factor * weight;
}

/// Rows on their way: the lane's parts of several, one behind the other, each of row_words words. Constant indices
/// alone keep them in registers: the row that is added is always the first, and the others move up.
struct RawRows {
  uint32_t words[16];
};

/// Words that a lane's part of a row takes up.
WARPRANK_DEVICE int row_words(const Descriptor& f) { return f.shape.lane_bytes < 4 ? 1 : f.shape.lane_bytes / 4; }

/// Loads Words words by one load.
template <int Words>
WARPRANK_DEVICE void load_raw(bool may_change, const unsigned char* part, uint32_t* raw) {
  using namespace device;  // NOLINT: a device function
  const auto* words = reinterpret_cast<const Vector<uint32_t, Words>*>(part);
  const auto loaded = may_change ? load<Order::relaxed, Scope::device>(words) : load_constant(words);
  WARPRANK_UNROLL
  for (int i = 0; i < Words; ++i) raw[i] = loaded[i];
}

/// One word of lane_bytes, by narrower loads.
WARPRANK_DEVICE uint32_t load_narrow(const RowShape& shape, const unsigned char* part) {
  uint32_t raw = 0;
  for (int at = 0; at < shape.lane_bytes; at += shape.load_bytes) {
    const uint32_t bits = shape.load_bytes == 1 ? device::load_constant(part + at)
                                                : device::load_constant(reinterpret_cast<const uint16_t*>(part + at));
    raw |= bits << (8 * at);
  }
  return raw;
}

/// Moves the second row to the place of the first, and so on.
template <int Words>
WARPRANK_DEVICE void move_up(RawRows& raw) {
  WARPRANK_UNROLL
  for (int i = 0; i + Words < 16; ++i) raw.words[i] = raw.words[i + Words];
}

template <class Row>
WARPRANK_DEVICE float decode(const uint32_t* raw, int i) {
  if constexpr (std::is_same_v<Row, float>) {
    return device::float_of_bits(raw[i]);
  } else {
    constexpr int per_word = 4 / static_cast<int>(sizeof(Row));
    const uint32_t shifted = raw[i / per_word] >> (i % per_word * 8 * static_cast<int>(sizeof(Row)));
    if constexpr (std::is_same_v<Row, int8_t>)
      return device::widen(static_cast<int8_t>(shifted & 0xffu));
    else
      return device::widen(Row{static_cast<uint16_t>(shifted & 0xffffu)});
  }
}

/// Adds a raw row of Words words. Elements that lane_bytes do not have are added as well, and never stored.
template <class Row, int Words>
WARPRANK_DEVICE void add_words(Pool& pool, const uint32_t* raw, bool is_max, float weight, float scale, float offset) {
  constexpr int elements = Words * 4 / static_cast<int>(sizeof(Row));
  const auto element = [&](int i) {
    const float x = decode<Row>(raw, i);
    return std::is_same_v<Row, int8_t> ? scale * x + offset : x;
  };
  if (is_max) {
    WARPRANK_UNROLL
    for (int i = 0; i < elements; ++i) pool.values[i] = larger(pool.values[i], element(i));
  } else {
    WARPRANK_UNROLL
    for (int i = 0; i < elements; ++i) pool.values[i] += weight * element(i);
  }
}
template <class Row>
WARPRANK_DEVICE void add_row(Pool& pool, const RawRows& raw, int words, bool is_max, float weight, float scale,
                             float offset) {
  if constexpr (4 * 4 / static_cast<int>(sizeof(Row)) <= max_lane_elements) {
    if (words == 4) return add_words<Row, 4>(pool, raw.words, is_max, weight, scale, offset);
  }
  if (words == 2) return add_words<Row, 2>(pool, raw.words, is_max, weight, scale, offset);
  add_words<Row, 1>(pool, raw.words, is_max, weight, scale, offset);
}

/// Adds the default row's columns from `column` on.
WARPRANK_DEVICE void add_default_row(const Descriptor& f, Pool& pool, int column, int num_columns, float weight) {
  const float* row = f.has_default_row ? f.default_row : nullptr;
  WARPRANK_UNROLL
  for (int i = 0; i < max_lane_elements; ++i) {
    if (i >= num_columns) break;
    const float x = row == nullptr ? 0 : device::load_constant(&row[column + i]);
    pool.values[i] = f.pooling == Pooling::max ? larger(pool.values[i], x) : pool.values[i] + weight * x;
  }
}

/// What pooled values are divided by; 0 when the bag gives zeros.
WARPRANK_DEVICE float divisor_of(const Descriptor& f, const Pool& pool) {
  if (pool.elements == 0) return 0;
  const double total = f.is_weighted ? pool.divisor : static_cast<double>(pool.elements);
  if (f.pooling == Pooling::mean) return static_cast<float>(total);
  if (f.pooling == Pooling::sqrtn) return std::sqrt(static_cast<float>(total));  // in FP64 it takes many registers
  return 1;
}

/// The values divided, in place.
WARPRANK_DEVICE void divide(Pool& pool, int num_columns, float divisor) {
  if (divisor == 1) return;
  WARPRANK_UNROLL
  for (int i = 0; i < max_lane_elements; ++i) {
    if (i >= num_columns) break;
    pool.values[i] = divisor == 0 ? 0 : pool.values[i] / divisor;
  }
}

/// Stores vectors of Size elements; there are `count`, a multiple.
template <int Size, class Out>
WARPRANK_DEVICE void store_vectors(Out* y, const float (&values)[max_lane_elements], int count) {
  WARPRANK_UNROLL
  for (int i = 0; i < max_lane_elements; i += Size) {
    if (i >= count) break;
    device::Vector<Out, Size> some;
    WARPRANK_UNROLL
    for (int j = 0; j < Size; ++j) some[j] = device::narrow<Out>(values[i + j]);
    device::store_vector(y + i, some);
  }
}

template <class Out>
WARPRANK_DEVICE void store_as(Out* y, const float (&values)[max_lane_elements], int count, bool is_aligned) {
  constexpr int fit = 16 / static_cast<int>(sizeof(Out));
  if (is_aligned && count % fit == 0) return store_vectors<fit>(y, values, count);
  if (is_aligned && count % 4 == 0) return store_vectors<4>(y, values, count);
  if (is_aligned && count == 2) return store_vectors<2>(y, values, count);
  store_vectors<1>(y, values, count);
}

/// Stores columns of bag b.
WARPRANK_DEVICE void store_columns(const Descriptor& f, int64_t b, int column, int num_columns, const Pool& pool) {
  const int64_t at = b * f.y_stride + column;
  if (f.y_is_half) {
    store_as(reinterpret_cast<half*>(f.y) + at, pool.values, num_columns, f.y_is_aligned);
  } else {
    store_as(reinterpret_cast<float*>(f.y) + at, pool.values, num_columns, f.y_is_aligned);
  }
}

}  // namespace warprank::detail::embedding_bag::general
