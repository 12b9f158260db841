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
/// From launch to store: addresses, which are read before the launch before has ended, and one trip to memory where
/// there is one parent, as counts, queries, keys and values of the first step are requested together; two where there
/// are several parents. One barrier. In flight: of each warp 16 keys and values and the queries; the keys of the next
/// step are requested as soon as those of a step are multiplied. What else a descriptor says is a parameter: all warps
/// of a T4 would take 500 cycles to load it. The prototype of this kernel, of 8 warps and 16 events, takes 3.7 us for
/// 100 items and 200 events of one head of 64, and 7.0 us for 1000 events, on an H100; steps of 32 events are 7 %
/// faster there and slower where there are many units.

#include <cstdint>

#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/attention/split_combine.cuh"
#include "warprank/ops/detail/attention/split_unit.cuh"
#include "warprank/ops/detail/attention/split_warp.cuh"
#include "warprank/ops/detail/common/card_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::attention {

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

template <int Target, int Dim>
inline constexpr int split_threads = split_policy<Target, Dim>.threads();
template <int Target, int Dim>
inline constexpr int split_min_blocks = split_policy<Target, Dim>.min_blocks;

/// The first events that the lane's rows see, and the last one that is the first of a row of the unit. Returns the
/// first event of a step that is not unseen by all.
WARPRANK_DEVICE int find_window(const SiluSplitDescriptor& d, const SplitUnit& unit, int (&first_seen)[2],
                                int& last_first_seen) {
  const bool is_causal = d.is_causal != 0;
  const auto first_of = [&](int row) {
    return first_event_seen(d.window, is_causal, unit.rank + row, unit.parent_events);
  };
  WARPRANK_UNROLL
  for (int lower = 0; lower < 2; ++lower) first_seen[lower] = first_of(lower * 8 + device::lane_index() / 4);
  const int last = first_of(unit.num_items - 1), first = first_of(0);
  last_first_seen = (is_causal ? unit.rank + unit.num_items - 1 : unit.parent_events) - d.window.events;
  return (first < last ? first : last) / split_events * split_events;
}

/// What a block of so many warps does. `HasWindow`: whether an attention of the launch may have one. `Bias`: NoBias, or
/// LaneBias where one may have that; it lies behind the descriptor.
template <int Target, int Dim, int Warps, AttentionWeights Weights, bool HasWindow, class Bias = NoBias>
WARPRANK_DEVICE void attend_split(const SplitDescriptorOf<Weights>* descriptor, const SplitLaunch<Weights>& launch) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  const SplitDescriptorOf<Weights> d = load_split<Weights>(descriptor, launch);
  wait_for_previous_launch();
  const int head = static_cast<int>(block_index().y);
  const int64_t number = block_index().x;
  if (head >= d.heads || d.max_parents == 0) return;

  // Of one parent, everything of the first step is requested before the counts are here: up to the capacity. A window
  // begins where the counts say, and biases depend on them.
  constexpr bool is_silu = Weights == AttentionWeights::silu;
  bool has_window = false;
  if constexpr (HasWindow) has_window = d.window.events > 0;
  const bool has_one_parent = d.max_parents == 1 && !has_window && !Bias::exists;
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
  int first_seen[2] = {}, last_first_seen = 0;  // events, by the lane's rows and those of the unit
  if constexpr (is_silu) adds_own = d.own_k != nullptr && warp_index() == Warps - 1;
  if constexpr (HasWindow) {
    if (has_window) event += find_window(d, unit, first_seen, last_first_seen);
  }
  if (event < event_limit || adds_own) part.request_queries(d, q, item_limit);
  if (event < event_limit) part.request_keys(d, k, event, event_limit), part.request_values(d, v, event, event_limit);
  if (has_one_parent) {
    use_from_here(num_parents), use_from_here(num_items), use_from_here(num_events);
    const int64_t rest = num_parents > 0 ? num_items - unit.first_item : 0;
    if (rest <= 0) return;
    unit.num_items = rest < item_limit ? static_cast<int>(rest) : item_limit;
    unit.num_events =
        unit.events_seen(d.is_causal != 0, num_events < event_limit ? static_cast<int>(num_events) : event_limit);
  }

  Bias bias{};
  if constexpr (Bias::exists) {
    const auto of_all = load_whole(&static_cast<const BiasedSplitDescriptor*>(descriptor)->bias);
    bias.begin(of_all, head, unit.first_event, unit.num_events - 1);
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      const int of_unit = lower * 8 + lane_index() / 4, row = of_unit < unit.num_items ? of_unit : unit.num_items - 1;
      bias.set_row(of_all, lower, unit.first_item + row, d.is_causal != 0 ? unit.rank + row : unit.parent_events);
    }
  }
  part.clear();
  while (event < unit.num_events) {
    const int first_of_step[2] = {first_seen[0] - event, first_seen[1] - event}, next = event + Warps * split_events;
    const auto request_next = [&] {
      if (next < unit.num_events) part.request_keys(d, k, next, unit.num_events);
    };
    part.template add<HasWindow>(d.factor, unit.num_events - event, d.is_causal != 0, first_of_step,
                                 event < last_first_seen, bias, event, request_next);
    event = next;
    if (event < unit.num_events) part.request_values(d, v, event, unit.num_events);
  }
  if constexpr (is_silu) {
    if (adds_own) {
      part.add_own(d, d.own_k + unit.first_item * d.own_k_stride + head * Dim,
                   d.own_v + unit.first_item * d.own_v_stride + head * Dim, unit.num_items, bias);
    }
  }
  auto& parts = *dynamic_shared<SplitParts<Warps, Dim, Weights>>();
  parts.put(part);
  parts.store(d, unit, head * Dim, sync_block_any(part.spoilt != 0) ? v : nullptr);
}

/// The grid: units, heads, attentions.
template <int Target, int Dim, AttentionWeights Weights, bool HasWindow>
WARPRANK_KERNEL((split_threads<Target, Dim>), (split_min_blocks<Target, Dim>))
split_attention_kernel(const SplitDescriptorOf<Weights>* descriptors,
                       const WARPRANK_GRID_CONSTANT SplitLaunch<Weights> launch) {
  attend_split<Target, Dim, split_policy<Target, Dim>.warps, Weights, HasWindow>(descriptors + device::block_index().z,
                                                                                 launch);
}

/// With a bias heads of 64 columns would spill in the registers of as many blocks.
template <int Target, int Dim>
inline constexpr int biased_split_min_blocks =
    Dim == 64 && split_min_blocks<Target, Dim> > 1 ? split_min_blocks<Target, Dim> / 2 : split_min_blocks<Target, Dim>;

/// The same of attentions that may have a bias, with the weights of silu.
template <int Target, int Dim>
WARPRANK_KERNEL((split_threads<Target, Dim>), (biased_split_min_blocks<Target, Dim>))
biased_split_attention_kernel(const BiasedSplitDescriptor* descriptors,
                              const WARPRANK_GRID_CONSTANT SplitLaunch<AttentionWeights::silu> launch) {
  attend_split<Target, Dim, split_policy<Target, Dim>.warps, AttentionWeights::silu, true, LaneBias>(
      descriptors + device::block_index().z, launch);
}

}}}  // namespace warprank::v0::detail::attention
