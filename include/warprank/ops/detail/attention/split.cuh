// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The attention kernel for aligned heads of 16, 32, 64 or 128 columns: a block for each 16 items of a parent and each
/// head, whose warps divide the events among them.
///
/// Warp w takes the steps of 16 events w, w + warps, and so on, with a softmax of its own that it corrects at each
/// step; at last the parts of the warps are combined in their order. So the order of sums depends on the number of
/// events alone, and not on what is computed beside, or on how much there may be: the number of warps is fixed for a
/// width and a target. With silu in the place of the softmax the parts are sums alone, and the last warp, which takes
/// no more steps than another, adds the items' own keys. Where it is causal, the last step of a unit has its own items,
/// of which each sees those before it. Queries, keys and values go from global memory straight into fragments; a lane
/// loads neighbouring columns of the values, and pairs those of two events.
///
/// From launch to store: the descriptor, which is read before the launch before has ended, and one trip to memory where
/// there is one parent, as counts, queries, keys and values of the first step are requested together; two where there
/// are several parents. One barrier. In flight: of each warp 16 keys and values and the queries. The prototype of this
/// kernel, of 8 warps and 16 events, takes 3.7 us for 100 items and 200 events of one head of 64, and 7.0 us for 1000
/// events, on an H100; steps of 32 events are 7 % faster there and slower where there are many units.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/attention/descriptor.cuh"
#include "warprank/ops/detail/common/card_policies.hpp"
#include "warprank/ops/detail/common/direct_rows.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::attention {

inline constexpr int split_items = 16;   ///< of a block: the rows of an mma
inline constexpr int split_events = 16;  ///< of a step

struct SplitPolicy {
  int warps;       ///< of a block; results depend on it
  int min_blocks;  ///< on a multiprocessor

  constexpr int threads() const { return warps * device::warp_size; }
};
/// Of so many warps: as many blocks on a multiprocessor as their registers leave room for. A T4 is no faster with three
/// blocks of 16 columns than with two.
constexpr SplitPolicy split_policy_of(int target, int warps, int dim) {
  const int warps_of_all = dim == 128 ? 8 : dim == 16 && target >= 80 ? 24 : 16;
  return {warps, warps_of_all / warps};
}
/// As many warps as were best on the nearest card, but where their parts need more shared memory than the target has.
template <int Target, int Dim>
inline constexpr SplitPolicy split_policy = Dim == 128 && Target < 80
                                                ? SplitPolicy{4, 1}
                                                : split_policy_of(Target, launch_policies_of(Target).attention_warps,
                                                                  Dim);

/// Shared memory of a block: each warp's sums, and its largest scores and totals.
constexpr int64_t split_bytes(int warps, int dim) {
  return int64_t{warps} * split_items * (dim * int64_t{sizeof(float)} + 2 * int64_t{sizeof(float)});
}

/// An attention as it lies in device memory.
struct alignas(16) SplitDescriptor {
  const float16 *q, *k, *v;  ///< rows of all heads
  void* y;
  int64_t q_stride, k_stride, v_stride, y_stride;
  const int64_t *num_parents, *item_offsets, *history_offsets;
  int64_t max_parents, max_items;
  int max_events, heads;
  float factor;                ///< of scores: scale, and log2(e) for a softmax
  int16_t is_half, is_causal;  ///< y; an item sees no event behind it
};
static_assert(sizeof(SplitDescriptor) == 128);

/// With the weights of silu: what comes beside.
struct alignas(16) SiluSplitDescriptor : SplitDescriptor {
  const float16 *own_k, *own_v;  ///< a key and a value more of each item; null: none
  int64_t own_k_stride, own_v_stride;
  float share;  ///< of sums
};
static_assert(sizeof(SiluSplitDescriptor) == 176);
template <AttentionWeights Weights>
using SplitDescriptorOf =
    std::conditional_t<Weights == AttentionWeights::softmax, SplitDescriptor, SiluSplitDescriptor>;

template <class Descriptor>
WARPRANK_DEVICE Descriptor load_split_descriptor(const Descriptor* from) {
  Descriptor to;
  const auto* const words = reinterpret_cast<const uint32_t*>(from);
  WARPRANK_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof to) / 16; ++i) {
    const auto four = device::load_vector_read_only<4>(words + 4 * i);
    std::memcpy(reinterpret_cast<unsigned char*>(&to) + 16 * i, &four, sizeof four);
  }
  return to;
}

/// What a block computes: items of one parent, and the events that they see.
struct SplitUnit {
  int64_t first_item = 0, first_event = 0;
  int num_items = 0, num_events = 0;
  int rank = 0;  ///< of the first item among its parent's

  /// The events that its items see, of so many.
  WARPRANK_DEVICE int events_seen(bool is_causal, int count) const {
    const int seen = is_causal ? rank + num_items : count;
    return seen < count ? seen : count;
  }
};

/// Unit `number` of all parents; all lanes of a warp call. Without items where there are not so many.
WARPRANK_DEVICE SplitUnit find_split_unit(const SplitDescriptor& d, int64_t number) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  const int lane = lane_index();
  int64_t num_parents = d.num_parents == nullptr ? d.max_parents : load_ahead(d.num_parents);
  SplitUnit unit;
  int64_t before = 0;  // units of the parents so far
  for (int64_t base = 0; base < d.max_parents; base += warp_size) {
    const int64_t parent = base + lane;
    int64_t item = 0, next_item = 0, event = 0, next_event = 0;
    if (parent < d.max_parents) {
      item = load_ahead(&d.item_offsets[parent]), next_item = load_ahead(&d.item_offsets[parent + 1]);
      event = load_ahead(&d.history_offsets[parent]), next_event = load_ahead(&d.history_offsets[parent + 1]);
    }
    use_from_here(num_parents);
    if (next_item > d.max_items) next_item = d.max_items;
    const int64_t items = parent < num_parents && item < next_item ? next_item - item : 0;
    const int64_t units = (items + split_items - 1) / split_items;
    int64_t end = units;
    WARPRANK_UNROLL
    for (int distance = 1; distance < warp_size; distance *= 2) {
      const int64_t other = shuffle_up(full_warp, end, distance);
      if (lane >= distance) end += other;
    }
    end += before;
    const uint32_t found = ballot(full_warp, number < end);
    if (found != 0) {
      const int from = first_bit(found);
      const int64_t place = (number - shuffle(full_warp, end - units, from)) * split_items;
      const int64_t rest = shuffle(full_warp, items, from) - place;
      unit.first_item = shuffle(full_warp, item, from) + place;
      unit.num_items = rest < split_items ? static_cast<int>(rest) : split_items;
      unit.first_event = shuffle(full_warp, event, from);
      unit.num_events = static_cast<int>(shuffle(full_warp, next_event - event, from));
      unit.rank = static_cast<int>(place);
      return unit;
    }
    before = shuffle(full_warp, end, warp_size - 1);
    if (base + warp_size >= num_parents) break;
  }
  return unit;
}

/// A warp's part of a unit: weighted sums of the events that it takes. A lane has rows lane / 4 and 8 below; of each of
/// the groups of Dim / 8 columns lane % 4 * 2 and the one behind it, all columns.
template <int Target, int Dim, AttentionWeights Weights>
struct SplitPart {
  static constexpr bool is_softmax = Weights == AttentionWeights::softmax;
  static constexpr int factor_words = Dim / 8, value_words = Dim / 16, tiles = Dim / 8;
  static constexpr float unseen = -std::numeric_limits<float>::infinity();
  static constexpr float log2_of_weight_scale = 15;  ///< weights are normal FP16 down to 2^-29 of the largest

  uint32_t queries[2][factor_words], keys[2][factor_words], values[4][value_words];
  float sums[tiles][4], totals[4], tops[2];
  uint32_t spoilt;  ///< not 0: values were taken out

  WARPRANK_DEVICE void clear() {
    spoilt = 0;
    WARPRANK_UNROLL
    for (int c = 0; c < 4; ++c) {
      totals[c] = 0;
      WARPRANK_UNROLL
      for (int n = 0; n < tiles; ++n) sums[n][c] = 0;
    }
    tops[0] = tops[1] = -largest_score;
  }

  /// Which event of a step the lane's i-th values are of.
  static WARPRANK_DEVICE int event_of_values(int i) { return device::lane_index() % 4 * 2 + i / 2 * 8 + i % 2; }

  /// Requests the step from `event` on, where there are `limit` events; behind them the last one again.
  WARPRANK_DEVICE void request_events(const SplitDescriptor& d, const float16* k, const float16* v, int event,
                                      int limit) {
    const int g = device::lane_index() / 4;
    const auto row = [limit](int i) { return i < limit ? i : limit - 1; };
    WARPRANK_UNROLL
    for (int n = 0; n < 2; ++n) load_factor_ahead(k + row(event + 8 * n + g) * d.k_stride, keys[n]);
    WARPRANK_UNROLL
    for (int i = 0; i < 4; ++i)
      load_words_ahead(v + row(event + event_of_values(i)) * d.v_stride + g * (Dim / 8), values[i]);
  }
  WARPRANK_DEVICE void request_queries(const SplitDescriptor& d, const float16* q, int limit) {
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      const int row = lower * 8 + device::lane_index() / 4;
      load_factor_ahead(q + (row < limit ? row : limit - 1) * d.q_stride, queries[lower]);
    }
  }

  /// Adds the step that was requested, of which `rest` events are seen, or exist. The last ones of a causal unit are
  /// its own rows, of which each sees itself and those before it.
  WARPRANK_DEVICE void add(float factor, int rest, bool is_causal) {
    const bool are_rows = is_causal && rest <= split_events;
    if (rest < split_events) {  // whatever lies behind the last event
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) {
        WARPRANK_UNROLL
        for (int w = 0; w < value_words; ++w) values[i][w] = event_of_values(i) < rest ? values[i][w] : 0;
      }
    }
    const int row = device::lane_index() / 4;
    const int seen[2] = {are_rows && row + 1 < rest ? row + 1 : rest, are_rows && row + 9 < rest ? row + 9 : rest};
    float scores[2][4] = {};
    WARPRANK_UNROLL
    for (int w = 0; w < factor_words; w += 2) {
      const uint32_t a[4] = {queries[0][w], queries[1][w], queries[0][w + 1], queries[1][w + 1]};
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) gemm::multiply_step<Target>(scores[n], a, keys[n][w], keys[n][w + 1], true);
    }
    uint32_t weights[4];
    if constexpr (is_softmax) {
      weigh(factor, seen, scores, weights);
      constexpr uint32_t ones = 0x3c003c00;
      gemm::multiply_step<Target>(totals, weights, ones, ones, true);
    } else {
      weigh_by_silu(factor, seen, scores, weights);
    }
    if (are_rows) take_out_spoilt();
    WARPRANK_UNROLL
    for (int w = 0; w < value_words; ++w) {
      using device::high_half, device::low_half, device::pack_halves;
      gemm::multiply_step<Target>(sums[2 * w], weights, pack_halves(low_half(values[0][w]), low_half(values[1][w])),
                                  pack_halves(low_half(values[2][w]), low_half(values[3][w])), true);
      gemm::multiply_step<Target>(sums[2 * w + 1], weights,
                                  pack_halves(high_half(values[0][w]), high_half(values[1][w])),
                                  pack_halves(high_half(values[2][w]), high_half(values[3][w])), true);
    }
  }

  /// Adds the own keys and values of the lane's rows, of which `limit` exist; the queries have been requested.
  WARPRANK_DEVICE void add_own(const SiluSplitDescriptor& d, const float16* own_k, const float16* own_v, int limit) {
    using device::widen_high, device::widen_low;
    uint32_t own_keys[2][factor_words], own_values[4][value_words];
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      const int rank = lower * 8 + device::lane_index() / 4, row = rank < limit ? rank : limit - 1;
      load_factor_ahead(own_k + row * d.own_k_stride, own_keys[lower]);
      WARPRANK_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = (device::lane_index() % 4 * 2 + i) * (Dim / 8);
        load_words_ahead(own_v + row * d.own_v_stride + column, own_values[2 * lower + i]);
      }
    }
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      float score = 0;
      WARPRANK_UNROLL
      for (int w = 0; w < factor_words; ++w) {
        score = std::fma(widen_low(queries[lower][w]), widen_low(own_keys[lower][w]), score);
        score = std::fma(widen_high(queries[lower][w]), widen_high(own_keys[lower][w]), score);
      }
      const float weight = silu_weight(device::Tile<4>::sum(score) * d.factor);
      WARPRANK_UNROLL
      for (int i = 2 * lower; i < 2 * lower + 2; ++i) {
        WARPRANK_UNROLL
        for (int w = 0; w < value_words; ++w) {
          sums[2 * w][i] = std::fma(weight, widen_low(own_values[i][w]), sums[2 * w][i]);
          sums[2 * w + 1][i] = std::fma(weight, widen_high(own_values[i][w]), sums[2 * w + 1][i]);
        }
      }
    }
  }

 private:
  /// Values that are not finite become 0: their weight of 0 would be NaN in rows that do not see them.
  WARPRANK_DEVICE void take_out_spoilt() {
    WARPRANK_UNROLL
    for (int i = 0; i < 4; ++i) {
      WARPRANK_UNROLL
      for (int w = 0; w < value_words; ++w) {
        const uint32_t halves = spoilt_halves(values[i][w]);
        spoilt |= halves;
        values[i][w] &= ~((halves >> 15) * 0xffffu);
      }
    }
  }

  /// The upper bit of each half that is not finite.
  static WARPRANK_DEVICE uint32_t spoilt_halves(uint32_t pair) {
    return ((pair & 0x7c007c00u) + 0x04000400u) & 0x80008000u;
  }

  static WARPRANK_DEVICE void weigh_by_silu(float factor, const int (&seen)[2], const float (&scores)[2][4],
                                            uint32_t (&weights)[4]) {
    WARPRANK_UNROLL
    for (int n = 0; n < 2; ++n) {
      WARPRANK_UNROLL
      for (int lower = 0; lower < 2; ++lower) {
        float pair[2];
        WARPRANK_UNROLL
        for (int i = 0; i < 2; ++i) {
          const bool is_seen = n * 8 + device::lane_index() % 4 * 2 + i < seen[lower];
          pair[i] = is_seen ? silu_weight(scores[n][2 * lower + i] * factor) : 0.0f;
        }
        weights[2 * n + lower] = device::narrow_pair(pair[0], pair[1]);
      }
    }
  }

  /// Weights of the scores, in the layout of a left factor, and what the larger ones change of all before. Infinite
  /// scores count as the largest finite ones; NaN stays.
  WARPRANK_DEVICE void weigh(float factor, const int (&seen)[2], float (&scores)[2][4], uint32_t (&weights)[4]) {
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      float top = tops[lower];
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) {
        WARPRANK_UNROLL
        for (int c = 2 * lower; c < 2 * lower + 2; ++c) {
          const float scaled = scores[n][c] * factor, score = scaled < -largest_score ? -largest_score : scaled;
          const bool is_seen = n * 8 + device::lane_index() % 4 * 2 + c % 2 < seen[lower];
          scores[n][c] = is_seen ? score : unseen;
          top = std::fmax(top, scores[n][c]);
        }
      }
      top = std::fmin(device::Tile<4>::max(top), largest_score);
      const float correction = std::exp2(tops[lower] - top);
      tops[lower] = top;
      WARPRANK_UNROLL
      for (int n = 0; n < tiles; ++n) sums[n][2 * lower] *= correction, sums[n][2 * lower + 1] *= correction;
      totals[2 * lower] *= correction;
      const float zero = top - log2_of_weight_scale;  // an infinite score's weight saturates
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) {
        weights[2 * n + lower] =
            device::narrow_pair(std::exp2(scores[n][2 * lower] - zero), std::exp2(scores[n][2 * lower + 1] - zero));
      }
    }
  }
};

/// The parts of all warps, in shared memory: of each, some neighbouring columns of each lane at a time, as many as are
/// stored at once.
template <int Warps, int Dim, AttentionWeights Weights>
struct SplitParts {
  static constexpr bool is_softmax = Weights == AttentionWeights::softmax;
  static constexpr int columns = Dim < 32 ? Dim / 8 : 4;  ///< of a slot
  static constexpr int slots_of_row = Dim / 8 / columns;  ///< of a lane, in each of its two rows and groups of columns
  static constexpr int slots = 4 * slots_of_row;
  using Columns = device::Vector<float, columns>;
  struct alignas(8) Softmax {
    float top, total;
  };

  Columns sums[Warps][slots][device::warp_size];
  Softmax rows[Warps][split_items];

  template <class Part>
  WARPRANK_DEVICE void put(const Part& part) {
    const int warp = device::warp_index(), lane = device::lane_index();
    WARPRANK_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      Columns some;
      WARPRANK_UNROLL
      for (int i = 0; i < columns; ++i) some[i] = part.sums[slot % slots_of_row * columns + i][slot / slots_of_row];
      sums[warp][slot][lane] = some;
    }
    if (!is_softmax || lane % 4 != 0) return;
    rows[warp][lane / 4] = {part.tops[0], part.totals[0]};
    rows[warp][lane / 4 + 8] = {part.tops[1], part.totals[2]};
  }

  /// y of the unit's items, in columns from `first_column` on. Each warp of the block stores some slots. `spoilt_v`:
  /// where values of the items themselves were taken out, their rows; they make those that see them NaN. Rare.
  WARPRANK_DEVICE void store(const SplitDescriptorOf<Weights>& d, const SplitUnit& unit, int first_column,
                             const float16* spoilt_v) const {
    const int lane = device::lane_index();
    for (int slot = device::warp_index(); slot < slots; slot += Warps) {
      const int c = slot / slots_of_row, row = lane / 4 + c / 2 * 8;
      float y[columns] = {}, inverse;  // of what the sums are to be divided by
      if constexpr (is_softmax) {
        inverse = add_corrected(row, slot, lane, y);
      } else {
        inverse = d.share;
        WARPRANK_UNROLL
        for (int w = 0; w < Warps; ++w) {
          const Columns some = sums[w][slot][lane];
          WARPRANK_UNROLL
          for (int i = 0; i < columns; ++i) y[i] += some[i];
        }
      }
      if (row >= unit.num_items) continue;
      const int column = (lane % 4 * 2 + c % 2) * (Dim / 8) + slot % slots_of_row * columns;
      if (spoilt_v != nullptr) take_in_spoilt(spoilt_v + column, d.v_stride, row, y);
      const int64_t place = (unit.first_item + row) * d.y_stride + first_column + column;
      if (d.is_half != 0) {
        device::Vector<float16, columns> narrowed;
        WARPRANK_UNROLL
        for (int i = 0; i < columns; ++i) narrowed[i] = device::narrow<float16>(y[i] * inverse);
        device::store_vector(static_cast<float16*>(d.y) + place, narrowed);
      } else {
        Columns all;
        WARPRANK_UNROLL
        for (int i = 0; i < columns; ++i) all[i] = y[i] * inverse;
        device::store_vector(static_cast<float*>(d.y) + place, all);
      }
    }
  }

 private:
  /// NaN where a value of `row`, or of a row before, is not finite.
  static WARPRANK_DEVICE void take_in_spoilt(const float16* values, int64_t stride, int row, float (&y)[columns]) {
    WARPRANK_ROLLED
    for (int i = 0; i <= row; ++i) {
      WARPRANK_UNROLL
      for (int c = 0; c < columns; ++c) {
        const float value = device::widen(device::load(&values[i * stride + c])), nothing = value - value;
        if (nothing != 0) y[c] = nothing;
      }
    }
  }

  /// Adds the warps' sums, each as if it had seen the largest score of all; returns 1 / the total of the weights.
  WARPRANK_DEVICE float add_corrected(int row, int slot, int lane, float (&y)[columns]) const {
    Softmax parts[Warps];
    float top = -largest_score, total = 0;
    WARPRANK_UNROLL
    for (int w = 0; w < Warps; ++w) parts[w] = rows[w][row], top = std::fmax(top, parts[w].top);
    WARPRANK_UNROLL
    for (int w = 0; w < Warps; ++w) {
      const float share = std::exp2(parts[w].top - top);
      const Columns some = sums[w][slot][lane];
      total += share * parts[w].total;
      WARPRANK_UNROLL
      for (int i = 0; i < columns; ++i) y[i] += share * some[i];
    }
    return total == 0 ? 0 : 1 / total;
  }
};

template <int Target, int Dim>
inline constexpr int split_threads = split_policy<Target, Dim>.threads();
template <int Target, int Dim>
inline constexpr int split_min_blocks = split_policy<Target, Dim>.min_blocks;

/// What a block of so many warps does.
template <int Target, int Dim, int Warps, AttentionWeights Weights>
WARPRANK_DEVICE void attend_split(const SplitDescriptorOf<Weights>* descriptors) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  const SplitDescriptorOf<Weights> d = load_split_descriptor(descriptors + block_index().z);
  wait_for_previous_launch();
  const int head = static_cast<int>(block_index().y);
  const int64_t number = block_index().x;
  if (head >= d.heads || d.max_parents == 0) return;

  // Of one parent, everything of the first step is requested before the counts are here: up to the capacity.
  const bool has_one_parent = d.max_parents == 1;
  SplitUnit unit;
  int64_t num_parents = 1, num_items = 0, num_events = 0;
  int item_limit, event_limit;  // of what may be read
  if (has_one_parent) {
    unit.first_item = number * split_items;
    unit.rank = static_cast<int>(unit.first_item);
    const int64_t rest = d.max_items - unit.first_item;
    if (rest <= 0) return;
    if (d.num_parents != nullptr) num_parents = load_ahead(d.num_parents);
    num_items = load_ahead(&d.item_offsets[1]), num_events = load_ahead(&d.history_offsets[1]);
    item_limit = rest < split_items ? static_cast<int>(rest) : split_items;
    unit.num_items = item_limit;
    event_limit = unit.events_seen(d.is_causal != 0, d.max_events);
  } else {
    unit = find_split_unit(d, number);
    if (unit.num_items == 0) return;
    item_limit = unit.num_items, event_limit = unit.num_events = unit.events_seen(d.is_causal != 0, unit.num_events);
  }
  const float16* const q = d.q + unit.first_item * d.q_stride + head * Dim;
  const float16* const k = d.k + unit.first_event * d.k_stride + head * Dim;
  const float16* const v = d.v + unit.first_event * d.v_stride + head * Dim;
  SplitPart<Target, Dim, Weights> part;
  int event = warp_index() * split_events;
  bool adds_own = false;
  if constexpr (Weights == AttentionWeights::silu) adds_own = d.own_k != nullptr && warp_index() == Warps - 1;
  if (event < event_limit) part.request_events(d, k, v, event, event_limit);
  if (event < event_limit || adds_own) part.request_queries(d, q, item_limit);
  if (has_one_parent) {
    use_from_here(num_parents), use_from_here(num_items), use_from_here(num_events);
    const int64_t rest = num_parents > 0 ? num_items - unit.first_item : 0;
    if (rest <= 0) return;
    unit.num_items = rest < item_limit ? static_cast<int>(rest) : item_limit;
    unit.num_events =
        unit.events_seen(d.is_causal != 0, num_events < event_limit ? static_cast<int>(num_events) : event_limit);
  }

  part.clear();
  while (event < unit.num_events) {
    part.add(d.factor, unit.num_events - event, d.is_causal != 0);
    event += Warps * split_events;
    if (event < unit.num_events) part.request_events(d, k, v, event, unit.num_events);
  }
  if constexpr (Weights == AttentionWeights::silu) {
    if (adds_own) {
      part.add_own(d, d.own_k + unit.first_item * d.own_k_stride + head * Dim,
                   d.own_v + unit.first_item * d.own_v_stride + head * Dim, unit.num_items);
    }
  }
  auto& parts = *dynamic_shared<SplitParts<Warps, Dim, Weights>>();
  parts.put(part);
  const float16* const spoilt_v = sync_block_any(part.spoilt != 0) ? v + unit.rank * d.v_stride : nullptr;
  parts.store(d, unit, head * Dim, spoilt_v);
}

/// The grid: units, heads, attentions.
template <int Target, int Dim, AttentionWeights Weights>
WARPRANK_KERNEL((split_threads<Target, Dim>), (split_min_blocks<Target, Dim>))
split_attention_kernel(const SplitDescriptorOf<Weights>* descriptors) {
  attend_split<Target, Dim, split_policy<Target, Dim>.warps, Weights>(descriptors);
}

}}}  // namespace warprank::v0::detail::attention
