// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the parts of the chained DIN kernel share, and how a unit comes into shared memory.

#include <cstdint>
#include <cstring>

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

namespace warprank { inline namespace v0 { namespace detail::din::chained {

/// What every thread loads of a history for itself, before the rest is in shared memory.
struct alignas(16) Start {
  ItemsAndEvents axes;
  const unsigned char* weights = nullptr;  ///< see Shape
  int chunks = 0;                          ///< of 16 outputs of the first layer
  int dim = 0;
  float head_bias = 0;
  float factor = 1;  ///< of scores
};
WARPRANK_DEVICE Start load_start(const Start* from) {
  using Words = device::Vector<uint32_t, 4>;
  constexpr int pieces = sizeof(Start) / sizeof(Words);
  Words words[pieces];
  WARPRANK_UNROLL
  for (int i = 0; i < pieces; ++i) words[i] = device::load_read_only(reinterpret_cast<const Words*>(from) + i);
  Start start;
  std::memcpy(&start, words, sizeof start);
  start.axes.num_parents = device::global(start.axes.num_parents);
  start.axes.item_offsets = device::global(start.axes.item_offsets);
  start.axes.history_offsets = device::global(start.axes.history_offsets);
  return start;
}

/// A history as it lies in device memory.
struct alignas(16) Descriptor : Start {
  Rows q, k;
  Rows added;  ///< to k; no data: nothing
  gemm::Operand<void> y;
  uint32_t safe_query = 0;  ///< bits of the largest |q|, a half, with which no W(q) is too large for a half
  Normalization normalization = Normalization::none;
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
    return at<const Value>(header_bytes + place);
  }
  WARPRANK_DEVICE Shape shape() const { return shape_of(d.chunks); }
  static WARPRANK_DEVICE Shape shape_of(int chunks) { return {chunks, Steps, Pairs, IsDice}; }

  /// How many events of the chunk that begins with event `first` there are.
  WARPRANK_DEVICE int chunk_size(int num_events, int first) const {
    const int left = num_events - first;
    return left < d.places.chunk_events ? left : d.places.chunk_events;
  }

  /// Requests all weights that lie in shared memory.
  WARPRANK_DEVICE void copy_weights(const unsigned char* weights, int chunks) const {
    constexpr int at_once = Target >= 80 ? 1 : Steps > 2 ? 6 : 4;
    const int pieces = shape_of(chunks).query() / 16;
    auto* to = at<Fragment>(header_bytes) + device::thread_rank();
    const auto* from = device::global(reinterpret_cast<const Fragment*>(weights)) + device::thread_rank();
    for (int left = pieces - device::thread_rank(); left > 0; left -= block_threads * at_once) {
      if constexpr (Target >= 80) {
        device::copy_async(to, from);
      } else {
        Fragment values[at_once];
        WARPRANK_UNROLL
        for (int i = 0; i < at_once; ++i)
          if (i * block_threads < left) values[i] = device::load_read_only(from + i * block_threads);
        WARPRANK_UNROLL
        for (int i = 0; i < at_once; ++i)
          if (i * block_threads < left) to[i * block_threads] = values[i];
      }
      from += block_threads * at_once, to += block_threads * at_once;
    }
    device::commit_async();
  }

  /// Requests rows of the history; those behind the last event, to a whole tile, and columns behind the last are zeros.
  /// A thread has the same columns of all its rows.
  WARPRANK_DEVICE void copy_history(int64_t first_row, int count) const {
    if (d.added.data != nullptr) return add_histories(first_row, count);
    constexpr int at_once = Target >= 80 ? 1 : 4, rows_at_once = block_threads / pieces_per_row;
    const int rows = tiles_of(count) * tile_events, column = first_column();
    int row = device::thread_rank() / pieces_per_row;
    const float16* from = device::global(d.k.data) + (first_row + row) * d.k.stride + column;
    const int64_t step = rows_at_once * d.k.stride;
    float16* to = at<float16>(d.places.history) + row * row_stride + column;
    if (is_whole(d.k, column)) {
      WARPRANK_ROLLED
      for (; row < rows; row += rows_at_once * at_once, to += rows_at_once * at_once * row_stride) {
        if (Target >= 80 && row < count) {
          device::copy_async(to, from);
        } else {
          Fragment values[at_once];
          WARPRANK_UNROLL
          for (int i = 0; i < at_once; ++i) {
            values[i] = {};
            if (Target < 80 && row + i * rows_at_once < count) values[i] = load_whole(from + i * step);
          }
          WARPRANK_UNROLL
          for (int i = 0; i < at_once; ++i)
            if (row + i * rows_at_once < rows) store_piece(to + i * rows_at_once * row_stride, values[i]);
        }
        from += at_once * step;
      }
    } else {
      WARPRANK_ROLLED
      for (; row < rows; row += rows_at_once, from += step, to += rows_at_once * row_stride)
        store_piece(to, load_columns(from, row < count ? d.dim - column : 0));
    }
    device::commit_async();
  }

  /// What a thread has of the unit's queries: 8 columns, requested if they are whole.
  WARPRANK_DEVICE Fragment load_queries(const Unit& unit) const {
    static_assert(max_unit_items * pieces_per_row <= block_threads, "one piece for each thread");
    Fragment piece{};
    if (item_of_thread() < unit.num_items && is_whole(d.q, first_column())) piece = load_whole(query_row(unit));
    return piece;
  }
  /// Stores them; true where a folded weight may be too large for a half.
  WARPRANK_DEVICE bool store_queries(Fragment piece, const Unit& unit) const {
    if (item_of_thread() >= max_unit_items) return false;
    if (!is_whole(d.q, first_column()))
      piece = load_columns(query_row(unit), item_of_thread() < unit.num_items ? d.dim - first_column() : 0);
    auto* const to = at<uint32_t>(d.places.queries) + item_of_thread() * (columns / 2) + first_column() / 8;
    uint32_t most = 0;
    WARPRANK_UNROLL
    for (int i = 0; i < 4; ++i) {
      to[i * 2 * Steps] = piece[i];
      const uint32_t low_size = piece[i] & 0x7fffu, high_size = piece[i] >> 16 & 0x7fffu;
      most = most < low_size ? low_size : most;
      most = most < high_size ? high_size : most;
    }
    return most > d.safe_query;
  }

 private:
  static constexpr int pieces_per_row = columns / 8;

  /// Of the thread's pieces.
  static WARPRANK_DEVICE int first_column() { return device::thread_rank() % pieces_per_row * 8; }

  static WARPRANK_DEVICE int item_of_thread() { return device::thread_rank() / pieces_per_row; }
  WARPRANK_DEVICE const float16* query_row(const Unit& unit) const {
    return device::global(d.q.data) + static_cast<int64_t>(unit.first_item + item_of_thread()) * d.q.stride +
           first_column();
  }

  /// The same of a sum, which goes through registers.
  WARPRANK_DEVICE void add_histories(int64_t first_row, int count) const {
    constexpr int rows_at_once = block_threads / pieces_per_row;
    const int rows = tiles_of(count) * tile_events, column = first_column();
    int row = device::thread_rank() / pieces_per_row;
    float16* to = at<float16>(d.places.history) + row * row_stride + column;
    const auto begin_of = [&](const Rows& of) {
      return device::global(of.data) + (first_row + row) * of.stride + column;
    };
    const float16 *k = begin_of(d.k), *added = begin_of(d.added);
    WARPRANK_ROLLED
    for (; row < rows; row += 2 * rows_at_once, to += 2 * rows_at_once * row_stride) {
      Fragment parts[2][2];  // of two rows: four spill where D is 64
      WARPRANK_UNROLL
      for (int i = 0; i < 2; ++i) {
        const bool exists = row + i * rows_at_once < count;
        parts[i][0] = load_piece(d.k, k, column, exists), k += rows_at_once * d.k.stride;
        parts[i][1] = load_piece(d.added, added, column, exists), added += rows_at_once * d.added.stride;
      }
      WARPRANK_UNROLL
      for (int i = 0; i < 2; ++i)
        if (row + i * rows_at_once < rows)
          store_piece(to + i * rows_at_once * row_stride, sum_of_pairs(parts[i][0], parts[i][1]));
    }
  }

  /// Whether 8 columns can be read by one instruction.
  WARPRANK_DEVICE bool is_whole(const Rows& rows, int column) const { return rows.is_aligned && column + 8 <= d.dim; }

  static WARPRANK_DEVICE void store_piece(float16* to, const Fragment& piece) {
    *reinterpret_cast<Fragment*>(to) = piece;
  }
  static WARPRANK_DEVICE Fragment load_whole(const float16* from) {
    return device::load(reinterpret_cast<const Fragment*>(from));
  }
  /// 8 columns of which `count` exist, one by one.
  static WARPRANK_DEVICE Fragment load_columns(const float16* from, int count) {
    Fragment piece;
    WARPRANK_UNROLL
    for (int i = 0; i < 4; ++i) {
      float16 low{}, high{};
      if (2 * i < count) low = device::load(from + 2 * i);
      if (2 * i + 1 < count) high = device::load(from + 2 * i + 1);
      piece[i] = device::pack_halves(low, high);
    }
    return piece;
  }
  WARPRANK_DEVICE Fragment load_piece(const Rows& rows, const float16* from, int column, bool exists) const {
    if (exists && is_whole(rows, column)) return load_whole(from);
    return load_columns(from, exists ? d.dim - column : 0);
  }
};

}}}  // namespace warprank::v0::detail::din::chained
