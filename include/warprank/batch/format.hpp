// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bytes of a blob, as docs/BATCH_FORMAT.md lists them; shared by readers and writers.
///
///     BlobHeader
///     u32 rows[num_axes]                     rows of each axis; 1 for the outermost
///     u32 offsets_at[num_axes]               where the axis' offsets begin; 0: it has none (BatchLayout::has_offsets)
///     u32 data_at[num_ids + num_dense]       where the input's values begin; 0: not set
///     u8 types[num_ids + num_dense]          from version 2 on: IdsWire, DenseWire of each input
///     sections, in this order, end to end:
///       u32 offsets[parent rows + 1]         of each axis that has them
///       i64 or i32 ids[rows]                 of each ids input that is set
///       f32, f16 or bf16 values[rows*width]  of each dense input that is set, row-major
///
/// Everything is little-endian. The tables together and every section are padded with zeros to a multiple of 8 bytes.
/// Positions count bytes from the beginning of the blob.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "warprank/batch/layout.hpp"

namespace warprank { inline namespace v0 {

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

/// The subject of a message; it becomes text only if there is a message.
struct Part {
  const char* kind = "";
  const std::string* name = nullptr;

  std::string text() const { return name == nullptr ? kind : std::string(kind) + " '" + *name + "'"; }
};

/// The beginnings of the tables behind the header.
struct BlobTables {
  int64_t rows_at;
  int64_t offsets_at;
  int64_t data_at;
  int64_t types_at;  ///< of version 2; where the tables end otherwise
  int64_t values_end;
  int64_t end;  ///< where the first section begins

  BlobTables(const BatchLayout& layout, uint32_t version) {
    const auto num_axes = static_cast<int64_t>(layout.axes().size());
    const auto num_inputs = static_cast<int64_t>(layout.ids().size() + layout.dense().size());
    rows_at = sizeof(BlobHeader);
    offsets_at = rows_at + 4 * num_axes;
    data_at = offsets_at + 4 * num_axes;
    types_at = data_at + 4 * num_inputs;
    values_end = types_at + (version >= 2 ? num_inputs : 0);
    end = align_8(values_end);
  }
  explicit BlobTables(const BatchLayout& layout) : BlobTables(layout, layout.version()) {}
};

/// Writes the types of a layout's inputs to the table of version 2.
inline void write_types(const BatchLayout& layout, std::byte* to) {
  for (const IdsInfo& info : layout.ids()) *to++ = static_cast<std::byte>(info.wire);
  for (const DenseInfo& info : layout.dense()) *to++ = static_cast<std::byte>(info.wire);
}

/// Writes the header of a blob of the layout's types.
inline void write_header(const BatchLayout& layout, int64_t bytes, std::byte* to) {
  BlobHeader header{};
  std::memcpy(header.magic, blob_magic, sizeof blob_magic);
  header.version = layout.version();
  header.bytes = static_cast<uint32_t>(bytes);
  header.fingerprint = layout.fingerprint();
  header.num_axes = static_cast<uint32_t>(layout.axes().size());
  header.num_ids = static_cast<uint32_t>(layout.ids().size());
  header.num_dense = static_cast<uint32_t>(layout.dense().size());
  std::memcpy(to, &header, sizeof header);
}

/// Reads a value at any address.
template <class Value>
Value load_unaligned(const std::byte* at) {
  Value value;
  std::memcpy(static_cast<void*>(&value), at, sizeof value);
  return value;
}

/// The index of the first of `count` values whose bits have all of `exponent` set; -1: none has.
template <class Bits>
int64_t find_not_finite(const std::byte* values, int64_t count, Bits exponent) {
  const auto finite = [&](int64_t i) {
    return (load_unaligned<Bits>(values + static_cast<int64_t>(sizeof(Bits)) * i) & exponent) != exponent;
  };
  bool all_finite = true;
  for (int64_t i = 0; i < count; ++i) all_finite &= finite(i);  // without an early exit it vectorises
  if (all_finite) return -1;
  int64_t i = 0;
  while (finite(i)) ++i;
  return i;
}

/// The index of the first of `count` values of a type, at any address, that is NaN or infinite; -1: none is.
inline int64_t find_not_finite(const std::byte* values, int64_t count, DenseWire type) {
  switch (type) {
    case DenseWire::f32:
      return find_not_finite<uint32_t>(values, count, 0x7f800000);
    case DenseWire::f16:
      return find_not_finite<uint16_t>(values, count, 0x7c00);
    case DenseWire::bf16:
      return find_not_finite<uint16_t>(values, count, 0x7f80);
  }
  return -1;
}

/// Names a value of an input by its row and column.
inline std::string place_text(int64_t index, int64_t width) {
  return "row " + std::to_string(index / width) + ", column " + std::to_string(index % width);
}

}  // namespace detail
}}  // namespace warprank::v0
