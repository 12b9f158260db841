// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/segment_reduce.cuh. A block has some neighbouring segments of one matrix and a tile of its
/// columns; a few lanes, a *team*, have all columns of the tile. Segments are cut into pieces of 32 rows. A team pools
/// short segments alone; the pieces of a long one are shared by all teams of the block, and the first adds them in
/// order.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/descriptors.cuh"
#include "warprank/ops/detail/gemm/check.hpp"
#include "warprank/ops/detail/row_lanes.cuh"
#include "warprank/ops/detail/row_steps.cuh"

namespace warprank::detail::segment_reduce {

inline constexpr int threads = 256, min_blocks = 3;
inline constexpr int max_team = 8;          // lanes
inline constexpr int piece_rows = 32;       // of these sums are sums: the bits depend on it
inline constexpr int rows_in_flight = 4;    // loads of a lane
inline constexpr int max_pieces_alone = 4;  // of a team, where the block has many segments

/// A reduction as it lies in device memory.
struct alignas(16) Reduction {
  const unsigned char* x;
  const int64_t* offsets;
  const int64_t* num_segments;
  unsigned char* y;
  int64_t x_row_bytes, y_row_bytes;
  int64_t max_rows, max_segments;
  int64_t cols;
  int64_t first_block;
  Pooling pooling;
  int column_tiles;
  int segments_per_block;
  uint8_t team;         // lanes, a power of two
  uint8_t vector_size;  // columns of a lane
  bool x_is_half, y_is_half;
};

template <int VecSize>
struct Pooled {
  float values[VecSize];
};

struct Storage {
  Reduction reduction;
  int64_t offsets[threads + 1];  // of the block's segments
  Pooled<row_vector_size> pieces[threads];
};

/// Rows [begin, end).
struct Rows {
  int64_t begin, end;

  WARPRANK_DEVICE int64_t count() const { return end - begin; }
  WARPRANK_DEVICE int64_t num_pieces() const { return (count() + piece_rows - 1) / piece_rows; }
  WARPRANK_DEVICE Rows piece(int64_t i) const {
    const int64_t first = begin + i * piece_rows, last = first + piece_rows;
    return {first, last < end ? last : end};
  }
};

/// What a team does, of columns [column, column + VecSize) for the caller.
template <int VecSize, class Value>
struct Team {
  const Reduction& reduction;
  int64_t column;
  bool has_column;

  WARPRANK_DEVICE bool is_max() const { return reduction.pooling == Pooling::max; }

  WARPRANK_DEVICE void clear(Pooled<VecSize>& pooled) const {
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) pooled.values[j] = is_max() ? minus_infinity : 0;
  }
  WARPRANK_DEVICE void add(Pooled<VecSize>& pooled, const float (&values)[VecSize]) const {
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) {
      pooled.values[j] = is_max() ? max_or_nan(pooled.values[j], values[j]) : pooled.values[j] + values[j];
    }
  }

  /// The rows of a piece in their order.
  WARPRANK_DEVICE void pool_piece(const Rows& rows, Pooled<VecSize>& pooled) const {
    clear(pooled);
    if (!has_column) return;
    const auto load = [&](int64_t row, float(&values)[VecSize]) {
      const auto* from = reinterpret_cast<const Value*>(reduction.x + row * reduction.x_row_bytes) + column;
      widen_values(device::load_vector_read_only<VecSize>(from), values);
    };
    int64_t row = rows.begin;
    for (; row + rows_in_flight <= rows.end; row += rows_in_flight) {
      float values[rows_in_flight][VecSize];
      WARPRANK_UNROLL
      for (int i = 0; i < rows_in_flight; ++i) load(row + i, values[i]);
      WARPRANK_UNROLL
      for (int i = 0; i < rows_in_flight; ++i) add(pooled, values[i]);
    }
    for (; row < rows.end; ++row) {
      float values[VecSize];
      load(row, values);
      add(pooled, values);
    }
  }

  WARPRANK_DEVICE void store(int64_t segment, int64_t length, const Pooled<VecSize>& pooled) const {
    if (!has_column) return;
    float values[VecSize];
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) {
      values[j] = elementwise::pooled(reduction.pooling, pooled.values[j], length);
    }
    unsigned char* y = reduction.y + segment * reduction.y_row_bytes;
    if (reduction.y_is_half) {
      store_values(reinterpret_cast<half*>(y) + column, values);
    } else {
      store_values(reinterpret_cast<float*>(y) + column, values);
    }
  }

  /// Segments [first, first + count), the block's.
  WARPRANK_DEVICE void run(int64_t first, int count, Storage& shared) const {
    const int thread = device::thread_rank(), team = reduction.team, index = thread / team, rank = thread % team;
    const int num_teams = threads / team;
    const int64_t alone = count >= num_teams / 4 ? max_pieces_alone : 1;
    const auto rows_of = [&](int segment) { return Rows{shared.offsets[segment], shared.offsets[segment + 1]}; };
    Pooled<VecSize> total, piece;
    for (int segment = index; segment < count; segment += num_teams) {
      const Rows rows = rows_of(segment);
      if (rows.num_pieces() > alone) continue;
      clear(total);
      for (int64_t i = 0; i < rows.num_pieces(); ++i) {
        pool_piece(rows.piece(i), piece);
        add(total, piece.values);
      }
      store(first + segment, rows.count(), total);
    }
    for (int segment = 0; segment < count; ++segment) {
      const Rows rows = rows_of(segment);
      if (rows.num_pieces() <= alone) continue;
      clear(total);
      for (int64_t begin = 0; begin < rows.num_pieces(); begin += num_teams) {
        if (begin + index < rows.num_pieces()) {
          pool_piece(rows.piece(begin + index), piece);
          WARPRANK_UNROLL
          for (int j = 0; j < VecSize; ++j) shared.pieces[thread].values[j] = piece.values[j];
        }
        device::sync_block();
        for (int i = 0; index == 0 && i < num_teams && begin + i < rows.num_pieces(); ++i) {
          WARPRANK_UNROLL
          for (int j = 0; j < VecSize; ++j) piece.values[j] = shared.pieces[i * team + rank].values[j];
          add(total, piece.values);
        }
        device::sync_block();
      }
      if (index == 0) store(first + segment, rows.count(), total);
    }
  }
};

template <int VecSize>
WARPRANK_DEVICE void reduce_columns(int64_t column, int64_t first, int count, Storage& shared) {
  const Reduction& reduction = shared.reduction;
  const bool has_column = column < reduction.cols;
  if (reduction.x_is_half) {
    Team<VecSize, half>{reduction, column, has_column}.run(first, count, shared);
  } else {
    Team<VecSize, float>{reduction, column, has_column}.run(first, count, shared);
  }
}

template <class = void>
WARPRANK_KERNEL(threads, min_blocks)
segment_reduce_kernel(const FirstBlock* first_blocks, const Reduction* reductions, int num_reductions) {
  auto& shared = device::static_shared<Storage>();
  const int64_t block = device::block_index().x;
  read_descriptors(reductions + problem_of_block(first_blocks, num_reductions, block), 1, &shared.reduction);
  const Reduction& reduction = shared.reduction;
  const int64_t of_reduction = block - reduction.first_block;
  const int64_t num_segments = device::true_count(reduction.num_segments, reduction.max_segments);
  const int64_t first = of_reduction / reduction.column_tiles * reduction.segments_per_block;
  const int64_t rest = num_segments - first;
  if (rest <= 0) return;
  const int count = rest < reduction.segments_per_block ? static_cast<int>(rest) : reduction.segments_per_block;
  for (int i = device::thread_rank(); i <= count; i += threads) {
    shared.offsets[i] = device::true_count(&reduction.offsets[first + i], reduction.max_rows);
  }
  device::sync_block();
  const int64_t vector =
      of_reduction % reduction.column_tiles * reduction.team + device::thread_rank() % reduction.team;
  if (reduction.vector_size == row_vector_size) {
    reduce_columns<row_vector_size>(vector * row_vector_size, first, count, shared);
  } else {
    reduce_columns<1>(vector, first, count, shared);
  }
}

// ---- The host's part; SegmentReduction is defined in ops/segment_reduce.cuh

/// Reductions of one launch, cut into blocks.
struct LaunchPlan {
  std::vector<unsigned char> bytes;  // of the descriptors, the first blocks first
  int64_t num_reductions = 0, num_blocks = 0;
  int64_t reductions_at = 0;
};

template <class SegmentReduction>
void check_reductions(Span<const SegmentReduction> reductions, Problems& problems) {
  for (int64_t i = 0; i < reductions.size(); ++i) {
    const SegmentReduction& reduction = reductions[i];
    const std::string what = "segment reduction " + std::to_string(i);
    check_matrix(what + "'s x", reduction.x, reduction.x.rows, reduction.x.cols, problems);
    check_matrix(what + "'s y", reduction.y, reduction.y.rows, reduction.x.cols, problems);
    check_pointer(what + "'s offsets", reduction.offsets, 8, problems);
    if (reduction.pooling == Pooling::none) problems.add(what + "'s pooling", "sum, mean, sqrtn or max", "none");
    for (int64_t j = 0; j < reductions.size(); ++j) {
      const Region y = region_of(reduction.y);
      const bool overlaps_y = i < j && overlap(y, region_of(reductions[j].y));
      if (!overlaps_y && !overlap(y, region_of(reductions[j].x))) continue;
      problems.add("y of " + what, "memory of its own",
                   std::string("an overlap with ") + (overlaps_y ? "y" : "x") + " of reduction " + std::to_string(j));
    }
  }
}

/// Everything but the first block.
template <class SegmentReduction>
Reduction describe(const SegmentReduction& reduction, int64_t num_multiprocessors) {
  Reduction to{};
  to.x = static_cast<const unsigned char*>(reduction.x.data);
  to.y = static_cast<unsigned char*>(reduction.y.data);
  to.offsets = reduction.offsets;
  to.num_segments = reduction.num_segments;
  to.x_row_bytes = reduction.x.stride * size_of(reduction.x.type);
  to.y_row_bytes = reduction.y.stride * size_of(reduction.y.type);
  to.max_rows = reduction.x.rows;
  to.max_segments = reduction.y.rows;
  to.cols = reduction.x.cols;
  to.pooling = reduction.pooling;
  to.x_is_half = reduction.x.type == DType::f16;
  to.y_is_half = reduction.y.type == DType::f16;
  const bool aligned = to.cols % row_vector_size == 0 && rows_are_aligned(reduction.x) && rows_are_aligned(reduction.y);
  to.vector_size = aligned ? row_vector_size : 1;
  const int64_t vectors = to.cols / to.vector_size;
  to.team = static_cast<uint8_t>(std::min(lanes_for(vectors), max_team));
  to.column_tiles = static_cast<int>((vectors + to.team - 1) / to.team);
  // As many blocks as keep the card busy; then as many segments for each as it has teams.
  constexpr int64_t blocks_per_multiprocessor = 2;
  const int64_t share = to.max_segments * to.column_tiles / (num_multiprocessors * blocks_per_multiprocessor);
  to.segments_per_block = static_cast<int>(std::clamp<int64_t>(share, 1, threads / to.team));
  return to;
}

template <class SegmentReduction>
LaunchPlan plan_launch(Span<const SegmentReduction> reductions) {
  Problems problems;
  check_reductions(reductions, problems);
  problems.throw_if_any();
  LaunchPlan plan;
  plan.num_reductions = reductions.size();
  const int64_t num_multiprocessors = reductions.empty() ? 1 : device::num_multiprocessors();
  std::vector<FirstBlock> first_blocks;
  std::vector<Reduction> described;
  for (const SegmentReduction& reduction : reductions) {
    Reduction to = describe(reduction, num_multiprocessors);
    to.first_block = plan.num_blocks;
    first_blocks.push_back({plan.num_blocks});
    described.push_back(to);
    plan.num_blocks += (to.max_segments + to.segments_per_block - 1) / to.segments_per_block * int64_t{to.column_tiles};
    if (plan.num_blocks > max_blocks)
      throw invalid_argument("segment reductions of one launch", "at most 2^31 - 1 blocks",
                             std::to_string(plan.num_blocks));
  }
  plan.reductions_at = static_cast<int64_t>((first_blocks.size() * sizeof(FirstBlock) + 15) / 16 * 16);
  plan.bytes.resize(static_cast<size_t>(plan.reductions_at) + described.size() * sizeof(Reduction));
  if (reductions.empty()) return plan;
  std::memcpy(plan.bytes.data(), first_blocks.data(), first_blocks.size() * sizeof(FirstBlock));
  std::memcpy(plan.bytes.data() + plan.reductions_at, described.data(), described.size() * sizeof(Reduction));
  return plan;
}

WARPRANK_HIDDEN inline void run(const LaunchPlan& plan, const void* descriptors, device::Stream stream) {
  const auto* bytes = static_cast<const unsigned char*>(descriptors);
  device::launch({static_cast<unsigned>(plan.num_blocks), threads, 0, stream}, segment_reduce_kernel<>,
                 reinterpret_cast<const FirstBlock*>(bytes),
                 reinterpret_cast<const Reduction*>(bytes + plan.reductions_at), static_cast<int>(plan.num_reductions));
}

}  // namespace warprank::detail::segment_reduce
