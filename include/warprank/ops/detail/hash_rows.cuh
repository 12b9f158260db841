// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows on their way into and out of a hash table. A tile of 8 lanes moves one, in chunks of 16 bytes (inline layout:
/// 8), which slots are multiples of; rows of the user's may have any length and alignment that their elements allow.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/hash_find.cuh"

namespace warprank::detail {

using RowChunk = device::Vector<uint32_t, 4>;

/// The largest of 16, 4 and 2 that divides all of the numbers, of which each is even.
inline int row_unit(uint64_t address, int64_t stride_bytes, int64_t row_bytes) {
  const uint64_t all = address | static_cast<uint64_t>(stride_bytes) | static_cast<uint64_t>(row_bytes);
  return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 2;
}

/// A row of the user's that is read.
struct GivenRow {
  const unsigned char* data;
  int unit;  ///< row_unit()
};

/// Bytes [at, at + 16) of the row, zeros behind its end.
WARPRANK_DEVICE RowChunk load_chunk(const GivenRow& row, int at, int row_bytes) {
  using namespace device;  // NOLINT: a device function
  RowChunk chunk{};
  if (row.unit == 16) return load_vector<4>(reinterpret_cast<const uint32_t*>(row.data + at));
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int byte = at + 4 * i;
    if (row.unit == 4) {
      if (byte < row_bytes) chunk[i] = load(reinterpret_cast<const uint32_t*>(row.data + byte));
    } else {
      const auto* pair = reinterpret_cast<const uint16_t*>(row.data + byte);
      if (byte < row_bytes) chunk[i] = load(pair);
      if (byte + 2 < row_bytes) chunk[i] |= static_cast<uint32_t>(load(pair + 1)) << 16;
    }
  }
  return chunk;
}

/// The same, to the user's memory; at most 16 bytes.
WARPRANK_DEVICE void store_chunk(unsigned char* row, int unit, int at, int row_bytes, const RowChunk& chunk,
                                 int num_words) {
  using namespace device;  // NOLINT: a device function
  if (unit == 16 && num_words == 4) return store_vector(reinterpret_cast<uint32_t*>(row + at), chunk);
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int byte = at + 4 * i;
    if (i >= num_words || byte >= row_bytes) continue;
    if (unit != 2) {
      store(reinterpret_cast<uint32_t*>(row + byte), chunk[i]);
    } else {
      auto* pair = reinterpret_cast<uint16_t*>(row + byte);
      store(pair, static_cast<uint16_t>(chunk[i] & 0xffffu));
      if (byte + 2 < row_bytes) store(pair + 1, static_cast<uint16_t>(chunk[i] >> 16));
    }
  }
}

/// Writes a row into a slot of the header layout, padding included. Weak stores: nobody reads the slot.
WARPRANK_DEVICE void write_row(const HashTableView& table, uint64_t bucket, int slot, const GivenRow& row) {
  unsigned char* to = table.row(bucket, slot);
  for (int at = LineTile::rank() * 16; at < table.shape.row_stride; at += LineTile::size * 16) {
    device::store_vector(reinterpret_cast<uint32_t*>(to + at), load_chunk(row, at, static_cast<int>(table.row_bytes)));
  }
}

/// Loads the tile's part of a row of the table, from byte `at`.
WARPRANK_DEVICE RowChunk load_table_chunk(const HashTableView& table, const unsigned char* row, int at) {
  using namespace device;  // NOLINT: a device function
  if (table.is_mutable) return load<Order::relaxed, Scope::device>(reinterpret_cast<const RowChunk*>(row + at));
  const auto* words = reinterpret_cast<const uint32_t*>(row + at);
  if (table.shape.layout == hash_table::Layout::header) return load_vector_constant<4>(words);
  const auto half = load_vector_constant<2>(words);
  return {{half[0], half[1], 0, 0}};
}

/// Copies a row of the table to the user's memory, from chunk `first` of each lane on.
WARPRANK_DEVICE void copy_row(const HashTableView& table, const unsigned char* row, unsigned char* to, int unit,
                              int first = 0) {
  const int num_words = table.shape.layout == hash_table::Layout::header ? 4 : 2;
  const int step = LineTile::size * 4 * num_words, row_bytes = static_cast<int>(table.row_bytes);
  for (int at = LineTile::rank() * 4 * num_words + first * step; at < row_bytes; at += step) {
    store_chunk(to, unit, at, row_bytes, load_table_chunk(table, row, at), num_words);
  }
}

/// Copies the row of each lane of the tile, where it has one, to `to` + its place in the tile * stride. The beginnings
/// of several rows are on their way together.
WARPRANK_DEVICE void copy_rows(const HashTableView& table, const unsigned char* row, unsigned char* to,
                               int64_t stride_bytes, int unit) {
  constexpr int in_flight = 4;
  const int num_words = table.shape.layout == hash_table::Layout::header ? 4 : 2;
  const int at = LineTile::rank() * 4 * num_words, row_bytes = static_cast<int>(table.row_bytes);
  const auto row_of = [row](int lane) {
    return reinterpret_cast<const unsigned char*>(LineTile::shuffle(reinterpret_cast<uint64_t>(row), lane));
  };
  for (int begin = 0; begin < LineTile::size; begin += in_flight) {
    RowChunk chunks[in_flight] = {};
    WARPRANK_UNROLL
    for (int i = 0; i < in_flight; ++i) {
      const unsigned char* from = row_of(begin + i);
      if (from != nullptr && at < row_bytes) chunks[i] = load_table_chunk(table, from, at);
    }
    WARPRANK_UNROLL
    for (int i = 0; i < in_flight; ++i) {
      const unsigned char* from = row_of(begin + i);
      if (from == nullptr) continue;
      unsigned char* copied = to + (begin + i) * stride_bytes;
      if (at < row_bytes) store_chunk(copied, unit, at, row_bytes, chunks[i], num_words);
      copy_row(table, from, copied, unit, 1);
    }
  }
}

}  // namespace warprank::detail
