// SPDX-License-Identifier: Apache-2.0
#pragma once

/// I8 rows with scale and offset behind the values, as direct tables are on GPUs:
///
///     [dim] I8 values, zeros up to a multiple of 8, F32 scale, F32 offset
///
/// A row of 128 columns then lies in 5 neighbouring sectors of 32 bytes. With separate arrays of scales and offsets it
/// would take 6 sectors, two of them elsewhere. A row of 16 columns lies in 1 or 2 sectors in place of 3. One load
/// reads scale and offset. If dim is a multiple of 8, rows take no more memory than with separate arrays. TableView
/// also takes any other stride.
///
///     Buffer<unsigned char> rows(table.num_rows * scaled_row_bytes(table.dim));
///     to_scaled_rows(table, 0, table.num_rows, rows.data());
///     TableView view = view_scaled_rows(rows.data(), table.num_rows, table.dim);  // the rows may be copied elsewhere

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 {

/// Bytes from one row to the next.
constexpr int64_t scaled_row_bytes(int64_t dim) { return (dim + 7) / 8 * 8 + 8; }

/// A view of such rows in any memory, without a default row. `rows` is aligned to 4; if it is aligned to 8, scale and
/// offset are read together.
inline TableView view_scaled_rows(const void* rows, int64_t num_rows, int64_t dim) {
  TableView view;
  view.type = DType::i8;
  view.rows = rows;
  view.num_rows = num_rows;
  view.dim = dim;
  view.row_stride_bytes = view.scale_stride_bytes = scaled_row_bytes(dim);
  if (rows == nullptr) return view;
  const auto* const numbers = static_cast<const unsigned char*>(rows) + view.row_stride_bytes - 8;
  view.scale = reinterpret_cast<const float*>(numbers);
  view.offset = view.scale + 1;
  return view;
}

namespace detail {

/// Computes scale, offset and the values q, so that scale q + offset is nearest to x.
inline void quantize_row(Span<const float> x, unsigned char* q, float& scale, float& offset) {
  constexpr double lowest = -128, highest = 127;
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  scale = static_cast<float>((static_cast<double>(*most) - *least) / (highest - lowest));
  offset = static_cast<float>(*least - lowest * scale);
  for (int64_t c = 0; c < x.size(); ++c) {
    const double nearest = scale == 0 ? 0 : std::nearbyint((static_cast<double>(x[c]) - offset) / scale);
    q[c] = static_cast<unsigned char>(static_cast<signed char>(std::clamp(nearest, lowest, highest)));
  }
}

/// The elements of row r of F32, F16 or BF16, at any address.
template <class Value>
void decode_row(const TableView& table, int64_t r, std::vector<float>& x) {
  for (size_t c = 0; c < x.size(); ++c) {
    Value value;
    std::memcpy(&value, table.row(r) + c * sizeof value, sizeof value);
    x[c] = to_float(value);
  }
}

inline void check_scaled_rows(const TableView& table, int64_t first, int64_t count) {
  Problems problems;
  const bool has_type = size_of(table.type) > 0 && table.type != DType::i64;
  if (!has_type) problems.add("scaled rows: type", "F32, F16, BF16 or I8", name_of(table.type));
  constexpr int64_t most = int64_t{1} << 40;
  if (table.dim < 1 || table.dim > most) problems.add("scaled rows: dim", "1 to 2^40", std::to_string(table.dim));
  if (has_type && count > 1 && table.dim <= most && table.row_stride_bytes < table.row_bytes())
    problems.add("scaled rows: row stride", "at least " + std::to_string(table.row_bytes()) + " bytes",
                 std::to_string(table.row_stride_bytes));
  if (table.type == DType::i8 && count > 1 && table.scale_stride_bytes < 4)
    problems.add("scaled rows: scale stride", "at least 4 bytes", std::to_string(table.scale_stride_bytes));
  if (first < 0 || count < 0 || count > table.num_rows - first) {
    problems.add("scaled rows: rows", "some of " + std::to_string(table.num_rows),
                 std::to_string(count) + " from " + std::to_string(first) + " on");
  }
  if (count > 0 && table.rows == nullptr) problems.add("scaled rows: rows", "memory", "null");
  if (count > 0 && table.type == DType::i8 && (table.scale == nullptr || table.offset == nullptr)) {
    problems.add("scaled rows: scale and offset", "those of I8 rows", "null");
  }
  problems.throw_if_any();
}

}  // namespace detail

/// Writes rows [first, first + count) of a table in the host's memory, at any address, to `to`, scaled_row_bytes(dim)
/// each. Values, scales and offsets of I8 are copied unchanged. A row of F32, F16 or BF16 becomes 256 levels from its
/// least element to its largest: an element errs by at most half a level, 2 u of the row's largest magnitude, u =
/// 2^-24, and 2^-142; a row of equal elements has no error.
///
/// Throws invalid_argument for rows outside of the table and for a view that is not valid. Also throws it, after
/// writing the rows before, for a row with an element that is not finite.
inline void to_scaled_rows(const TableView& table, int64_t first, int64_t count, unsigned char* to) {
  detail::check_scaled_rows(table, first, count);
  const int64_t dim = table.dim, bytes = scaled_row_bytes(dim);
  std::vector<float> x(table.type == DType::i8 ? 0 : static_cast<size_t>(dim));
  for (int64_t r = first; r < first + count; ++r, to += bytes) {
    float scale = 0, offset = 0;
    if (table.type == DType::i8) {
      std::memcpy(to, table.row(r), static_cast<size_t>(dim));
      std::memcpy(&scale, table.scale_of(r), sizeof scale);
      std::memcpy(&offset, table.offset_of(r), sizeof offset);
    } else {
      if (table.type == DType::f32) detail::decode_row<float>(table, r, x);
      if (table.type == DType::f16) detail::decode_row<float16>(table, r, x);
      if (table.type == DType::bf16) detail::decode_row<bfloat16>(table, r, x);
      if (!std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); })) {
        raise(invalid_argument("scaled rows: row " + std::to_string(r), "finite elements", "one that is not"));
      }
      detail::quantize_row(x, to, scale, offset);
    }
    std::memset(to + dim, 0, static_cast<size_t>(bytes - 8 - dim));
    std::memcpy(to + bytes - 8, &scale, sizeof scale);
    std::memcpy(to + bytes - 4, &offset, sizeof offset);
  }
}

}}  // namespace warprank::v0
