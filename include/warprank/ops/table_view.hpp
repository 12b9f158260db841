// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The table that an embedding look-up reads, and the counters of look-ups.

#include <cstdint>

#include "warprank/core/dtype.hpp"

namespace warprank { inline namespace v0 {

/// A view of one embedding table's rows. Row r starts at byte r * row_stride_bytes of `rows`, at any alignment, and
/// holds `dim` elements x:
///
///     F32, F16, BF16   x as stored
///     I8               x = scale * q + offset, with the row's scale and offset
///
/// Row r's scale and offset are at byte r * scale_stride_bytes of `scale` and `offset`: in arrays, or behind the values
/// of the row, where a look-up finds them at once (scaled_rows.hpp).
struct TableView {
  DType type = DType::f32;
  const void* rows = nullptr;
  int64_t num_rows = 0;
  int64_t dim = 0;                     ///< >= 1
  int64_t row_stride_bytes = 0;        ///< >= dim * size_of(type)
  const float* scale = nullptr;        ///< of row 0, I8 only
  const float* offset = nullptr;       ///< of row 0, I8 only
  const float* default_row = nullptr;  ///< [dim], the row of ids that the table does not have; null means zeros
  int64_t scale_stride_bytes = 4;      ///< a multiple of 4: 4 for arrays, 8 for scales and offsets in turns

  int64_t row_bytes() const { return dim * size_of(type); }
  const unsigned char* row(int64_t r) const { return static_cast<const unsigned char*>(rows) + r * row_stride_bytes; }
  const float* scale_of(int64_t r) const { return number_of(scale, r); }
  const float* offset_of(int64_t r) const { return number_of(offset, r); }

 private:
  const float* number_of(const float* of_first, int64_t r) const {
    return reinterpret_cast<const float*>(reinterpret_cast<const unsigned char*>(of_first) + r * scale_stride_bytes);
  }
};

/// Counters of one feature's look-ups. Added to, never reset.
struct LookupCounters {
  int64_t ids = 0;           ///< ids looked at, padding included
  int64_t unknown = 0;       ///< ids that a hashed table does not have
  int64_t out_of_range = 0;  ///< ids outside [0, num_rows) of a direct table, padding excepted
  int64_t padding = 0;       ///< ids that are padding
  int64_t empty_bags = 0;    ///< bags without ids, or with only padding

  LookupCounters& operator+=(const LookupCounters& more) {
    ids += more.ids;
    unknown += more.unknown;
    out_of_range += more.out_of_range;
    padding += more.padding;
    empty_bags += more.empty_bags;
    return *this;
  }
};

}}  // namespace warprank::v0
