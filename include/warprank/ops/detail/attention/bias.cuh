// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Relative biases of an attention's scores, by position and by time, as ops/pack_attention_bias.hpp packs them.
/// Buckets of time are told by a float's bits, and one comparison (core/time_buckets.hpp).

#include <cmath>
#include <cstdint>

#include "warprank/core/time_buckets.hpp"
#include "warprank/core/unroll.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/attention/descriptor.cuh"
#include "warprank/ops/pack_attention_bias.hpp"

namespace warprank { inline namespace v0 { namespace detail::attention {

/// As it lies in device memory. Without any bias all are null.
struct alignas(16) RelativeBias {
  const float *cells, *positions;         ///< [tables, last_bucket + 1] of four, [tables, last_position + 1]
  const float *item_times, *event_times;  ///< with cells
  int64_t item_stride, event_stride;
  int last_position, last_bucket;
  float buckets_per_bit;
  int is_by_head;
};
static_assert(sizeof(RelativeBias) == 64);

/// An attention of the kernel for any shape.
struct alignas(16) BiasedDescriptor : Descriptor {
  RelativeBias bias;
};

/// Of scores that have none.
struct NoBias {
  static constexpr bool exists = false;
};

/// The biases of a lane's two rows and of the events of their parent, of one head.
struct LaneBias {
  static constexpr bool exists = true;

  const float *cells, *positions, *event_times;
  int64_t event_stride;
  int last_position, last_bucket, last_event;
  float buckets_per_bit, times[2];
  int places[2];

  /// Of events from `first_event` on, of which the rows see none behind `last`.
  WARPRANK_DEVICE void begin(const RelativeBias& bias, int head, int64_t first_event, int last) {
    const int table = bias.is_by_head != 0 ? head : 0;
    cells = bias.cells == nullptr ? nullptr
                                  : bias.cells + int64_t{table} * (bias.last_bucket + 1) * AttentionBiasShape::cell;
    positions = bias.positions == nullptr ? nullptr : bias.positions + int64_t{table} * (bias.last_position + 1);
    event_stride = bias.event_stride;
    event_times = bias.event_times + first_event * event_stride;
    last_position = bias.last_position, last_bucket = bias.last_bucket, last_event = last;
    buckets_per_bit = bias.buckets_per_bit;
  }
  /// The lane's upper or lower row: an item that is so many places behind the first event.
  WARPRANK_DEVICE void set_row(const RelativeBias& bias, int lower, int64_t item, int place) {
    places[lower] = place;
    times[lower] = cells == nullptr ? 0 : device::load(&bias.item_times[item * bias.item_stride]);
  }

  /// scores = scale * scores + bias, of tiles of 8 events from `first` on.
  template <int Tiles>
  WARPRANK_DEVICE void add_to(float scale, int first, float (&scores)[Tiles][4]) const {
    WARPRANK_UNROLL
    for (int n = 0; n < Tiles; ++n) {
      WARPRANK_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = first + n * 8 + device::lane_index() % 4 * 2 + i;
        const int event = column < last_event ? column : last_event;
        const float time = cells == nullptr ? 0 : device::load(&event_times[event * event_stride]);
        WARPRANK_UNROLL
        for (int lower = 0; lower < 2; ++lower) {
          float& score = scores[n][lower * 2 + i];
          score = std::fma(score, scale, of_position(places[lower] - event) + of_time(times[lower] - time));
        }
      }
    }
  }
  /// Of an item and itself.
  WARPRANK_DEVICE float of_own() const { return of_position(0) + of_time(0); }

 private:
  WARPRANK_DEVICE float of_position(int distance) const {
    if (positions == nullptr) return 0;
    const int known = distance < 0 ? 0 : distance < last_position ? distance : last_position;
    return device::load_read_only(&positions[known]);
  }
  WARPRANK_DEVICE float of_time(float difference) const {
    if (cells == nullptr) return 0;
    const float size = std::fabs(difference), least = size > 1 ? size : 1.0f;  // of NaN 1, too
    const int bits = static_cast<int>(device::bits_of_float(least)) - bits_of_one;
    const int told = static_cast<int>(static_cast<float>(bits) * buckets_per_bit);
    const int bucket = told < last_bucket ? told : last_bucket;
    const auto cell =
        device::load_vector_read_only<AttentionBiasShape::cell>(&cells[bucket * AttentionBiasShape::cell]);
    return least >= cell[0] ? cell[2] : cell[1];
  }
};

/// The score of an item's own key.
WARPRANK_DEVICE float scaled(float score, float scale, const NoBias&) { return score * scale; }
WARPRANK_DEVICE float scaled(float score, float scale, const LaneBias& bias) {
  return std::fma(score, scale, bias.of_own());
}

}}}  // namespace warprank::v0::detail::attention
