// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/segment_reduce.cuh. A block has some neighbouring segments of one matrix and a tile of its
/// columns; a few lanes, a *team*, have all columns of the tile. Segments are cut into pieces of 8 rows, which a lane
/// requests together. A team pools short segments alone; the pieces of a long one are shared by all teams of the block,
/// and the first adds them in order, while the others pool the next ones.
///
/// Loads that depend on one another, from launch to store: the number of segments with offsets, rows. A segment that a
/// team has alone needs no barrier before its store, a long one a barrier for each round of pieces, 8 rows for each
/// team.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/launch_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::segment_reduce {

inline constexpr int threads = 256, min_blocks = 2;
inline constexpr int max_team = 8;    // lanes
inline constexpr int piece_rows = 8;  // of these sums are sums: the bits depend on it; all are in flight together
inline constexpr int max_pieces_alone = 16;  // of a team, where the block has many segments
inline constexpr int max_reductions = 24;    // of a launch; more take several

/// No padding, as launches are compared by their bytes.
struct Reduction {
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
  int segments_per_block;  // at most as many as teams
  int team;                // lanes, a power of two
  int vector_size;         // columns of a lane
  uint16_t x_is_half, y_is_half;
};

/// What the kernel is given, by value.
struct Arguments {
  int64_t num_reductions;
  Reduction reductions[max_reductions];
};
static_assert(std::has_unique_object_representations_v<Arguments>);

template <int VecSize>
struct Pooled {
  float values[VecSize];
};

struct Storage {
  int64_t offsets[threads + 1];                // of the block's segments
  Pooled<row_vector_size> pieces[2][threads];  // in turns
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

/// The caller's team of the block's.
WARPRANK_DEVICE int team_of_thread(int team) {
  return device::thread_rank() >> device::first_bit(static_cast<uint32_t>(team));
}

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
    const auto count = static_cast<int>(rows.count());
    const auto* first = reinterpret_cast<const unsigned char*>(
        reinterpret_cast<const Value*>(reduction.x + rows.begin * reduction.x_row_bytes) + column);
    device::Vector<Value, VecSize> loaded[piece_rows];
    WARPRANK_UNROLL
    for (int i = 0; i < piece_rows; ++i) {
      const auto* from = reinterpret_cast<const Value*>(first + i * reduction.x_row_bytes);
      if (i < count) loaded[i] = device::load_vector_read_only<VecSize>(from);
    }
    WARPRANK_UNROLL
    for (int i = 0; i < piece_rows; ++i) {
      float values[VecSize];
      if (i >= count) continue;
      widen_values(loaded[i], values);
      add(pooled, values);
    }
  }

  WARPRANK_DEVICE void store(int64_t segment, int64_t length, const Pooled<VecSize>& pooled) const {
    if (!has_column) return;
    float values[VecSize];
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) {
      values[j] = pooled_value(reduction.pooling, pooled.values[j], length);
    }
    unsigned char* y = reduction.y + segment * reduction.y_row_bytes;
    if (reduction.y_is_half) {
      store_values(reinterpret_cast<float16*>(y) + column, values);
    } else {
      store_values(reinterpret_cast<float*>(y) + column, values);
    }
  }

  /// Segments [first, first + count), the block's, of which `own` is the team's where it has one. The only one of a
  /// block is all teams' own.
  WARPRANK_DEVICE void run(int64_t first, int count, const Rows& own, Storage& shared) const {
    const int thread = device::thread_rank(), team = reduction.team, rank = rank_in_row(team);
    const int index = team_of_thread(team);
    const int num_teams = threads >> device::first_bit(static_cast<uint32_t>(team));
    const int64_t alone = count >= num_teams / 4 ? max_pieces_alone : 1;
    const bool is_alone = reduction.segments_per_block == 1;
    const bool is_long = (is_alone || index < count) && own.num_pieces() > alone;
    Pooled<VecSize> total, piece;
    if (index < count && !is_long) {
      clear(total);
      for (int64_t i = 0; i < own.num_pieces(); ++i) {
        pool_piece(own.piece(i), piece);
        add(total, piece.values);
      }
      store(first + index, own.count(), total);
    }
    if (!is_alone) {
      if (index < count && rank == 0) shared.offsets[index] = own.begin;
      if (index == count - 1 && rank == 0) shared.offsets[count] = own.end;
      if (!device::sync_block_any(is_long)) return;
    }
    int turn = 0;
    for (int segment = 0; segment < count; ++segment) {
      const Rows rows = is_alone ? own : Rows{shared.offsets[segment], shared.offsets[segment + 1]};
      if (rows.num_pieces() <= alone) continue;
      clear(total);
      for (int64_t begin = 0; begin < rows.num_pieces(); begin += num_teams) {
        auto& pieces = shared.pieces[turn];
        turn ^= 1;  // the first team may still be adding those before
        if (begin + index < rows.num_pieces()) {
          pool_piece(rows.piece(begin + index), piece);
          WARPRANK_UNROLL
          for (int j = 0; j < VecSize; ++j) pieces[thread].values[j] = piece.values[j];
        }
        device::sync_block();
        for (int i = 0; index == 0 && i < num_teams && begin + i < rows.num_pieces(); ++i) {
          WARPRANK_UNROLL
          for (int j = 0; j < VecSize; ++j) piece.values[j] = pieces[i * team + rank].values[j];
          add(total, piece.values);
        }
      }
      if (index == 0) store(first + segment, rows.count(), total);
    }
  }
};

template <int VecSize>
WARPRANK_DEVICE void reduce_columns(const Reduction& reduction, int64_t column, int64_t first, int count,
                                    const Rows& own, Storage& shared) {
  const bool has_column = column < reduction.cols;
  if (reduction.x_is_half) {
    Team<VecSize, float16>{reduction, column, has_column}.run(first, count, own, shared);
  } else {
    Team<VecSize, float>{reduction, column, has_column}.run(first, count, own, shared);
  }
}

template <class = void>
WARPRANK_KERNEL(threads, min_blocks)
segment_reduce_kernel(const WARPRANK_GRID_CONSTANT Arguments arguments) {
  auto& shared = device::static_shared<Storage>();
  const int64_t block = device::block_index().x;
  int number = 0;
  while (number + 1 < arguments.num_reductions && arguments.reductions[number + 1].first_block <= block) ++number;
  const Reduction& reduction = arguments.reductions[number];
  const auto of_reduction = static_cast<int>(block - reduction.first_block);
  const int part = of_reduction / reduction.column_tiles, tile = of_reduction - part * reduction.column_tiles;
  const int64_t first = int64_t{part} * reduction.segments_per_block;
  const int64_t vector = int64_t{tile} * reduction.team + rank_in_row(reduction.team);
  device::wait_for_previous_launch();

  // A segment for each team, requested beside their number.
  int64_t end = reduction.max_segments;
  if (reduction.num_segments != nullptr) end = device::load_ahead(reduction.num_segments);
  const int index = reduction.segments_per_block == 1 ? 0 : team_of_thread(reduction.team);
  int64_t own[2] = {};
  if (index < reduction.segments_per_block && first + index < reduction.max_segments) {
    WARPRANK_UNROLL
    for (int i = 0; i < 2; ++i) own[i] = device::load_ahead(&reduction.offsets[first + index + i]);
  }
  device::use_from_here(end);
  const int64_t rest = (end < reduction.max_segments ? end : reduction.max_segments) - first;
  if (rest <= 0) return;
  WARPRANK_UNROLL
  for (int i = 0; i < 2; ++i) own[i] = own[i] < reduction.max_rows ? own[i] : reduction.max_rows;
  const Rows rows{own[0], own[1]};
  const int count = rest < reduction.segments_per_block ? static_cast<int>(rest) : reduction.segments_per_block;
  if (reduction.vector_size == row_vector_size) {
    reduce_columns<row_vector_size>(reduction, vector * row_vector_size, first, count, rows, shared);
  } else {
    reduce_columns<1>(reduction, vector, first, count, rows, shared);
  }
}

// ---- The host's part; SegmentReduction is defined in ops/segment_reduce.cuh

/// Reductions of one launch, cut into blocks.
struct LaunchPlan {
  Arguments arguments{};
  int64_t num_blocks = 0;
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
Reduction describe(const SegmentReduction& reduction, int64_t num_multiprocessors, const LaunchPolicies& policies) {
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
  to.x_is_half = reduction.x.type == DType::f16 ? 1 : 0;
  to.y_is_half = reduction.y.type == DType::f16 ? 1 : 0;
  const bool aligned = to.cols % row_vector_size == 0 && rows_are_aligned(reduction.x) && rows_are_aligned(reduction.y);
  to.vector_size = aligned ? row_vector_size : 1;
  const int64_t vectors = to.cols / to.vector_size;
  to.team = std::min(lanes_for(vectors), max_team);
  to.column_tiles = static_cast<int>((vectors + to.team - 1) / to.team);
  // As many blocks as keep the card busy; then as many segments for each as it has teams.
  const int64_t wanted_blocks = num_multiprocessors * policies.segment_reduce_blocks;
  const int64_t share = to.max_segments * to.column_tiles / wanted_blocks;
  to.segments_per_block = static_cast<int>(std::clamp<int64_t>(share, 1, threads / to.team));
  return to;
}

template <class SegmentReduction>
std::vector<LaunchPlan> plan_launches(Span<const SegmentReduction> reductions, const LaunchPolicies& policies) {
  Problems problems;
  check_reductions(reductions, problems);
  problems.throw_if_any();
  std::vector<LaunchPlan> plans;
  const int64_t num_multiprocessors = reductions.empty() ? 1 : device::num_multiprocessors();
  for (const SegmentReduction& reduction : reductions) {
    if (plans.empty() || plans.back().arguments.num_reductions == max_reductions) plans.emplace_back();
    LaunchPlan& plan = plans.back();
    Reduction to = describe(reduction, num_multiprocessors, policies);
    to.first_block = plan.num_blocks;
    plan.num_blocks += (to.max_segments + to.segments_per_block - 1) / to.segments_per_block * int64_t{to.column_tiles};
    if (plan.num_blocks > max_blocks)
      raise(invalid_argument("segment reductions of one launch", "at most 2^31 - 1 blocks",
                             std::to_string(plan.num_blocks)));
    plan.arguments.reductions[plan.arguments.num_reductions++] = to;
  }
  return plans;
}

WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE void launch(const LaunchPlan& plan, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_SEGMENT_REDUCE)
WARPRANK_KERNELS_INLINE void launch(const LaunchPlan& plan, device::Stream stream) {
  device::launch_overlapping({static_cast<unsigned>(plan.num_blocks), threads, 0, stream}, segment_reduce_kernel<>,
                             plan.arguments);
}
#endif

}}}  // namespace warprank::v0::detail::segment_reduce
