// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bytes of a blob, as docs/BATCH_FORMAT.md lists them; shared by those who read and those who write.
///
///     BlobHeader
///     u32 rows[num_axes]                     rows of each axis; 1 for the outermost
///     u32 offsets_at[num_axes]               where the axis' offsets begin; 0: it has none (BatchLayout::has_offsets)
///     u32 data_at[num_ids + num_dense]       where the input's values begin; 0: not set
///     sections, in this order, end to end:
///       u32 offsets[parent rows + 1]         of each axis that has them
///       i64 ids[rows]                        of each ids input that is set
///       f32 values[rows * width]             of each dense input that is set, row-major
///
/// Everything is little-endian. The tables together and every section are padded with zeros to a multiple of 8 bytes.
/// Positions count bytes from the beginning of the blob.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "warprank/batch/layout.hpp"

namespace warprank {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blobs are read in place and are little-endian");

/// The first 40 bytes of a blob.
struct BlobHeader {
  char magic[8];
  uint32_t version;
  uint32_t bytes;  ///< of the whole blob, a multiple of 8
  uint64_t fingerprint;
  uint32_t num_axes;
  uint32_t num_ids;
  uint32_t num_dense;
  uint32_t reserved;  ///< 0
};
static_assert(sizeof(BlobHeader) == 40, "the format fixes the header's size");

inline constexpr char blob_magic[8] = {'w', 'a', 'r', 'p', 'r', 'a', 'n', 'k'};

/// Positions are 32-bit, so a blob ends before 2^32.
inline constexpr int64_t max_blob_bytes = (int64_t{1} << 32) - 8;

namespace detail {

constexpr int64_t align_8(int64_t bytes) { return (bytes + 7) / 8 * 8; }

/// What a message is about; becomes text only where there is something to say.
struct Part {
  const char* kind = "";
  const std::string* name = nullptr;

  std::string text() const { return name == nullptr ? kind : std::string(kind) + " '" + *name + "'"; }
};

/// Where the tables that follow the header begin.
struct BlobTables {
  int64_t rows_at;
  int64_t offsets_at;
  int64_t data_at;
  int64_t end;  ///< where the first section begins

  explicit BlobTables(const BatchLayout& layout) {
    const auto num_axes = static_cast<int64_t>(layout.axes().size());
    rows_at = sizeof(BlobHeader);
    offsets_at = rows_at + 4 * num_axes;
    data_at = offsets_at + 4 * num_axes;
    end = align_8(data_at + 4 * static_cast<int64_t>(layout.ids().size() + layout.dense().size()));
  }
};

/// Reads a value at any address.
template <class Value>
Value load_unaligned(const std::byte* at) {
  Value value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// The index of the first of `count` floats, at any address, that is NaN or infinite; -1: none is.
inline int64_t find_not_finite(const std::byte* values, int64_t count) {
  constexpr uint32_t exponent = 0x7f800000;
  const auto finite = [&](int64_t i) { return (load_unaligned<uint32_t>(values + 4 * i) & exponent) != exponent; };
  bool all_finite = true;
  for (int64_t i = 0; i < count; ++i) all_finite &= finite(i);  // without an early exit it vectorises
  if (all_finite) return -1;
  int64_t i = 0;
  while (finite(i)) ++i;
  return i;
}

/// What was found where find_not_finite says.
inline std::string not_finite_text(int64_t index, int64_t width) {
  return "NaN or infinity in row " + std::to_string(index / width) + ", column " + std::to_string(index % width);
}

}  // namespace detail
}  // namespace warprank
