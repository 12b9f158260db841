// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Dot-product attention of several heads over ragged rows on CUDA, any number of attentions in one launch: for item i,
/// the events t of the same parent (a user) and every head h
///
///     y[i, h] = sum_t w_t v[t, h],   s_t = scale <q[i, h], k[t, h]>
///     w = softmax(s)                                                (Vaswani et al. 2017)
///     w = silu(s) / divisor, silu(s) = s / (1 + exp(-s))            (HSTU, Zhai et al. 2024)
///
/// | Array | Shape          | Type       |                                                                       |
/// |-------|----------------|------------|-----------------------------------------------------------------------|
/// | q     | [N, heads * D] | FP16       | rows grouped by item_offsets [parents + 1]; head h: columns from h D  |
/// | k, v  | [T, heads * D] | FP16       | rows grouped by history_offsets [parents + 1]                         |
/// | own_k, own_v | [N, heads * D] | FP16 | with the weights of silu: a key and a value more of each item           |
/// | y     | [N, heads * D] | FP16, FP32 | may be columns of a wider row; only rows below N are written          |
///
/// D is 1 to 256. Target attention: the items of a user over its history. Self-attention: a history over itself, with
/// the same item_offsets and history_offsets; if it is causal, an event sees itself and earlier events. Projections are
/// linear layers of their own, and may give q, k and v as columns of one row. With a window, an event of a causal
/// attention sees itself and the `window` events before it, but the last `full_last` events see all before them; items
/// come behind all events, and see the last `window` of them. Histories have any length; an empty one
/// gives zeros, or what the item's own key gives. With the weights of silu a bias may be added to each score, s_t =
/// scale <q, k_t> + position[distance] + time[bucket]: by how many places an event is before the item, where items that
/// are no events are one place behind all of these, and longer distances count as the longest; and by the bucket of the
/// absolute difference of their times (core/time_buckets.hpp). Own keys are 0 places and no time away. N, T and the
/// number of parents are read from device memory, up to the capacities; all may be 0.
///
/// Nothing of size [N, T] leaves the registers: the softmax is corrected as keys and values come. There are two
/// kernels. If all attentions of a launch have heads of one width, 16, 32, 64 or 128 columns, and matrices aligned to
/// 16 bytes, a unit of work is 16 items of a user and one head, and the warps of a block share its events. All other
/// launches use a kernel for any shape, which is several times slower: a unit is up to 64 items and
/// one head, and keys and values come in chunks, one after the other.
///
/// Scores, sums and the softmax are FP32; weights are rounded to FP16 once, relative to the largest so far, and the
/// divisor is the sum of the rounded weights. With u = 2^-24, u16 = 2^-11 and the scores s
///
///     |y - exact| <= sum_t p_t |v_t| (2 u16 + 2 u (2 T + 16 + e_t + sum_t' p_t' e_t')) + 2^-39 sum_t |v_t|
///     e_t = |scale| (D + 2) sum_d |q_d k_t,d| + max(s) - s_t
///
/// and with silu, d_t = |scale| (D + 2) sum_d |q_d k_t,d|,
///
///     |y - exact| <= sum_t |v_t| (|w_t| (2 u16 + u (2 T + 16)) + (1.1 u d_t + 2^-24) / divisor)
///
/// where biases add 2 (|position| + |time|) to d_t, and weights of events above 65504 before they are divided count as
/// 65504. Then y is rounded, if it is FP16. Infinite scores count as the largest finite ones; no score overflows
/// otherwise. NaN in q gets only into its own row and head, NaN in k only into the rows that see it. A value in v that
/// is not finite gets, as NaN or infinity, only into its column of the rows that see it. For one target, a row of y has
/// the same bits whatever the other items and users are. Other attentions in the launch may change the bits if they
/// have another width or need the other kernel.
///
/// Matrices need no alignment beyond their elements', but are read faster when aligned. y may be all of q, and overlaps
/// nothing else that the launch reads.
///
/// AttentionLaunch is used as contract.hpp says, and needs descriptors: one kernel, or one for each 16 attentions.

#include <cstdint>
#include <utility>

#include "warprank/core/device_count.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/attention/launch.cuh"
#include "warprank/ops/pack_attention_bias.hpp"

namespace warprank { inline namespace v0 {

/// Items and the events that they attend to, in device memory; counts and offsets are read when the kernel runs.
struct Attention {
  Matrix<const float16> q;                   ///< [item capacity, heads * D]
  Matrix<const float16> k, v;                ///< [event capacity, heads * D]
  FloatMatrix<void> y;                       ///< [item capacity, heads * D]
  const int64_t* item_offsets = nullptr;     ///< [parents + 1], from 0, never decreasing
  const int64_t* history_offsets = nullptr;  ///< [parents + 1], from 0, never decreasing
  DeviceCount parents;
  int64_t heads = 1;
  float scale = 0;                                       ///< 0: 1 / sqrt(D)
  bool causal = false;                                   ///< only if the items are the events
  AttentionWeights weights = AttentionWeights::softmax;  ///< the same for all attentions of a launch
  float divisor = 1;                                     ///< of the weights of silu
  Matrix<const float16> own_k, own_v;                    ///< [item capacity, heads * D], or null; only with silu
  int64_t window = 0;                                    ///< events before an item that it sees, only with silu; 0: all
  int64_t full_last = 0;  ///< of causal attention, so many last items of a parent see all; of other, all do if not 0
  const float* bias = nullptr;    ///< of the scores, as packed by ops/pack_attention_bias.hpp, or null; only with silu
  AttentionBiasShape bias_shape;  ///< of `bias`
  Matrix<const float> item_times, event_times;  ///< [item capacity, 1], [event capacity, 1], with a bias by time
};

/// Attentions that run together.
class AttentionLaunch : public Primitive {
 public:
  /// For the kernels of `target`. Throws invalid_argument, all problems together.
  explicit AttentionLaunch(Span<const Attention> attentions, int target = device::target())
      : Primitive("attentions"), plan_(detail::attention::plan_attentions(attentions, target)) {
    set_launches(plan_.num_launches());
    set_descriptors(plan_.bytes());
  }

  /// Whether the kernel is the one that divides events among warps.
  bool is_split() const { return !plan_.split.empty(); }
  /// The number of an attention's events on chip together, if they are not divided.
  int64_t chunk_events(int64_t attention) const {
    return plan_.descriptors[static_cast<size_t>(attention)].partition.chunk;
  }
  /// Blocks for each attention.
  int64_t num_blocks() const { return plan_.blocks; }
  int64_t shared_bytes() const { return plan_.shared_bytes; }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::attention::launch(plan_, memory.descriptors, stream);
  }

 private:
  detail::attention::Plan plan_;
};

}}  // namespace warprank::v0
