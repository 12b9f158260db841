// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One id for each row of y; and rows of a dense input.

#include <cmath>
#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/embedding_bag/parts.cuh"
#include "warprank/ops/detail/embedding_bag/spans.cuh"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// The id of row i of the present span.
struct RowIds {
  const Block& block;
  const unsigned char* ids;
  bool& has_more;  ///< set where a bag has more than one id

  WARPRANK_DEVICE int64_t operator()(int i) const {
    using device::load_constant;
    const Record& f = block.f();
    if (f.form == Form::each) return load_constant(reinterpret_cast<const int64_t*>(ids) + i);
    if (f.form == Form::offsets) {
      const int64_t begin = load_constant(&f.array.offsets[i]), end = load_constant(&f.array.offsets[i + 1]);
      has_more |= end - begin > 1;
      return begin < end ? load_constant(reinterpret_cast<const int64_t*>(ids) + begin) : int64_t{-1};
    }
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

/// Whether rows become those of y as they are.
WARPRANK_DEVICE bool are_as_stored(const Record& f) {
  return f.part_bytes >= 4 && f.has(Flag::y_is_aligned) &&
         f.type == (f.has(Flag::y_is_half) ? RowType::f16 : RowType::f32);
}
/// Stores a part as it is.
template <int Words>
WARPRANK_DEVICE void store_raw(const Record& f, int64_t row, int part, const RawPart& raw) {
  device::Vector<uint32_t, Words> words;
  WARPRANK_UNROLL
  for (int i = 0; i < Words; ++i) words[i] = raw.words[i];
  const int64_t at = place_in_y(f, row, part * f.part_size) * (f.has(Flag::y_is_half) ? 2 : 4);
  device::store_vector(reinterpret_cast<uint32_t*>(f.y + at), words);
}
/// Stores a part of a row that is alone in its bag, rounded as there, or of the default row.
WARPRANK_DEVICE void store_row(const Record& f, int64_t row, int part, const RawPart& raw, bool is_default) {
  PartSums values = {};
  if (is_default) {
    WARPRANK_UNROLL
    for (int i = 0; i < max_part_size; ++i) {
      if (i < f.part_size) values[i] = device::load_constant(&f.default_row[part * f.part_size + i]);
    }
  } else {
    with_type(f.type, [&](auto rows) {
      constexpr RowType type = decltype(rows)::type;
      const RawPart one[1] = {raw};
      for_all_elements<type>(f, one, [&](int, int e, float x) {
        values[e] = type == RowType::i8 ? scale_of(raw) * x + offset_of(raw) : x;
      });
    });
  }
  store_part(f, row, part, values);
}

/// Makes rows of the present span those that ids name. The lanes of a row have several of them on their way.
WARPRANK_DEVICE void copy_span(const Block& block, const RowIds& id_at) {
  const Record& f = block.f();
  const Cursor& c = block.cursor();
  const int thread = device::fresh_thread_rank(), groups = policy.threads >> f.lanes_log2;
  const int first_part = thread & ((1 << f.lanes_log2) - 1), step = c.step * groups, n = c.n;
  const int64_t first_row = c.row;
  for (int i = c.begin * groups + (thread >> f.lanes_log2); i < n; i += in_flight * step) {
    uint32_t row[in_flight];
    uint32_t defaults = 0;  // which are the default row
    WARPRANK_UNROLL
    for (int k = 0; k < in_flight; ++k) {
      const int at = i + k * step;
      row[k] = at < n ? row_of(f.num_rows, id_at(at), -1) : padding_row;
      if (row[k] == missing_row && f.default_row != nullptr) defaults |= 1u << k;
    }
    for (int part = first_part; part < static_cast<int>(f.parts); part += device::warp_size) {
      RowsInFlight raw = {};
      load_parts<true>(f, row, part, raw);
      uint32_t left = (1u << in_flight) - 1;
      if (are_as_stored(f)) {
        left = defaults;
        WARPRANK_UNROLL
        for (int k = 0; k < in_flight; ++k) {
          const int at = i + k * step;
          if (at >= n || (defaults >> k & 1) != 0) continue;
          if (f.part_bytes == 16) {
            store_raw<4>(f, first_row + at, part, raw[k]);
          } else if (f.part_bytes == 8) {
            store_raw<2>(f, first_row + at, part, raw[k]);
          } else {
            store_raw<1>(f, first_row + at, part, raw[k]);
          }
        }
      }
      // Not unrolled, or there would be as many copies of the code for all types: the others move up.
      WARPRANK_ROLLED
      for (int k = 0; left >> k != 0 && i + k * step < n; ++k) {
        if ((left >> k & 1) != 0) {
          store_row(f, first_row + i + k * step, part, raw[0], (defaults >> k & 1) != 0);
        }
        WARPRANK_UNROLL
        for (int other = 0; other + 1 < in_flight; ++other) raw[other] = raw[other + 1];
      }
    }
    if (f.counters != nullptr && first_part == 0) {
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

/// Whether there are bags of more than one id left to do.
WARPRANK_DEVICE bool copy_rows(const Block& block) {
  bool has_more = false;
  for (bool has = block.cursor().has_span; has; has = next_span(block)) {
    copy_span(block, {block, block.cursor().values, has_more});
    if (block.f().has(Flag::few_ids)) return device::sync_block_any(has_more);  // the span is gone over again
  }
  return false;
}

/// Rows of a dense input: a request's lie end to end, so threads take consecutive elements, from the beginning of a
/// sector on, whatever rows they are of. One code for elements of 32 and of 16 bits: the kernel has no registers for
/// two.
WARPRANK_DEVICE void copy_dense(const Block& block) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  const auto width = static_cast<int>(f.parts);
  const auto store_value = [&](int64_t at, float value) {
    if (f.has(Flag::y_is_half)) {
      store(reinterpret_cast<float16*>(f.y) + at, narrow<float16>(value));
    } else {
      store(reinterpret_cast<float*>(f.y) + at, value);
    }
  };
  const bool is_narrow = f.type != RowType::f32;
  const auto load_bits = [&](const unsigned char* values, int64_t e) {
    return is_narrow ? uint32_t{load_constant(reinterpret_cast<const uint16_t*>(values) + e)}
                     : load_constant(reinterpret_cast<const uint32_t*>(values) + e);
  };
  const auto value_of = [&](uint32_t bits) {
    return f.type == RowType::f16 ? widen(low_half(bits)) : float_of_bits(is_narrow ? bits << 16 : bits);
  };
  for (bool has = block.cursor().has_span; has; has = next_span(block)) {
    const Cursor& c = block.cursor();
    const unsigned char* const values = c.values;
    constexpr uintptr_t sector = 32;
    const auto skew = static_cast<int64_t>(reinterpret_cast<uintptr_t>(values) % sector >> (is_narrow ? 1 : 2));
    const int64_t end = int64_t{c.n} * width, step = int64_t{c.step} * dense_chunk;
    for (int64_t begin = int64_t{c.begin} * dense_chunk - skew; begin < end; begin += step) {
      uint32_t bits[dense_loads] = {};
      WARPRANK_UNROLL
      for (int k = 0; k < dense_loads; ++k) {
        const int64_t e = begin + k * policy.threads + thread_rank();
        if (values != nullptr && 0 <= e && e < end) bits[k] = load_bits(values, e);
      }
      WARPRANK_UNROLL
      for (int k = 0; k < dense_loads; ++k) {
        const int64_t e = begin + k * policy.threads + thread_rank();
        if (e < 0 || e >= end) continue;
        // Division of 64 bits takes several times as long.
        const int64_t row = end <= INT32_MAX ? static_cast<int>(e) / width : e / width;
        store_value(place_in_y(f, c.row + row, static_cast<int>(e - row * width)),
                    values == nullptr ? f.default_value : value_of(bits[k]));
      }
    }
  }
}

}}}  // namespace warprank::v0::detail::embedding_bag
