// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a block of the kernel that divides events (split.cuh) computes: an attention in device memory, and its units.

#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/attention/bias.cuh"
#include "warprank/ops/detail/attention/descriptor.cuh"

namespace warprank { inline namespace v0 { namespace detail::attention {

inline constexpr int split_items = 16;   ///< of a block: the rows of an mma
inline constexpr int split_events = 16;  ///< of a step

/// What of an attention may be elsewhere at the next launch.
struct SplitAddresses {
  const float16 *q, *k, *v;  ///< rows of all heads
  void* y;
  const int64_t *num_parents, *item_offsets, *history_offsets;
  int64_t max_parents;
};

/// An attention as it lies in device memory.
struct alignas(16) SplitDescriptor : SplitAddresses {
  uint32_t q_stride, k_stride, v_stride, y_stride;
  int64_t max_items;
  int max_events, heads;
  float factor;                ///< of scores: scale, and log2(e) for a softmax
  int16_t is_half, is_causal;  ///< y; an item sees no event behind it
  int64_t unused;              ///< no member of what comes beside is here
};
static_assert(sizeof(SplitDescriptor) == 112);

/// With the weights of silu: what comes beside.
struct alignas(16) SiluSplitDescriptor : SplitDescriptor {
  const float16 *own_k, *own_v;  ///< a key and a value more of each item; null: none
  uint32_t own_k_stride, own_v_stride;
  float share;  ///< of sums
  Window window;
  int nothing[3];
};
static_assert(sizeof(SiluSplitDescriptor) == 160);

/// With biases.
struct alignas(16) BiasedSplitDescriptor : SiluSplitDescriptor {
  RelativeBias bias;
};
static_assert(sizeof(BiasedSplitDescriptor) == sizeof(SiluSplitDescriptor) + sizeof(RelativeBias));

template <AttentionWeights Weights>
using SplitDescriptorOf =
    std::conditional_t<Weights == AttentionWeights::softmax, SplitDescriptor, SiluSplitDescriptor>;

/// The attentions of a launch as its parameter. Of descriptors in memory, which all lanes take as long to load as rows,
/// only the addresses are loaded.
template <AttentionWeights Weights>
struct SplitLaunch {
  static constexpr int max_attentions = 16;
  SplitDescriptorOf<Weights> attentions[max_attentions];
};

/// The block's attention.
template <AttentionWeights Weights>
WARPRANK_DEVICE SplitDescriptorOf<Weights> load_split(const SplitDescriptorOf<Weights>* descriptor,
                                                      const SplitLaunch<Weights>& launch) {
  const auto number = device::block_index().z;
  SplitDescriptorOf<Weights> to = launch.attentions[number];
  static_cast<SplitAddresses&>(to) = load_whole(static_cast<const SplitAddresses*>(descriptor));
  to.max_parents = launch.attentions[number].max_parents;
  if constexpr (Weights == AttentionWeights::silu) {
    const auto own = device::load_vector_read_only<2>(reinterpret_cast<const uint64_t*>(&descriptor->own_k));
    to.own_k = reinterpret_cast<const float16*>(own[0]), to.own_v = reinterpret_cast<const float16*>(own[1]);
  }
  return to;
}

/// What a block computes: items of one parent, and the events that they see.
struct SplitUnit {
  int64_t first_item = 0, first_event = 0;
  int num_items = 0, num_events = 0;
  int rank = 0;           ///< of the first item among its parent's
  int parent_events = 0;  ///< of which its items may not see all

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
      unit.num_events = unit.parent_events = static_cast<int>(shuffle(full_warp, next_event - event, from));
      unit.rank = static_cast<int>(place);
      return unit;
    }
    before = shuffle(full_warp, end, warp_size - 1);
    if (base + warp_size >= num_parents) break;
  }
  return unit;
}

}}}  // namespace warprank::v0::detail::attention
