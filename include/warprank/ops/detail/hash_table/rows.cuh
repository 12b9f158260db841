// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows on their way into and out of a hash table. Rows of the user's may have any length and alignment that their
/// elements allow. Out of a table as many lanes share a row as it has pieces, and have several rows on their way; into
/// one, and for exports, a tile of 8 lanes moves a row, in chunks of 16 bytes (inline layout: 8), which slots are
/// multiples of.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/hash_table/find.cuh"

namespace warprank { inline namespace v0 { namespace detail::hashed {

using RowChunk = device::Vector<uint32_t, 4>;

/// The largest of 16, 4 and 2 that divides all of the numbers, of which each is even.
inline int row_unit(uint64_t address, int64_t stride_bytes, int64_t row_bytes) {
  const uint64_t all = address | static_cast<uint64_t>(stride_bytes) | static_cast<uint64_t>(row_bytes);
  return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 2;
}

/// The user's rows, of table.row_bytes each.
struct Rows {
  unsigned char* data;
  int64_t stride_bytes;
  int unit;         ///< row_unit()
  int piece_bytes;  ///< that a lane copies at once: 16, 8, 4 or 2
  int lanes_log2;   ///< lanes that share a row
};

/// The user's rows as they are copied from slots `slot_stride` apart.
inline Rows make_rows(unsigned char* data, int64_t stride_bytes, int64_t row_bytes, int64_t slot_stride) {
  const int64_t all = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % 16) | stride_bytes | row_bytes;
  Rows rows{data, stride_bytes, row_unit(reinterpret_cast<uintptr_t>(data), stride_bytes, row_bytes), 16, 0};
  while ((all | slot_stride) % rows.piece_bytes != 0) rows.piece_bytes /= 2;
  const int64_t step = rows.piece_bytes < 4 ? 4 : rows.piece_bytes;  // nothing narrower is read of a table
  while (rows.lanes_log2 < 5 && step << rows.lanes_log2 < row_bytes) ++rows.lanes_log2;
  return rows;
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

/// Copies a row of the table to the user's memory. A tile calls.
WARPRANK_DEVICE void copy_row(const HashTableView& table, const unsigned char* row, unsigned char* to, int unit) {
  const int num_words = table.shape.layout == hash_table::Layout::header ? 4 : 2;
  const int step = LineTile::size * 4 * num_words, row_bytes = static_cast<int>(table.row_bytes);
  for (int at = LineTile::rank() * 4 * num_words; at < row_bytes; at += step) {
    store_chunk(to, unit, at, row_bytes, load_table_chunk(table, row, at), num_words);
  }
}

/// Copies the row of each lane, where it has one, to row first + its lane of the user's. All lanes of the warp call.
template <int PieceBytes>
WARPRANK_DEVICE void copy_rows(const HashTableView& table, const unsigned char* row, const Rows& rows, int64_t first) {
  using namespace device;  // NOLINT: a device function
  constexpr int in_flight = 4, words = PieceBytes < 4 ? 1 : PieceBytes / 4, step = 4 * words;
  using Piece = Vector<uint32_t, words>;
  const int lanes = 1 << rows.lanes_log2, groups = warp_size >> rows.lanes_log2;
  const int lane = fresh_thread_rank() % warp_size, group = lane >> rows.lanes_log2, rank = lane & (lanes - 1);
  const int row_bytes = static_cast<int>(table.row_bytes);
  for (int at = rank * step; any(full_warp, at < row_bytes); at += warp_size * step) {
    for (int begin = 0; begin < warp_size; begin += in_flight * groups) {
      Piece pieces[in_flight];
      uint32_t has = 0;
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) {
        const int source = begin + k * groups + group;
        const uint64_t from = shuffle(full_warp, reinterpret_cast<uint64_t>(row), source % warp_size);
        if (from == 0 || source >= warp_size || at >= row_bytes) continue;
        const auto* piece = reinterpret_cast<const Piece*>(reinterpret_cast<const unsigned char*>(from) + at);
        pieces[k] = table.is_mutable ? load<Order::relaxed, Scope::device>(piece) : load_constant(piece);
        has |= 1u << k;
      }
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) {
        if ((has >> k & 1) == 0) continue;
        unsigned char* const to = rows.data + (first + begin + k * groups + group) * rows.stride_bytes + at;
        if constexpr (PieceBytes >= 4) {
          store(reinterpret_cast<Piece*>(to), pieces[k]);
        } else {
          auto* const halves = reinterpret_cast<uint16_t*>(to);
          store(halves, static_cast<uint16_t>(pieces[k][0] & 0xffffu));
          if (at + 2 < row_bytes) store(halves + 1, static_cast<uint16_t>(pieces[k][0] >> 16));
        }
      }
    }
  }
}

}}}  // namespace warprank::v0::detail::hashed
