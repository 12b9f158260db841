// SPDX-License-Identifier: Apache-2.0
#pragma once

/// DIN attention pooling (Zhou et al. 2018, Deep Interest Network) on CUDA, any number of histories in one launch: for
/// item n and the events t of the same parent (a user)
///
///     s_t = MLP([q_n, k_t, q_n - k_t, q_n * k_t]),   w = normalization(s),   y_n = sum_t w_t k_t
///
/// | Array | Shape  | Type       |                                                            |
/// |-------|--------|------------|------------------------------------------------------------|
/// | q     | [N, D] | FP16       | rows grouped by item_offsets [parents + 1]                 |
/// | k     | [T, D] | FP16       | rows grouped by history_offsets [parents + 1]              |
/// | added | [T, D] | FP16       | optional: then the sum of both, rounded to FP16, is k      |
/// | y     | [N, D] | FP16, FP32 | may be columns of a wider row; only rows below N are written |
///
/// D is 1 to 256; the MLP has 1 to 3 hidden layers of 1 to 512 outputs with any activation, and is packed by DinWeights
/// (detail/din_attention/weights.hpp), once. Histories have any length; an empty one gives zeros. N, T and the number
/// of parents are read from device memory, up to the capacities; all may be 0.
///
/// The concatenation is never made: the first layer is folded per item, W(q) = (Wk - Wd) + Wp diag(q), and its events
/// go through all layers on chip. A unit of work is some items of one user. Their history is read once: it stays in
/// shared memory, or, if it is too long, passes through in chunks, with a softmax that is corrected as they come.
///
/// There are two kernels; only the network decides. The chained kernel takes at most 128 columns and two hidden layers,
/// both with relu or both with Dice, the second of at most 48 outputs, with weights that fit on chip (a first layer of
/// 80 outputs for 128 columns, 144 for 64, 224 for 32). Its W(q) and hidden outputs are only in registers; its
/// prototype was 4 to 24 times as fast on an H100. The staged kernel takes all other networks, and goes through shared
/// memory.
///
/// Rounded to FP16 are W(q), once; Wp, Wq + Wd and the weights of later layers at packing, for the chained kernel also
/// Wk - Wd; values between layers; and y in FP16. The chained kernel pools with weights of 22 bits, relative to the
/// largest of 16 events. All sums, the last layer and the normalisation are FP32. With u = 2^-24 and u16 = 2^-11, a
/// layer of n inputs adds an error of at most (2 u16 + 2 (n + 6) u) sum |w| |x| to its activation's input. The first
/// layer has |q| + |k| in the place of |q - k|, and u16 |Wk - Wd| |k| more if Wk - Wd is FP16. Each number that is a
/// subnormal FP16 adds 2^-25. Finite values stay finite: FP16 saturates at 65504 with its sign, also W(q). Infinite
/// scores count as the largest finite ones in a softmax, in the chained kernel always. NaN and infinity in q get only
/// into their own row, those in k only into the items of their user. For one network, longest_history and target, a row
/// of y has the same bits whatever the other items and users are.
///
/// Matrices need no alignment beyond their elements'; k and added whose rows are aligned to 16 bytes are read by whole
/// vectors, and faster. y overlaps nothing that the launch reads.
///
/// DinLaunch is used as contract.hpp says, and needs descriptors: one kernel for all histories of one kind.

#include <cstdint>
#include <utility>

#include "warprank/core/device_count.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"
#include "warprank/ops/detail/din_attention/launch.cuh"
#include "warprank/ops/detail/din_attention/weights.hpp"

namespace warprank { inline namespace v0 {

/// A history and the items that attend to it. Everything but the network is in device memory; counts and offsets are
/// read when the kernel runs. It reads the offsets of all parents.capacity parents, but does not use those behind the
/// count. The chained kernel takes fewer than 2^30 items, events and parents.
struct DinHistory {
  Matrix<const float16> q;                   ///< [item capacity, D]
  Matrix<const float16> k;                   ///< [event capacity, D]
  FloatMatrix<void> y;                       ///< [item capacity, D]
  const int64_t* item_offsets = nullptr;     ///< [parents + 1], from 0, never decreasing
  const int64_t* history_offsets = nullptr;  ///< [parents + 1], from 0, never decreasing
  DeviceCount parents;
  const DinWeights* network = nullptr;   ///< on the host; read only by the constructor of DinLaunch
  const void* device_weights = nullptr;  ///< network->bytes() in device memory, aligned to 16
  int64_t longest_history = 0;           ///< expected; 0: k.rows. Longer ones have right results, but are slower
  Matrix<const float16> added;           ///< [event capacity, D], added to k; no data: none
};

/// One kernel of a launch.
struct DinKernel {
  bool is_chained;    ///< else staged
  int64_t histories;  ///< histories that it takes
  int64_t blocks;     ///< blocks for each of them
  int64_t shared_bytes;
};

/// Histories that run together.
class DinLaunch : public Primitive {
 public:
  /// For the kernels of `target`. Throws invalid_argument, all problems together.
  explicit DinLaunch(Span<const DinHistory> histories, int target = device::target())
      : DinLaunch(histories, target, detail::launch_policies_of(target)) {}
  /// With these policies, in place of the measured ones (launch_policies.hpp).
  DinLaunch(Span<const DinHistory> histories, int target, const LaunchPolicies& policies)
      : Primitive("DIN attentions"), plan_(detail::din::plan_histories(histories, target, policies)) {
    set_launches(static_cast<int64_t>(plan_.launches.size()));
    set_descriptors(plan_.descriptors);
  }

  /// The number of a history's events on chip together.
  int64_t chunk_events(int64_t history) const { return plan_.chunk_events[static_cast<size_t>(history)]; }
  /// The i-th of num_launches().
  DinKernel kernel(int64_t i) const {
    const auto& launch = plan_.launches[static_cast<size_t>(i)];
    return {launch.is_chained, launch.histories, launch.blocks, launch.shared_bytes};
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::din::launch(plan_, memory.descriptors, stream);
  }

 private:
  detail::din::Plan plan_;
};

}}  // namespace warprank::v0
