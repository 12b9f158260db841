// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One id for each row of y; and rows of a dense input.

#include <cstdint>
#include <type_traits>

#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/embedding_bag/parts.cuh"
#include "warprank/ops/detail/embedding_bag/spans.cuh"

namespace warprank::detail::embedding_bag {

/// The id of row i of the present span.
struct RowIds {
  const Block& block;
  const unsigned char* ids;

  WARPRANK_DEVICE int64_t operator()(int i) const {
    using device::load_constant;
    const Record& f = block.f();
    if (f.form == Form::each) return load_constant(reinterpret_cast<const int64_t*>(ids) + i);
    const unsigned char* of_request = ids;
    if (f.form == Form::blob_each_of_requests) {
      const unsigned char* blob = block.batch.bytes + load_constant(&block.batch.positions[i]);
      const uint32_t at = read_entry(blob, f.requests.values_entry);
      of_request = at == 0 ? nullptr : blob + at;
      i = 0;
    }
    return of_request == nullptr ? f.requests.default_id : load_id(of_request, i, f.has(Flag::narrow_ids));
  }
};

/// Stores the default row's part; there is one.
template <int Size>
WARPRANK_DEVICE void store_default_row(const Record& f, int64_t row, int part) {
  float values[Size];
  WARPRANK_UNROLL
  for (int i = 0; i < Size; ++i) values[i] = device::load_constant(&f.default_row[part * Size + i]);
  store_columns(f, row, part * Size, values);
}

/// Makes rows of the present span those that `id_at` names. The lanes of a row have several of them on their way.
template <class Row, int Bytes, class IdAt>
WARPRANK_DEVICE void copy_rows(const Block& block, const IdAt& id_at, bool counts) {
  // Of I8 half as many, with their scales and offsets.
  constexpr int in_flight = policy.ids_in_flight / (std::is_same_v<Row, int8_t> ? 2 : 1), size = part_size<Row, Bytes>;
  const Record& f = block.f();
  const Cursor& c = block.cursor();
  const int thread = device::fresh_thread_rank(), groups = policy.threads >> f.lanes_log2;
  const int first_part = thread & ((1 << f.lanes_log2) - 1), step = c.step * groups, n = c.n;
  const bool is_wide = f.has(Flag::wide_rows);
  const int64_t first_row = c.row;
  for (int i = c.begin * groups + (thread >> f.lanes_log2); i < n; i += in_flight * step) {
    uint32_t row[in_flight];
    WARPRANK_UNROLL
    for (int k = 0; k < in_flight; ++k) {
      const int at = i + k * step;
      row[k] = at < n ? row_of(f, id_at(at)) : padding_row;
    }
    for (int part = first_part; part < static_cast<int>(f.parts); part += device::warp_size) {
      RawPart<Bytes> raw[in_flight];
      float scale[in_flight], offset[in_flight];
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) {
        scale[k] = 0, offset[k] = 0;
        if (row[k] < missing_row) {
          raw[k] = load_part<Bytes>(row_address(f, row[k]) + part * Bytes, is_wide);
          if constexpr (std::is_same_v<Row, int8_t>) {
            scale[k] = device::load_constant(&f.scale[row[k]]);
            offset[k] = device::load_constant(&f.offset[row[k]]);
          }
        } else {
          WARPRANK_UNROLL
          for (uint32_t& word : raw[k].words) word = 0;
        }
      }
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) {
        const int at = i + k * step;
        if (at < n) store_row<Row, Bytes>(f, first_row + at, part, raw[k], scale[k], offset[k]);
      }
      if (f.default_row != nullptr) {
        WARPRANK_UNROLL
        for (int k = 0; k < in_flight; ++k) {
          if (row[k] == missing_row) store_default_row<size>(f, first_row + i + k * step, part);
        }
      }
    }
    if (counts && first_part == 0) {
      uint32_t ids = 0, missing = 0, padding = 0;
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) {
        const bool is_id = i + k * step < n;
        ids += is_id, missing += is_id && row[k] == missing_row, padding += is_id && row[k] == padding_row;
      }
      count(block, ids, missing, padding, padding);
    }
  }
}

template <class Row, int Bytes>
WARPRANK_DEVICE void copy_rows(const Block& block) {
  for (bool has = block.cursor().has_span; has; has = next_span(block)) {
    copy_rows<Row, Bytes>(block, RowIds{block, block.cursor().values}, block.f().counters != nullptr);
  }
}

/// Rows of a dense input: a request's lie end to end, so threads take consecutive elements, from the beginning of a
/// sector on, whatever rows they are of. Elements are floats, or of 16 bits as the record says.
template <class Element>
WARPRANK_DEVICE void copy_dense(const Block& block) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  const auto width = static_cast<int>(f.parts);
  const auto store_value = [&](int64_t at, float value) {
    if (f.has(Flag::y_is_half)) {
      store(reinterpret_cast<half*>(f.y) + at, narrow<half>(value));
    } else {
      store(reinterpret_cast<float*>(f.y) + at, value);
    }
  };
  for (bool has = block.cursor().has_span; has; has = next_span(block)) {
    const Cursor& c = block.cursor();
    const auto* values = reinterpret_cast<const Element*>(c.values);
    constexpr uintptr_t sector = 32;
    const auto skew = static_cast<int64_t>(reinterpret_cast<uintptr_t>(values) % sector / sizeof(Element));
    const int64_t end = int64_t{c.n} * width, step = int64_t{c.step} * dense_chunk;
    for (int64_t begin = int64_t{c.begin} * dense_chunk - skew; begin < end; begin += step) {
      float value[dense_loads];
      WARPRANK_UNROLL
      for (int k = 0; k < dense_loads; ++k) {
        const int64_t e = begin + k * policy.threads + thread_rank();
        value[k] = f.default_value;
        if (values == nullptr || e < 0 || e >= end) continue;
        const Element element = load_constant(&values[e]);
        if constexpr (std::is_same_v<Element, float>) {
          value[k] = element;
        } else {
          value[k] = f.has(Flag::bf16_values) ? widen(bfloat16{element}) : widen(half{element});
        }
      }
      WARPRANK_UNROLL
      for (int k = 0; k < dense_loads; ++k) {
        const int64_t e = begin + k * policy.threads + thread_rank();
        if (e < 0 || e >= end) continue;
        // Division of 64 bits takes several times as long.
        const int64_t row = end <= INT32_MAX ? static_cast<int>(e) / width : e / width;
        store_value(place_in_y(f, c.row + row, static_cast<int>(e - row * width)), value[k]);
      }
    }
  }
}

}  // namespace warprank::detail::embedding_bag
