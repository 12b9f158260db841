// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the parts of the chained DIN kernel share, and how a unit comes into shared memory.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/async_copy.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/common/item_units.cuh"
#include "warprank/ops/detail/din_attention/chained/layout.hpp"
#include "warprank/ops/detail/din_attention/chained/unit.cuh"
#include "warprank/ops/detail/din_attention/rows.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"

namespace warprank::detail::din::chained {

/// A history as it lies in device memory.
struct alignas(16) Descriptor {
  Rows q, k;
  Rows added;  ///< to k; no data: nothing
  Operand<void> y;
  ItemsAndEvents axes;
  const unsigned char* weights = nullptr;  ///< see Shape
  float head_bias = 0;
  float factor = 1;         ///< of scores
  uint32_t safe_query = 0;  ///< bits of the largest |q|, a half, with which no W(q) is too large for a half
  Normalization normalization = Normalization::none;
  int dim = 0;
  int chunks = 0;  ///< of 16 outputs of the first layer
  Places places;
};

/// The start of shared memory. The unit lies here once its rows have been requested, so that it needs no registers.
struct Header {
  Descriptor descriptor;
  Unit unit;
};
static_assert(sizeof(Header) <= header_bytes);

/// Of 16 events and an item: their weights are multiplied by 2^exponent or relative to the largest score.
struct Tile {
  float top;  ///< softmax: largest score; else what the weights are to be multiplied by
  float sum;  ///< softmax: of the weights
};

using Fragment = device::Vector<uint32_t, 4>;  ///< what a lane has of two B fragments, or of one A fragment
using FloatPair = device::Vector<float, 2>;

/// `Steps` x 16 columns, `Pairs` x 16 outputs of the second layer.
template <int Target, int Steps, int Pairs, bool IsDice, int Tiles = tiles_at_once(Target, Steps, Pairs)>
struct Block {
  static constexpr int target = Target, steps = Steps, pairs = Pairs, tiles = Tiles;
  static constexpr bool is_dice = IsDice;
  static constexpr int columns = Steps * 16, row_stride = columns + row_padding;
  static constexpr int at_once = Target >= 80 ? 1 : 4;  ///< loads in flight where copies are loads

  Header& header;
  const Descriptor& d;

  explicit WARPRANK_DEVICE Block(Header& header) : header(header), d(header.descriptor) {}

  /// What lies at a place of shared memory.
  template <class Value>
  WARPRANK_DEVICE Value* at(int place) const {
    return reinterpret_cast<Value*>(reinterpret_cast<unsigned char*>(&header) + place);
  }
  template <class Value>
  WARPRANK_DEVICE const Value* weights(int place) const {
    return at<const Value>(d.places.weights + place);
  }
  WARPRANK_DEVICE Shape shape() const { return {d.chunks, Steps, Pairs, IsDice}; }

  /// How many events of the chunk that begins with event `first` there are.
  WARPRANK_DEVICE int chunk_size(const Unit& unit, int first) const {
    const int left = unit.num_events - first;
    return left < d.places.chunk_events ? left : d.places.chunk_events;
  }

  /// Requests all weights that lie in shared memory.
  WARPRANK_DEVICE void copy_weights() const {
    const int pieces = shape().query() / 16;
    auto* const to = at<unsigned char>(d.places.weights);
    if constexpr (Target >= 80) {
      for (int i = device::thread_rank(); i < pieces; i += block_threads)
        device::copy_async(to + i * 16, d.weights + i * 16);
      device::commit_async();
    } else {
      for (int begin = device::thread_rank(); begin < pieces; begin += block_threads * at_once) {
        device::Vector<unsigned char, 16> values[at_once];
        WARPRANK_UNROLL
        for (int i = 0; i < at_once; ++i) {
          const int piece = begin + i * block_threads;
          if (piece < pieces) values[i] = device::load_vector_read_only<16>(d.weights + piece * 16);
        }
        WARPRANK_UNROLL
        for (int i = 0; i < at_once; ++i) {
          const int piece = begin + i * block_threads;
          if (piece < pieces) *reinterpret_cast<device::Vector<unsigned char, 16>*>(to + piece * 16) = values[i];
        }
      }
    }
  }

  /// Requests rows of the history; those behind the last event, to a whole tile, and columns behind the last are zeros.
  WARPRANK_DEVICE void copy_history(int64_t first_row, int count) const {
    if (d.added.data != nullptr) return add_histories(first_row, count);
    constexpr int per_row = columns / 8;
    const int pieces = (count + tile_events - 1) / tile_events * tile_events * per_row;
    half* const to = at<half>(d.places.history);
    const half* const from = d.k.data + first_row * d.k.stride;
    for (int begin = device::thread_rank(); begin < pieces; begin += block_threads * at_once) {
      device::Vector<half, 8> values[at_once];
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int piece = begin + i * block_threads, row = piece / per_row, column = piece % per_row * 8;
        if (Target >= 80 && row < count && is_whole(d.k, column))
          device::copy_async(&to[row * row_stride + column], from + row * d.k.stride + column);
        else
          values[i] = load_piece(d.k, from + row * d.k.stride + column, column, row < count);
      }
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int piece = begin + i * block_threads, row = piece / per_row, column = piece % per_row * 8;
        if (piece < pieces && (Target < 80 || row >= count || !is_whole(d.k, column)))
          *reinterpret_cast<device::Vector<half, 8>*>(&to[row * row_stride + column]) = values[i];
      }
    }
    device::commit_async();
  }

  /// What a thread has of the unit's queries.
  struct QueryPiece {
    device::Vector<half, 8> values;
    int item, column;
  };
  WARPRANK_DEVICE QueryPiece load_queries(const Unit& unit) const {
    static_assert(max_unit_items * columns / 8 <= block_threads, "one piece for each thread");
    QueryPiece piece;
    piece.item = device::thread_rank() / (columns / 8), piece.column = device::thread_rank() % (columns / 8) * 8;
    const bool exists = piece.item < unit.num_items;
    const int64_t row = unit.first_item + (exists ? piece.item : 0);
    piece.values = load_piece(d.q, d.q.data + row * d.q.stride + piece.column, piece.column, exists);
    return piece;
  }
  /// Stores it; true where a folded weight may be too large for a half.
  WARPRANK_DEVICE bool store_queries(const QueryPiece& piece) const {
    if (piece.item >= max_unit_items) return false;
    auto* const to = at<uint32_t>(d.places.queries) + piece.item * (columns / 2) + piece.column / 8;
    uint32_t most = 0;
    WARPRANK_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = piece.values[2 * i].bits, high = piece.values[2 * i + 1].bits;
      to[i * 2 * Steps] = low | high << 16;
      const uint32_t low_size = low & 0x7fffu, high_size = high & 0x7fffu;
      most = most < low_size ? low_size : most;
      most = most < high_size ? high_size : most;
    }
    return most > d.safe_query;
  }

 private:
  /// The same of a sum, which goes through registers.
  WARPRANK_DEVICE void add_histories(int64_t first_row, int count) const {
    constexpr int per_row = columns / 8, sums_at_once = 2;  // 4 spill where D is 64
    const int pieces = (count + tile_events - 1) / tile_events * tile_events * per_row;
    half* const to = at<half>(d.places.history);
    for (int begin = device::thread_rank(); begin < pieces; begin += block_threads * sums_at_once) {
      device::Vector<half, 8> parts[sums_at_once][2];
      WARPRANK_UNROLL
      for (int i = 0; i < sums_at_once; ++i) {
        const int piece = begin + i * block_threads, row = piece / per_row, column = piece % per_row * 8;
        const auto load = [&](const Rows& rows) {
          return load_piece(rows, rows.data + (first_row + row) * rows.stride + column, column, row < count);
        };
        parts[i][0] = load(d.k), parts[i][1] = load(d.added);
      }
      WARPRANK_UNROLL
      for (int i = 0; i < sums_at_once; ++i) {
        const int piece = begin + i * block_threads;
        if (piece >= pieces) break;
        device::store_vector(&to[piece / per_row * row_stride + piece % per_row * 8], sum_of(parts[i][0], parts[i][1]));
      }
    }
  }

  /// Whether 8 columns can be read by one instruction.
  WARPRANK_DEVICE bool is_whole(const Rows& rows, int column) const { return rows.is_aligned && column + 8 <= d.dim; }

  WARPRANK_DEVICE device::Vector<half, 8> load_piece(const Rows& rows, const half* from, int column,
                                                     bool exists) const {
    if (exists && is_whole(rows, column)) return device::load_vector<8>(from);
    device::Vector<half, 8> piece;
    WARPRANK_UNROLL
    for (int i = 0; i < 8; ++i) {
      piece[i] = half{};
      if (exists && column + i < d.dim) piece[i] = device::load(from + i);
    }
    return piece;
  }
};

}  // namespace warprank::detail::din::chained
