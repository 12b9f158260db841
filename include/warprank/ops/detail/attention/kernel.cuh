// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The attention kernel for any shape and alignment, causal or not, with a window or without. A unit of work is up to
/// 64 items of one parent and one head: their queries are in shared memory, keys and values come in chunks, and each
/// warp takes 16 items. The softmax of a row is corrected every `step` keys, from the first key of its parent on: so a
/// row has the same bits whatever is computed beside it, and however keys are divided into chunks and items among
/// blocks.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/async_copy.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/order.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/attention/descriptor.cuh"
#include "warprank/ops/detail/attention/strip.cuh"
#include "warprank/ops/detail/gemm/epilogue.cuh"
#include "warprank/ops/detail/gemm/rows.cuh"

namespace warprank { inline namespace v0 { namespace detail::attention {

/// Rows of one head.
WARPRANK_DEVICE gemm::RowSource rows_of_head(gemm::RowSource rows, int64_t first_row, int64_t first_column, int count) {
  rows.first += first_row * rows.stride + first_column;
  rows.num_rows = count;
  return rows;
}

/// Brings rows [first, first + count) to shared memory, to a whole strip; those that do not exist are zeros. All
/// threads of the block call. On targets with asynchronous copies the caller commits and waits.
template <int Target>
WARPRANK_DEVICE void load_tile(const gemm::RowSource& source, int first, int count, int padded_dim, float16* to) {
  constexpr int vector = 8;
  const int per_row = padded_dim / vector, stride = padded_dim + row_padding;
  const int total = (count + strip_rows - 1) / strip_rows * strip_rows * per_row;
  if constexpr (Target >= 80) {
    for (int piece = device::thread_rank(); piece < total; piece += block_threads) {
      const int row = piece / per_row, column = piece % per_row * vector;
      float16* const place = to + row * stride + column;
      if (first + row < source.num_rows && source.is_aligned && column + vector <= source.num_columns)
        device::copy_async(place, source.first + (first + row) * source.stride + column);
      else
        device::store_vector(place, gemm::load_columns_of_row(source, first + row, column));
    }
  } else {
    constexpr int at_once = 4;  // loads in flight
    for (int begin = device::thread_rank(); begin < total; begin += block_threads * at_once) {
      device::Vector<float16, vector> pieces[at_once];
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int piece = begin + i * block_threads;
        if (piece < total)
          pieces[i] = gemm::load_columns_of_row(source, first + piece / per_row, piece % per_row * vector);
      }
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int piece = begin + i * block_threads;
        if (piece < total) device::store_vector(to + piece / per_row * stride + piece % per_row * vector, pieces[i]);
      }
    }
  }
}

/// Values that are not finite become 0, as a row that does not see them would have 0 times them; `spoilt` notes for
/// each column the first key that had one. All threads of the block call.
WARPRANK_DEVICE void take_out_spoilt(float16* values, int first_key, int count, int padded_dim, uint32_t* spoilt) {
  using Eight = device::Vector<float16, 8>;
  constexpr uint16_t exponent = 0x7c00;
  const int per_row = padded_dim / 8;
  for (int i = device::thread_rank(); i < count * per_row; i += block_threads) {
    const int key = i / per_row, column = i % per_row * 8;
    Eight& eight = *reinterpret_cast<Eight*>(values + key * (padded_dim + row_padding) + column);
    WARPRANK_UNROLL
    for (int j = 0; j < 8; ++j) {
      if ((eight[j].bits & exponent) != exponent) continue;
      eight[j] = float16{};
      device::atomic_min<device::Order::relaxed, device::Scope::block>(&spoilt[column + j],
                                                                       static_cast<uint32_t>(first_key + key));
    }
  }
}

WARPRANK_DEVICE int least(int a, int b) { return a < b ? a : b; }

/// Of rows at `place` up to `last_place` of a causal attention, or of rows behind all events, the first event that one
/// of them sees: full rows are the last ones, and others see later events the later they are.
WARPRANK_DEVICE int first_event_of_rows(const Descriptor& d, int place, int last_place, int num_events) {
  return least(first_event_seen(d.window, d.causal, place, num_events),
               first_event_seen(d.window, d.causal, last_place, num_events));
}

/// A unit's rows of one head. `Bias`: NoBias, or LaneBias of what `relative` says.
template <int Target, int Columns, AttentionWeights Weights, class Bias>
WARPRANK_DEVICE void attend(Header& header, int head, [[maybe_unused]] const RelativeBias* relative) {
  constexpr Policy chosen = policy<Target, Columns>;
  const Descriptor& d = header.descriptor;
  const Partition& p = d.partition;
  const ItemUnit unit = header.work.unit;
  auto* const shared = reinterpret_cast<unsigned char*>(&header);
  auto* const spoilt = reinterpret_cast<uint32_t*>(shared + p.spoilt);
  auto* const queries = reinterpret_cast<float16*>(shared + p.queries);
  const int stride = d.padded_dim + row_padding, values_place = p.chunk * stride;

  // Where a row sees itself and what came before, items are events.
  const int place = d.causal ? static_cast<int>(unit.first_item - unit.first_event) : 0;
  const int num_events = static_cast<int>(unit.num_events), num_keys = d.causal ? place + unit.num_items : num_events;
  const int first_column = head * d.dim;
  const gemm::RowSource q = rows_of_head(d.q, unit.first_item, first_column, unit.num_items);
  const gemm::RowSource k = rows_of_head(d.k, unit.first_event, first_column, num_keys);
  const gemm::RowSource v = rows_of_head(d.v, unit.first_event, first_column, num_keys);

  const int first_row = device::warp_index() * strip_rows, num_rows = unit.num_items - first_row;
  float16* const strip_queries = queries + first_row * stride;
  const int last_row = first_row + least(num_rows, strip_rows) - 1;
  const int needed = num_rows <= 0 ? 0 : d.causal ? place + last_row + 1 : num_keys;
  const auto seen_by = [&](int of_strip) {
    const int row = place + first_row + of_strip;
    SeenRange seen{0, d.causal ? least(row + 1, num_keys) : num_keys};
    if constexpr (Weights == AttentionWeights::silu) seen.begin = first_event_seen(d.window, d.causal, row, num_events);
    return seen;
  };
  SeenKeys seen;
  WARPRANK_UNROLL
  for (int lower = 0; lower < 2; ++lower) {
    const SeenRange of_row = seen_by(lower * 8 + device::lane_index() / 4);
    seen.begin[lower] = of_row.begin, seen.end[lower] = of_row.end;
  }
  int first_key = 0, first_of_warp = 0;  // that rows of the unit, of the warp, see
  if constexpr (Weights == AttentionWeights::silu) {
    first_key = first_event_of_rows(d, place, place + unit.num_items - 1, num_events) / p.chunk * p.chunk;
    first_of_warp = first_event_of_rows(d, place + first_row, place + last_row, num_events);
  }
  Bias bias{};
  if constexpr (Bias::exists) {
    const RelativeBias of_all = load_whole(relative);
    bias.begin(of_all, head, unit.first_event, num_keys - 1);
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      const int row = least(first_row + lower * 8 + device::lane_index() / 4, unit.num_items - 1);
      bias.set_row(of_all, lower, unit.first_item + row, d.causal ? place + row : num_events);
    }
  }
  const bool all_see_all = num_keys == 0 || (!d.causal && d.window.events == 0);

  const auto keys_of = [&](int stage) { return reinterpret_cast<float16*>(shared + p.keys + stage * p.stage_bytes); };
  const auto load_chunk = [&](int first, int stage) {
    const int count = least(p.chunk, num_keys - first);
    load_tile<Target>(k, first, count, d.padded_dim, keys_of(stage));
    load_tile<Target>(v, first, count, d.padded_dim, keys_of(stage) + values_place);
  };

  Strip<Target, Columns, Weights> strip;
  strip.clear();
  if (!all_see_all) {
    for (int i = device::thread_rank(); i < d.padded_dim; i += block_threads) spoilt[i] = 0xffffffffu;
  }
  if (num_keys > 0) {
    load_tile<Target>(q, 0, unit.num_items, d.padded_dim, queries);
    load_chunk(first_key, 0);
    device::commit_async();
  }
  for (int first = first_key, stage = 0; first < num_keys; first += p.chunk, stage = (stage + 1) % chosen.stages) {
    const int next = first + p.chunk, count = least(p.chunk, num_keys - first);
    if (chosen.stages > 1 && next < num_keys) load_chunk(next, (stage + 1) % chosen.stages);
    device::commit_async();
    device::wait_async<1>();  // all but what was just requested
    device::sync_block();
    const float16* const keys = keys_of(stage);
    if (!all_see_all) {
      take_out_spoilt(keys_of(stage) + values_place, first, count, d.padded_dim, spoilt);
      device::sync_block();
    }
    for (int key = 0; key < p.chunk && first + key < needed; key += chosen.step) {
      if (first + key + chosen.step <= first_of_warp) continue;
      const SeenKeys seen_of_step = seen.behind(first + key);
      strip.add(d, strip_queries, keys + key * stride, keys + values_place + key * stride,
                least(chosen.step, needed - first - key), seen_of_step, bias, first + key);
    }
    device::sync_block();
    if (chosen.stages == 1 && next < num_keys) load_chunk(next, 0);
  }

  if (num_rows <= 0) return;
  if constexpr (Weights == AttentionWeights::silu) {
    if (d.own_k.first != nullptr)
      strip.add_own(d, q, rows_of_head(d.own_k, unit.first_item, first_column, unit.num_items),
                    rows_of_head(d.own_v, unit.first_item, first_column, unit.num_items), first_row,
                    least(num_rows, strip_rows), bias);
  }
  gemm::Operand<void> y = d.y;
  y.data = static_cast<unsigned char*>(y.data) + static_cast<int64_t>(first_column) * (y.is_half ? 2 : 4);
  y.is_aligned = y.is_aligned && first_column % gemm::columns_at_once == 0;
  strip.store(d, y, unit.first_item + first_row, least(num_rows, strip_rows), reinterpret_cast<float*>(strip_queries),
              all_see_all ? nullptr : spoilt, v, seen_by);
}

template <int Target, int Columns>
inline constexpr int min_blocks = policy<Target, Columns>.min_blocks;

/// All units of a block. Rows of the grid are attentions; each cuts a row into as many parts as it has heads.
template <int Target, int Columns, AttentionWeights Weights, class Bias = NoBias>
WARPRANK_DEVICE void attend_all(const Descriptor* descriptor, const RelativeBias* relative) {
  Header& header = *reinterpret_cast<Header*>(device::dynamic_shared<unsigned char>());
  const Descriptor& d = header.descriptor;
  copy_descriptor<block_threads>(header.descriptor, descriptor);
  device::wait_for_previous_launch();
  device::sync_block();
  const unsigned heads = static_cast<unsigned>(d.heads), block = device::block_index().x;
  const unsigned num_blocks = device::grid_dim().x / heads;
  if (block / heads >= num_blocks) return;
  if (device::thread_rank() == 0) begin_items(d.axes, header.work, strip_rows, unit_rows, block / heads, num_blocks);
  for (;;) {
    device::sync_block();  // the unit before is not needed any more
    if (device::thread_rank() == 0) next_items(d.axes, header.work);
    device::sync_block();
    if (header.work.unit.num_items == 0) return;
    attend<Target, Columns, Weights, Bias>(header, static_cast<int>(block % heads), relative);
  }
}

template <int Target, int Columns, AttentionWeights Weights>
WARPRANK_KERNEL(block_threads, (min_blocks<Target, Columns>))
attention_kernel(const Descriptor* descriptors) {
  attend_all<Target, Columns, Weights>(&descriptors[device::block_index().y], nullptr);
}

/// With a bias narrow heads would spill in the registers of as many blocks.
template <int Target, int Columns>
inline constexpr int biased_min_blocks = Columns <= narrow_columns ? 3 : min_blocks<Target, Columns>;

/// The same of attentions that may have a bias, with the weights of silu.
template <int Target, int Columns>
WARPRANK_KERNEL(block_threads, (biased_min_blocks<Target, Columns>))
biased_attention_kernel(const BiasedDescriptor* descriptors) {
  const BiasedDescriptor& biased = descriptors[device::block_index().y];
  attend_all<Target, Columns, AttentionWeights::silu, LaneBias>(&biased, &biased.bias);
}

}}}  // namespace warprank::v0::detail::attention
