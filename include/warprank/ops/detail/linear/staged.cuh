// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The product of a block with many rows: stages of rows and weights go through shared memory, several of them on their
/// way (before sm_80 by way of registers, one), and fragments are loaded half a step ahead of the products. One barrier
/// for each stage, ahead of its last step; two where shared memory has one stage (ProductDescriptor::has_two_stages).
///
/// A stage has two steps: [rows][8 chunks of 8 inputs], where chunk c of an odd row is at c ^ 4, so that the 16-byte
/// loads of a fragment meet in no bank; and then the weights as they are packed.

#include <cstdint>

#include "warprank/device/async_copy.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/linear/fragments.cuh"

namespace warprank { inline namespace v0 { namespace detail::linear {

template <int Target, LinearTile Tile, bool IsPlain, class Weight>
class StagedProduct {
 public:
  static constexpr TileShape shape = tile_shape(Tile);
  static constexpr bool is_direct = false, can_be_cut = shape.can_be_cut;
  static constexpr bool takes_switches = shape.takes_switches();
  static constexpr int threads = shape.threads(), warps_across = shape.columns / shape.warp_columns;
  static constexpr int64_t part_size = shape.part_size();
  static constexpr int strips = shape.warp_rows / 8, pairs = shape.warp_columns / 16;
  static constexpr int num_fragments = pairs * strips;  ///< of sums, in a thread
  using Sums = float[pairs][strips][4];

  /// The steps [begin, end). All of `layer` is known, the rows are not yet.
  WARPRANK_DEVICE StagedProduct(const ProductDescriptor& layer, int first_column, int begin, int end, void* shared)
      : layer_(layer), begin_(begin), end_(end), slots_(static_cast<char*>(shared)) {
    const int num_steps = (layer.inputs + 31) / 32, num_pairs = (layer.outputs - first_column + 15) / 16;
    WARPRANK_UNROLL
    for (int i = 0; i < weight_chunks; ++i) {  // of pairs behind the last, the last again: nobody asks for their sums
      const int of_tile = device::thread_rank() / pair_chunks + i * pairs_apart;
      const int64_t pair = first_column / 16 + (of_tile < num_pairs ? of_tile : num_pairs - 1);
      weights_[i] =
          layer.tiles() + (pair * num_steps + begin) * Packed::words + device::thread_rank() % pair_chunks * 4;
    }
    weight_step_ = begin + device::thread_rank() % pair_chunks / (pair_chunks / stage_steps);
    warp_columns_ = layer.outputs - first_column - first_column_of_warp();
  }
  static WARPRANK_DEVICE int first_row_of_warp() { return device::warp_index() / warps_across * shape.warp_rows; }
  static WARPRANK_DEVICE int first_column_of_warp() { return device::warp_index() % warps_across * shape.warp_columns; }

  /// Of the first stages; reads what no launch writes.
  WARPRANK_DEVICE void request_weights() {
    if constexpr (is_async) {
      WARPRANK_UNROLL
      for (int s = 0; s < num_slots - 1; ++s) copy_weights(slot(s), s);
    } else {
      copy_weights(nullptr, 0);
    }
  }
  /// Waits for requests whose answers nobody wants.
  static WARPRANK_DEVICE void give_up() {
    device::commit_async();
    device::wait_async<0>();
  }

  /// sums = W x of the warp. Behind a barrier, shared memory is free again.
  WARPRANK_DEVICE void multiply(const BlockRows& rows, Sums& sums) {
    WARPRANK_UNROLL
    for (int i = 0; i < row_chunks; ++i) {  // of rows behind the last, the last again
      const int row = device::thread_rank() / row_chunks_across + i * rows_apart;
      rows_[i] = layer_.x + rows[row < rows.count ? row : rows.count - 1] * layer_.x_stride;
    }
    row_input_ = begin_ * 32 + device::thread_rank() % row_chunks_across * 8;
    WARPRANK_UNROLL
    for (int j = 0; j < pairs; ++j) {
      WARPRANK_UNROLL
      for (int r = 0; r < strips; ++r) {
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) sums[j][r][c] = 0;
      }
    }
    const bool works = first_row_of_warp() < rows.count && warp_columns_ > 0;
    if constexpr (is_async)
      multiply_async(works, sums);
    else
      multiply_by_registers(works, sums);
  }

  /// Calls f(row of the tile, column of the tile, sum) for all of the thread's sums.
  template <class F>
  static WARPRANK_DEVICE void for_each_sum(const Sums& sums, F&& f) {
    const int row = first_row_of_warp() + device::lane_index() % 4 * 2;
    const int column = first_column_of_warp() + device::lane_index() / 4;
    WARPRANK_UNROLL
    for (int j = 0; j < pairs; ++j) {
      WARPRANK_UNROLL
      for (int r = 0; r < strips; ++r) {
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) f(row + r * 8 + c % 2, column + j * 16 + c / 2 * 8, sums[j][r][c]);
      }
    }
  }

  /// Leaves this part's sums in partials [parts, sums of a thread, threads, 4], which are the tile's own. The last of
  /// its blocks to arrive gets the sums over all parts, added in their order, and true.
  static WARPRANK_DEVICE bool add_parts(Sums& sums, int part, int parts, float* partials, uint32_t* ticket,
                                        bool& is_last) {
    const auto place = [&](int p, int fragment) {
      return partials + ((int64_t{p} * num_fragments + fragment) * threads + device::thread_rank()) * 4;
    };
    WARPRANK_UNROLL
    for (int f = 0; f < num_fragments; ++f) {
      const float(&s)[4] = sums[f / strips][f % strips];
      device::store_vector(place(part, f), device::Vector<float, 4>{{s[0], s[1], s[2], s[3]}});
    }
    device::sync_block();
    if (device::thread_rank() == 0) {
      const auto last = static_cast<uint32_t>(parts - 1);
      is_last = device::take_ticket<device::Order::acq_rel, device::Scope::device>(ticket, last) == last;
    }
    device::sync_block();
    if (!is_last) return false;
    for (int p = 0; p < parts; ++p) {
      WARPRANK_UNROLL
      for (int f = 0; f < num_fragments; ++f) {
        const auto of_part = device::load_vector<4>(place(p, f));
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) {
          float& sum = sums[f / strips][f % strips][c];
          sum = p == 0 ? of_part[c] : sum + of_part[c];
        }
      }
    }
    return true;
  }

 private:
  using Packed = PackedSteps<Weight>;
  static constexpr bool is_int8 = Packed::loads == 1;
  static constexpr bool is_async = Target >= 80;
  static constexpr int num_slots = shape.stages, stage_steps = 2;  ///< slots: from sm_80 on
  static constexpr int row_bytes = stage_steps * 64, rows_bytes = shape.rows * row_bytes;
  static constexpr int slot_bytes = rows_bytes + shape.columns * stage_steps * 32 * static_cast<int>(sizeof(Weight));
  // Chunks of 16 bytes that a thread copies, at one place within the steps of a stage.
  static constexpr int row_chunks_across = stage_steps * 4, pair_chunks = stage_steps * Packed::loads * 32;
  static constexpr int rows_apart = threads / row_chunks_across, row_chunks = shape.rows / rows_apart;
  static constexpr int pairs_apart = threads / pair_chunks, weight_chunks = shape.columns / 16 / pairs_apart;
  static_assert(rows_apart % 2 == 0 && row_chunks * rows_apart == shape.rows);
  static_assert(weight_chunks * pairs_apart * 16 == shape.columns);

  WARPRANK_DEVICE char* slot(int s) const { return slots_ + s * slot_bytes; }
  WARPRANK_DEVICE char* next(char* at) const { return at == slot(num_slots - 1) ? slots_ : at + slot_bytes; }

  /// The chunk `c` of a row of a stage.
  static WARPRANK_DEVICE int chunk_at(int row, int c) { return row * row_bytes + (c ^ (row & 1) * 4) * 16; }

  /// Of the stage that is `ahead` of the next.
  WARPRANK_DEVICE void copy_weights(char* to, int ahead) {
    if (weight_step_ + ahead * stage_steps >= end_) return;  // nobody reads what is there instead
    WARPRANK_UNROLL
    for (int i = 0; i < weight_chunks; ++i) {
      const uint32_t* from = weights_[i] + ahead * stage_steps * Packed::words;
      if constexpr (is_async)
        device::copy_async(to + rows_bytes + (device::thread_rank() + i * threads) * 16, from);
      else
        held_weights_[i] = device::load_vector_ahead<4>(from);
    }
  }
  WARPRANK_DEVICE void copy_rows(char* to) {
    if (row_input_ >= end_ * 32) return;
    WARPRANK_UNROLL
    for (int i = 0; i < row_chunks; ++i) {
      auto* at = reinterpret_cast<Fragment*>(to + row_chunk_at(i));
      Fragment chunk{};  // behind the last input
      if (row_input_ < layer_.inputs) {
        if (!reads_whole<IsPlain>(layer_, row_input_)) {
          chunk = gather_inputs(rows_[i], row_input_, layer_.inputs);
        } else if constexpr (is_async) {
          device::copy_async(at, rows_[i] + row_input_);
          continue;
        } else {
          chunk = request_inputs(rows_[i] + row_input_);
        }
      }
      if constexpr (is_async)
        *at = chunk;
      else
        held_rows_[i] = chunk;
    }
  }
  static WARPRANK_DEVICE int row_chunk_at(int i) {
    return chunk_at(device::thread_rank() / row_chunks_across + i * rows_apart,
                    device::thread_rank() % row_chunks_across);
  }
  WARPRANK_DEVICE void advance() {
    WARPRANK_UNROLL
    for (int i = 0; i < weight_chunks; ++i) weights_[i] += stage_steps * Packed::words;
    weight_step_ += stage_steps;
    row_input_ += stage_steps * 32;
  }

  WARPRANK_DEVICE void load_rows(Fragment (&x)[strips], const char* stage, int step) const {
    const int g = device::lane_index() / 4, t = device::lane_index() % 4;
    WARPRANK_UNROLL
    for (int r = 0; r < strips; ++r) {
      const int row = first_row_of_warp() + r * 8 + g;
      x[r] = *reinterpret_cast<const Fragment*>(stage + chunk_at(row, step * 4 + t));
    }
  }
  /// Of half `Half` of a step. In INT8, half 0 comes first, and loads both.
  template <int Half>
  WARPRANK_DEVICE void load_weights(Fragment (&w)[pairs], const char* stage, int step) {
    const char* const first = stage + rows_bytes + first_column_of_warp() / 16 * pair_chunks * 16;
    WARPRANK_UNROLL
    for (int j = 0; j < pairs; ++j) {
      const int load = (j * stage_steps + step) * Packed::loads + (is_int8 ? 0 : Half);
      const auto* const from = reinterpret_cast<const Fragment*>(first + (load * 32 + device::lane_index()) * 16);
      if constexpr (is_int8) {
        if constexpr (Half == 0) int8_step_[j] = *from;
        w[j] = widen_half<Half>(int8_step_[j]);
      } else {
        w[j] = *from;
      }
    }
  }

  WARPRANK_DEVICE void multiply_async(bool works, Sums& sums) {
    char* to = slots_;
    WARPRANK_UNROLL
    for (int s = 0; s < num_slots - 1; ++s) {  // their weights are on the way
      copy_rows(to);
      advance();
      to = next(to);
      device::commit_async();
    }
    Fragment x[2][strips], w[2][pairs];
    char* stage = slots_;
    device::wait_async<num_slots - 2>();
    device::sync_block();
    if (works) {
      load_rows(x[0], stage, 0);
      load_weights<0>(w[0], stage, 0);
    }
    for (int first = begin_; first < end_; first += stage_steps) {
      WARPRANK_UNROLL
      for (int u = 0; u < stage_steps; ++u) {
        const int step = first + u;
        if (step >= end_) break;
        if (u == 0) {
          copy_weights(to, 0);
          copy_rows(to);
          advance();
          to = next(to);
          device::commit_async();
        }
        if (works) {
          load_weights<1>(w[1], stage, u);
          multiply_half_steps<Target, 0>(sums, w[0], x[u]);
        }
        if (u == stage_steps - 1) {
          stage = next(stage);
          device::wait_async<num_slots - 2>();
          device::sync_block();
        }
        if (!works) continue;
        if (step + 1 < end_) {
          load_rows(x[u ^ 1], stage, u ^ 1);
          load_weights<0>(w[0], stage, u ^ 1);
        }
        multiply_half_steps<Target, 1>(sums, w[1], x[u]);
      }
    }
  }

  WARPRANK_DEVICE void place(char* to) const {
    if (weight_step_ < end_) {
      WARPRANK_UNROLL
      for (int i = 0; i < weight_chunks; ++i)
        *reinterpret_cast<Fragment*>(to + rows_bytes + (device::thread_rank() + i * threads) * 16) = held_weights_[i];
    }
    if (row_input_ < end_ * 32) {
      WARPRANK_UNROLL
      for (int i = 0; i < row_chunks; ++i) *reinterpret_cast<Fragment*>(to + row_chunk_at(i)) = held_rows_[i];
    }
  }
  WARPRANK_DEVICE void multiply_by_registers(bool works, Sums& sums) {
    const bool has_two_stages = shape.stages_by_registers == 2 || layer_.has_two_stages;
    copy_rows(nullptr);
    char* stage = slots_;
    for (int first = begin_; first < end_; first += stage_steps) {
      if (!has_two_stages && first > begin_) device::sync_block();
      place(stage);
      device::sync_block();
      advance();
      copy_weights(nullptr, 0);
      copy_rows(nullptr);
      Fragment x[strips], w[2][pairs];
      WARPRANK_UNROLL
      for (int s = 0; s < stage_steps; ++s) {
        if (!works || first + s >= end_) continue;
        load_rows(x, stage, s);
        load_weights<0>(w[0], stage, s);
        load_weights<1>(w[1], stage, s);
        multiply_step<Target>(sums, w, x);
      }
      if (has_two_stages) stage = stage == slots_ + slot_bytes ? slots_ : stage + slot_bytes;
    }
  }

  const ProductDescriptor& layer_;
  int begin_, end_;
  char* slots_;
  const uint32_t* weights_[weight_chunks];  ///< of the thread's chunks of the next stage
  int weight_step_;
  int warp_columns_;  ///< that exist, from the warp's first on
  const float16* rows_[row_chunks];
  int row_input_;
  Fragment held_weights_[is_async ? 1 : weight_chunks], held_rows_[is_async ? 1 : row_chunks];
  Fragment int8_step_[is_int8 ? pairs : 1];  ///< of the warp's weights, as they lie
};

}}}  // namespace warprank::v0::detail::linear
