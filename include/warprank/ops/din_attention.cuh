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
/// | y     | [N, D] | FP16, FP32 | may be columns of a wider row; only rows below N are written |
///
/// D is 1 to 256; the MLP has 1 to 3 hidden layers of 1 to 512 outputs with any activation, and is packed by DinWeights
/// (detail/din_attention/weights.hpp), once. Histories have any length; an empty one gives zeros. N, T and the number
/// of parents are read from device memory, up to the capacities; all may be 0.
///
/// The concatenation is never made: the first layer is folded per item, W(q) = (Wk - Wd) + Wp diag(q), and its events
/// go through all layers on chip. A unit of work is some items of one user. Their history is read once: it stays in
/// shared memory, or passes through in chunks where it is too long, with a softmax that is corrected as they come.
///
/// What is rounded to FP16: W(q), once; Wp, Wq + Wd and the weights of later layers, when they are packed; what goes
/// from layer to layer; y of FP16. All sums, the last layer, the normalisation and the pooling are FP32. With u = 2^-24
/// and u16 = 2^-11, a layer of n inputs adds at most (2 u16 + 2 (n + 6) u) sum |w| |x| to what its activation receives,
/// in the first with |q| + |k| in the place of |q - k|, and 2^-25 for each number that is a subnormal FP16.
/// What is finite stays finite: FP16 saturates at 65504 with its sign, and infinite scores count as the largest finite
/// ones in a softmax. NaN and infinity in q get into their own row alone, those in k into the items of their user.
/// A row of y has the same bits whatever the other items and users are, for one network, longest_history and target.
///
/// Matrices need no alignment beyond their elements'; k whose rows are aligned to 16 bytes is read by whole vectors,
/// and faster. y overlaps nothing that the launch reads.
///
///     DinLaunch launch(histories);                   // on the host, once; throws invalid_argument
///     ... copy launch.descriptors() to device memory ...
///     launch.run(descriptors, stream);               // as often as wanted, also in a captured graph
///
/// `run` queues one kernel; it allocates and synchronises nothing, and needs no workspace. Descriptors may be replaced
/// between runs by those of other weights of the same shapes.

#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/din_attention/launch.cuh"
#include "warprank/ops/detail/din_attention/weights.hpp"
#include "warprank/ops/detail/gemm/float_matrix.hpp"

namespace warprank {

/// A history and the items that attend to it. Everything but the network is in device memory; counts and offsets are
/// read when the kernel runs.
struct DinHistory {
  Matrix<const half> q;                      ///< [item capacity, D]
  Matrix<const half> k;                      ///< [event capacity, D]
  FloatMatrix<void> y;                       ///< [item capacity, D]
  const int64_t* item_offsets = nullptr;     ///< [parents + 1], from 0, never decreasing
  const int64_t* history_offsets = nullptr;  ///< [parents + 1], from 0, never decreasing
  int64_t max_parents = 0;                   ///< capacity
  const int64_t* num_parents = nullptr;      ///< null: always the capacity
  const DinWeights* network = nullptr;       ///< on the host; read by the constructor of DinLaunch alone
  const void* device_weights = nullptr;      ///< network->bytes() in device memory, aligned to 16
  int64_t longest_history = 0;               ///< expected; 0: k.rows. Longer ones are right, and slower
};

/// Histories that run together.
class DinLaunch {
 public:
  /// For the kernels of `target`. Throws invalid_argument, all problems together.
  explicit DinLaunch(Span<const DinHistory> histories, int target = device::target())
      : plan_(detail::din::plan_histories(histories, target)) {}

  Span<const unsigned char> descriptors() const {
    return {reinterpret_cast<const unsigned char*>(plan_.descriptors.data()), descriptor_bytes()};
  }
  int64_t descriptor_bytes() const {
    return static_cast<int64_t>(plan_.descriptors.size() * sizeof(detail::din::Descriptor));
  }
  /// How the work of a history is divided.
  const detail::din::Partition& partition(int64_t history) const {
    return plan_.descriptors[static_cast<size_t>(history)].partition;
  }
  /// For each history.
  int64_t num_blocks() const { return plan_.blocks; }
  int64_t shared_bytes() const { return plan_.shared_bytes; }

  /// `descriptors` aligned to 16.
  WARPRANK_HIDDEN void run(const void* descriptors, device::Stream stream = {}) const {
    detail::din::run_histories(plan_, descriptors, stream);
  }

 private:
  detail::din::Plan plan_;
};

}  // namespace warprank
