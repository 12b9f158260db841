// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the parts of the attention kernel share, and how its shared memory is divided.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "warprank/core/dtype.hpp"
#include "warprank/core/unroll.hpp"
#include "warprank/device/approximate.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/common/item_units.cuh"
#include "warprank/ops/detail/gemm/epilogue.cuh"
#include "warprank/ops/detail/gemm/rows.cuh"

namespace warprank { inline namespace v0 { namespace detail::attention {

inline constexpr int block_warps = 4, block_threads = block_warps * 32;
inline constexpr int strip_rows = 16;                       ///< of a warp: the rows of an mma
inline constexpr int unit_rows = block_warps * strip_rows;  ///< the most items of a unit
inline constexpr int row_padding = 8;                       ///< halves: rows lie an odd number of 16 bytes apart
inline constexpr int header_bytes = 448;                    ///< the descriptor and the current unit
inline constexpr int max_chunk = 64;                        ///< keys

/// The widest heads that a kernel is compiled for: sums of a row are in registers.
inline constexpr int narrow_columns = 64, wide_columns = 256;

struct Policy {
  int step;        ///< keys between two corrections of the softmax
  int stages;      ///< of keys and values: with two, the next come while some are computed
  int min_blocks;  ///< on a multiprocessor
};
template <int Target, int Columns>
inline constexpr Policy policy{Columns <= narrow_columns ? 32 : 16, Target >= 80 ? 2 : 1,
                               Columns <= narrow_columns ? 4 : 2};

/// Printable; places from the start of shared memory, in bytes.
struct Partition {
  int chunk = 0;  ///< keys and values in shared memory at a time, in each stage: whole steps

  int spoilt = 0;       ///< uint32_t [dim]: of each column the first key whose value is not finite
  int queries = 0;      ///< half [unit_rows, dim + row_padding]; then float [8, dim + row_padding] of each warp
  int keys = 0;         ///< half [chunk, dim + row_padding], behind them the values
  int stage_bytes = 0;  ///< from one stage's keys to the next's
  int bytes = 0;
};

/// As many keys at a time as fit beside the other blocks of a multiprocessor; fewer blocks where not even a step does.
inline Partition choose_partition(int padded_dim, int target, const Policy& policy) {
  const int row_bytes = 2 * (padded_dim + row_padding);
  Partition p;
  p.spoilt = header_bytes;
  p.queries = p.spoilt + 4 * padded_dim;
  p.keys = p.queries + unit_rows * row_bytes;
  const int step_bytes = policy.step * 2 * row_bytes * policy.stages;
  for (int blocks = policy.min_blocks; blocks > 0 && p.chunk == 0; --blocks) {
    const int room = static_cast<int>(device::shared_limit(target, blocks)) - p.keys;
    p.chunk = room < 0 ? 0 : std::min(room / step_bytes * policy.step, max_chunk);
  }
  p.stage_bytes = p.chunk * 2 * row_bytes;
  p.bytes = p.keys + p.stage_bytes * policy.stages;
  return p;
}

/// What lies in device memory, of a multiple of 16 bytes, in registers.
template <class Record>
WARPRANK_DEVICE Record load_whole(const Record* from) {
  Record to;
  const auto* const words = reinterpret_cast<const uint32_t*>(from);
  WARPRANK_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof to) / 16; ++i) {
    const auto four = device::load_vector_read_only<4>(words + 4 * i);
    std::memcpy(reinterpret_cast<unsigned char*>(&to) + 16 * i, &four, sizeof four);
  }
  return to;
}

/// Of the events before a row, those that it sees.
struct Window {
  int events = 0;     ///< 0: all
  int full_last = 0;  ///< of a causal attention, so many last rows see all; of another, all rows do unless it is 0
};

/// An attention as it lies in device memory.
struct alignas(16) Descriptor {
  ItemsAndEvents axes;
  gemm::RowSource q, k, v;       ///< all rows of head 0; num_rows is not used
  gemm::RowSource own_k, own_v;  ///< a key and a value more of each item; null: none
  gemm::Operand<void> y;
  float scale = 1, share = 1;  ///< of scores; of the sums
  int heads = 1;
  int dim = 0, padded_dim = 0;  ///< of a head; padded to 16
  bool causal = false;
  Window window;
  Partition partition;
};

inline constexpr float largest_score = std::numeric_limits<float>::max();

/// Of the events of a parent the first that a row sees. A row of a causal attention is the event at `place`; other rows
/// come behind all events.
WARPRANK_DEVICE int first_event_seen(const Window& window, bool is_causal, int place, int num_events) {
  const int first = (is_causal ? place : num_events) - window.events;
  const bool is_full = is_causal ? place >= num_events - window.full_last : window.full_last > 0;
  return window.events == 0 || is_full || first < 0 ? 0 : first;
}

/// Keys [begin, end), which a row sees.
struct SeenRange {
  int begin, end;
};

/// The same for a lane's two rows.
struct SeenKeys {
  int begin[2], end[2];

  /// The same, counted from `key` on.
  WARPRANK_DEVICE SeenKeys behind(int key) const {
    return {{begin[0] - key, begin[1] - key}, {end[0] - key, end[1] - key}};
  }
  WARPRANK_DEVICE bool has(int lower, int key) const { return key >= begin[lower] && key < end[lower]; }
};

/// The same of rows that see all keys from the first one on.
struct FirstKeys {
  int end[2];

  WARPRANK_DEVICE bool has(int lower, int key) const { return key < end[lower]; }
};

/// silu(score). An infinite score counts as the largest finite one; below -105 silu is about 0.
WARPRANK_DEVICE float silu_weight(float score) {
  const float limited = score < -105.0f ? -105.0f : score > largest_score ? largest_score : score;
  return limited * device::fast_sigmoid(score);
}

struct Header {
  Descriptor descriptor;
  ItemWork work;
};
static_assert(sizeof(Header) <= header_bytes);

}}}  // namespace warprank::v0::detail::attention
