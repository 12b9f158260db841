// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A row as a store keeps it: 8 bytes that distinguish it from all else, then the row.
///
///     byte 0      0xA7
///     byte 1      1, the version of this format
///     byte 2      type of the row: 0 F32, 1 F16, 2 BF16, 3 I8
///     byte 3      0
///     bytes 4-7   checksum of row, key, type and dim, little-endian
///     bytes 8-    the row
///
/// So a value that is cut off, of another type or dim, or under another key is detected, and never taken for a row.

#include <cstdint>
#include <cstring>

#include "warprank/core/view.hpp"
#include "warprank/hash_table/detail/checksum.hpp"
#include "warprank/store/parameter_store.hpp"

namespace warprank { inline namespace v0 {

inline constexpr int64_t stored_header_bytes = 8;

/// The size of a stored row, header included.
inline int64_t stored_value_bytes(const StoredRows& rows) { return stored_header_bytes + rows.row_bytes(); }

namespace detail {

inline void write_stored_header(const StoredRows& rows, int64_t key, const unsigned char* row, unsigned char* header) {
  uint64_t hash = checksum_of_block(row, rows.row_bytes());
  hash = checksum_mix(hash, static_cast<uint64_t>(key));
  hash = checksum_mix(hash, static_cast<uint64_t>(rows.dim) << 8 | static_cast<uint64_t>(rows.type));
  const auto checksum = static_cast<uint32_t>(hash ^ hash >> 32);
  header[0] = 0xA7;
  header[1] = 1;
  header[2] = static_cast<unsigned char>(rows.type);
  header[3] = 0;
  std::memcpy(header + 4, &checksum, 4);
}

}  // namespace detail

/// Writes stored_value_bytes(rows) bytes to `value`.
inline void write_stored_value(const StoredRows& rows, int64_t key, const unsigned char* row, unsigned char* value) {
  detail::write_stored_header(rows, key, row, value);
  std::memcpy(value + stored_header_bytes, row, static_cast<size_t>(rows.row_bytes()));
}

/// Whether the value is a row of this key, type and dim; only then is `row` written.
inline bool read_stored_value(const StoredRows& rows, int64_t key, Span<const unsigned char> value,
                              unsigned char* row) {
  if (value.size() != stored_value_bytes(rows)) return false;
  unsigned char expected[stored_header_bytes];
  const unsigned char* stored = value.data() + stored_header_bytes;
  detail::write_stored_header(rows, key, stored, expected);
  if (std::memcmp(value.data(), expected, stored_header_bytes) != 0) return false;
  std::memcpy(row, stored, static_cast<size_t>(rows.row_bytes()));
  return true;
}

}}  // namespace warprank::v0
