// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Kernels that measure what a card can do, for others to be held against: dense products of tensor cores, by the
/// instruction that the library's kernels use; and reads that replace what the cache holds.

#include <cstdint>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/host_device.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/target.hpp"

namespace warprank::bench {

/// Reads all of it: afterwards the cache holds this, and nothing that is yet to be written.
WARPRANK_KERNEL(512, 1)
read_kernel(const uint32_t* data, int64_t num_vectors, uint32_t* never_written) {
  uint32_t bits = 0;
  for (int64_t i = device::global_thread_rank(); i < num_vectors; i += device::num_threads()) {
    const auto four = device::load_vector<4>(data + 4 * i);
    for (int k = 0; k < 4; ++k) bits |= four[k];
  }
  if (bits != 0) device::store(never_written, bits);  // the data is zeros, which only the host knows
}

inline constexpr int rate_threads = 256, rate_blocks_per_sm = 2, rate_accumulators = 8;

/// Small whole numbers: their products are exact, and no operand is zeros alone.
WARPRANK_HOST_DEVICE constexpr int rate_operand(int row, int column) { return (row * 31 + column * 7) % 15 - 7; }

/// `rounds` products of each of a warp's accumulators: sums[thread] = what the thread holds of all of them.
template <int Target>
WARPRANK_KERNEL(rate_threads, rate_blocks_per_sm)
tensor_rate_kernel(int rounds, int32_t* sums) {
  constexpr int registers_of_b = Target >= 80 ? 2 : 1;
  const int g = device::lane_index() / 4, t = device::lane_index() % 4;
  const auto pair = [](int first, int second) {
    return device::pack_halves(device::narrow<float16>(static_cast<float>(first)),
                               device::narrow<float16>(static_cast<float>(second)));
  };
  uint32_t a[2 * registers_of_b], b[rate_accumulators][registers_of_b];
  float d[rate_accumulators][4] = {};
  WARPRANK_UNROLL
  for (int i = 0; i < registers_of_b; ++i) {
    const int k = 8 * i + 2 * t;
    for (int j = 0; j < 2; ++j) a[2 * i + j] = pair(rate_operand(g + 8 * j, k), rate_operand(g + 8 * j, k + 1));
    WARPRANK_UNROLL
    for (int c = 0; c < rate_accumulators; ++c)
      b[c][i] = pair(rate_operand(k, g + 8 * c), rate_operand(k + 1, g + 8 * c));
  }
  for (int round = 0; round < rounds; ++round) {
    WARPRANK_UNROLL
    for (int c = 0; c < rate_accumulators; ++c) {
      if constexpr (Target >= 80) {
        device::mma_m16n8k16(d[c], a, b[c], d[c]);
      } else {
        device::mma_m16n8k8(d[c], a, b[c], d[c]);
      }
    }
  }
  int32_t sum = 0;
  for (const auto& fragment : d)
    for (const float value : fragment) sum += static_cast<int32_t>(value);
  device::store(&sums[device::global_thread_rank()], sum);
}

/// A launch of it on the current device, and the floating-point operations that it does.
struct TensorRate {
  int target = device::target();
  int num_blocks = device::num_multiprocessors() * rate_blocks_per_sm;
  int rounds = 1024;

  int depth() const { return target >= 80 ? 16 : 8; }
  int64_t num_threads() const { return int64_t{num_blocks} * rate_threads; }
  double flops() const {
    return 2.0 * 16 * 8 * depth() * rate_accumulators * rounds * static_cast<double>(num_threads() / 32);
  }
  WARPRANK_HIDDEN void launch(int32_t* sums, device::Stream stream) const {
    device::dispatch_target<75, 80>(target, [&](auto chosen) {
      device::launch({static_cast<unsigned>(num_blocks), rate_threads, 0, stream}, tensor_rate_kernel<chosen()>, rounds,
                     sums);
    });
  }
  /// What the thread of a lane gives.
  int32_t expected(int lane) const {
    int32_t sum = 0;
    for (int c = 0; c < rate_accumulators; ++c)
      for (const int row : {lane / 4, lane / 4 + 8})
        for (const int column : {lane % 4 * 2, lane % 4 * 2 + 1})
          for (int k = 0; k < depth(); ++k) sum += rate_operand(row, k) * rate_operand(k, column + 8 * c);
    return sum * rounds;
  }
};

}  // namespace warprank::bench
