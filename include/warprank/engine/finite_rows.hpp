// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds rows of tables that have NaN or infinity: a score that reads such a row is not a number, and nothing else
/// gives the reason.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/pace.hpp"
#include "warprank/hash_table/detail/parallel.hpp"
#include "warprank/hash_table/find.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/view.hpp"
#include "warprank/weights/tensor.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// The number of rows with NaN or infinity, and the first of them, by number or key.
struct UnusableRows {
  int64_t count = 0, first = std::numeric_limits<int64_t>::max();

  void add(int64_t row) {
    ++count;
    first = std::min(first, row);
  }
  void add(const UnusableRows& other) {
    count += other.count;
    first = std::min(first, other.first);
  }
  /// `what`: "row" or "key".
  void report(const std::string& table, const char* what, Problems& problems) const {
    if (count == 0) return;
    problems.add("table '" + table + "', " + what + " " + std::to_string(first), "finite numbers",
                 "NaN or infinity, as in " + std::to_string(count) + (count == 1 ? " row" : " rows"));
  }
};

/// Numbers are finite if not all bits of their exponents are set. At any address.
template <class Bits>
bool are_finite(const void* values, int64_t count, Bits exponent) {
  Bits is_bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const char*>(values) + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    is_bad = static_cast<Bits>(is_bad | static_cast<Bits>((bits & exponent) == exponent));
  }
  return is_bad == 0;
}
inline bool are_finite(DType type, const void* values, int64_t count) {
  if (type == DType::f32) return are_finite<uint32_t>(values, count, 0x7f800000);
  if (type == DType::f16) return are_finite<uint16_t>(values, count, 0x7c00);
  return type != DType::bf16 || are_finite<uint16_t>(values, count, 0x7f80);
}

/// Adds up the results of `find(begin, end)` for parts of [0, count), elements of `bytes` each, on all cores or at a
/// pace.
template <class Find>
UnusableRows find_unusable(int64_t count, int64_t bytes, const Pace& pace, const Find& find) {
  UnusableRows all;
  std::mutex mutex;
  const Parts parts(count, (int64_t{1} << 20) / std::max<int64_t>(bytes, 1) + 1, int64_t{1} << 20);
  parallel_for(parts.size(), pace.is_limited() ? 1 : threads_for(0), [&](int64_t part) {
    const UnusableRows found = find(parts.begin(part), parts.end(part));
    rest();
    if (found.count == 0) return;
    const std::lock_guard<std::mutex> lock(mutex);
    all.add(found);
  });
  return all;
}

/// For rows as tensors, I8 with scale and offset.
inline UnusableRows unusable_rows(const TensorView& rows, const TensorView* scale, const TensorView* offset,
                                  const Pace& pace) {
  const int64_t dim = rows.shape[1], row_bytes = dim * size_of(*rows.dtype);
  return find_unusable(rows.shape[0], row_bytes, pace, [&](int64_t begin, int64_t end) {
    UnusableRows found;
    for (int64_t r = begin; r < end; ++r) {
      const bool is_usable = are_finite(*rows.dtype, rows.data + r * row_bytes, dim) &&
                             (scale == nullptr || are_finite(DType::f32, scale->data + 4 * r, 1)) &&
                             (offset == nullptr || are_finite(DType::f32, offset->data + 4 * r, 1));
      if (!is_usable) found.add(r);
    }
    return found;
  });
}

/// For an image that was checked to be a hashed table; first is a key.
inline UnusableRows unusable_rows(const HashTableView& table, const Pace& pace) {
  using namespace hash_table;
  const bool is_inline = table.shape.layout == hash_table::Layout::in_line;
  const auto is_usable = [&](const unsigned char* row) {
    return table.type == DType::i8 ? are_finite(DType::f32, row + table.row_bytes - 8, 2)
                                   : are_finite(table.type, row, table.dim);
  };
  return find_unusable(
      static_cast<int64_t>(table.num_buckets()), table.shape.bucket_bytes, pace, [&](int64_t begin, int64_t end) {
        UnusableRows found;
        for (auto b = static_cast<uint64_t>(begin); b < static_cast<uint64_t>(end); ++b) {
          const uint64_t* const line = table.line(b);
          const uint64_t map = map_of(table.shape, line);
          const uint64_t held = is_inline ? map & ~(uint64_t{255} << 56) : held_positions(map);
          for (int place = 0; place < table.shape.num_keys(); ++place)
            if ((held >> place & 1) != 0 && !is_usable(table.row(b, is_inline ? place : slot_at(map, place))))
              found.add(static_cast<int64_t>(line[key_word(table.shape, place)]));
        }
        return found;
      });
}

}}}  // namespace warprank::v0::detail
