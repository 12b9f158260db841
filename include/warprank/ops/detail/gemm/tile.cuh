// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The product of a warp: rows of FP16 from shared memory times packed weights from global memory, in FP32.
///
/// Weights go from the second-level cache to registers and no further: a warp has outputs of its own, so that nothing
/// of them would be shared. Those of `Steps` steps ahead are in flight while a step is computed.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/ops/detail/gemm/weights.hpp"

namespace warprank::detail {

/// sums += a b for one step of 16 inputs, of which the second 8 may be missing. a: what load_matrices gives of a
/// [16, 16] tile of rows. One instruction from sm_80 on, two before.
template <int Target>
WARPRANK_DEVICE void multiply_step(float (&sums)[4], const uint32_t (&a)[4], uint32_t b_low, uint32_t b_high,
                                   bool has_second_half) {
  if constexpr (Target >= 80) {
    const uint32_t b[2] = {b_low, b_high};
    device::mma_m16n8k16(sums, a, b, sums);
  } else {
    const uint32_t a_first[2] = {a[0], a[1]}, a_second[2] = {a[2], a[3]}, b_first[1] = {b_low}, b_second[1] = {b_high};
    device::mma_m16n8k8(sums, a_first, b_first, sums);
    if (has_second_half) device::mma_m16n8k8(sums, a_second, b_second, sums);
  }
}

/// The fragment of rows [0, 16) and inputs [0, 16) of a row-major tile in shared memory. Rows are aligned to 16 bytes;
/// `stride` is an odd number of 16 bytes, so that no two of 8 rows meet in a bank.
WARPRANK_DEVICE void load_rows(uint32_t (&a)[4], const half* tile, int stride) {
  const int lane = device::lane_index();
  device::load_matrices(a, tile + (lane % 16) * stride + lane / 16 * 8);
}

/// The weights of some outputs, as one warp reads them.
struct WeightStream {
  const uint32_t* first;  ///< of the lane, its first pair, step 0
  int num_steps;          ///< of the layer: from one pair to the next
  int inputs;             ///< of the layer
};

/// The part of packed weights that begins with a pair of outputs.
WARPRANK_DEVICE WeightStream stream_of(const void* weights, int inputs, int first_pair) {
  const int num_steps = (inputs + 15) / 16;
  const int64_t first = (static_cast<int64_t>(first_pair) * num_steps * device::warp_size + device::lane_index()) * 4;
  return {static_cast<const uint32_t*>(weights) + first, num_steps, inputs};
}

/// Sums of MTiles x 16 rows and NPairs x 16 outputs, and the weights in flight.
template <int Target, int MTiles, int NPairs, int Steps>
struct WarpTile {
  using Fragment = device::Vector<uint32_t, 4>;

  float sums[MTiles][2 * NPairs][4];
  Fragment weights[Steps][NPairs];

  WARPRANK_DEVICE void clear() {
    WARPRANK_UNROLL
    for (int i = 0; i < MTiles; ++i) {
      WARPRANK_UNROLL
      for (int j = 0; j < 2 * NPairs; ++j) {
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) sums[i][j][c] = 0;
      }
    }
  }

  /// Requests the weights of `step` into slot `Slot`; nothing from `end` on. Only pairs that have one of `num_tiles`.
  template <int Slot>
  WARPRANK_DEVICE void request(const WeightStream& stream, int step, int end, int num_tiles) {
    if (step >= end) return;
    WARPRANK_UNROLL
    for (int j = 0; j < NPairs; ++j) {
      if (2 * j >= num_tiles) continue;
      const int64_t fragment = static_cast<int64_t>(j) * stream.num_steps + step;
      weights[Slot][j] = device::load_vector_read_only<4>(stream.first + fragment * device::warp_size * 4);
    }
  }

  /// Requests the first steps from `begin` on.
  WARPRANK_DEVICE void start(const WeightStream& stream, int begin, int end, int num_tiles) {
    start_from<0>(stream, begin, end, num_tiles);
  }

  /// Adds the products of the steps [begin, begin + Steps) below `end`, which were requested, and requests the next.
  /// `rows` is the tile's first row at the first of these inputs. Only the first `num_strips` strips of 16 rows and the
  /// first `num_tiles` tiles of 8 outputs exist.
  WARPRANK_DEVICE void multiply(const half* rows, int stride, const WeightStream& stream, int begin, int end,
                                int num_strips, int num_tiles) {
    multiply_from<0>(rows, stride, stream, begin, end, num_strips, num_tiles);
  }

 private:
  template <int Slot>
  WARPRANK_DEVICE void start_from(const WeightStream& stream, int begin, int end, int num_tiles) {
    request<Slot>(stream, begin + Slot, end, num_tiles);
    if constexpr (Slot + 1 < Steps) start_from<Slot + 1>(stream, begin, end, num_tiles);
  }

  template <int Slot>
  WARPRANK_DEVICE void multiply_from(const half* rows, int stride, const WeightStream& stream, int begin, int end,
                                     int num_strips, int num_tiles) {
    const int step = begin + Slot;
    if (step >= end) return;
    const bool has_second_half = step * 16 + 8 < stream.inputs;
    WARPRANK_UNROLL
    for (int i = 0; i < MTiles; ++i) {
      if (i >= num_strips) continue;
      uint32_t a[4];
      load_rows(a, rows + i * 16 * stride + Slot * 16, stride);
      WARPRANK_UNROLL
      for (int j = 0; j < 2 * NPairs; ++j) {
        if (j >= num_tiles) continue;
        const Fragment& b = weights[Slot][j / 2];
        multiply_step<Target>(sums[i][j], a, b[j % 2 * 2], b[j % 2 * 2 + 1], has_second_half);
      }
    }
    request<Slot>(stream, step + Steps, end, num_tiles);
    if constexpr (Slot + 1 < Steps) {
      multiply_from<Slot + 1>(rows, stride, stream, begin, end, num_strips, num_tiles);
    }
  }
};

}  // namespace warprank::detail
