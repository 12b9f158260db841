// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How scores reach the host: the last kernel of a batch stores them to pinned memory, and behind them the batch's
/// number. A copy behind the kernels takes some 7 us more for up to 20 KB, an event to ask for 1 us more, and an
/// interrupt 20 to 100 us more (H100); for larger outputs a kernel is as fast as a copy, within the bus's rate.

#include <algorithm>
#include <cstdint>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/device/sync.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline constexpr int publish_threads = 256;

/// to[i] = from[i], then *flag = number unless `flag` is null. `ticket` is 0 between launches.
template <int Threads>
WARPRANK_KERNEL(Threads, 1)
publish_kernel(float* to, const float* from, int64_t count, uint32_t* ticket, uint32_t* flag, uint32_t number) {
  using namespace device;  // NOLINT: for kernels
  wait_for_previous_launch();
  constexpr int at_once = 4;
  const int64_t distance = num_threads();
  for (int64_t first = global_thread_rank(); first < count; first += at_once * distance) {
    float values[at_once];
    WARPRANK_UNROLL
    for (int j = 0; j < at_once; ++j)  // ahead: between outputs there are gaps that nobody writes
      if (first + j * distance < count) values[j] = load_ahead(&from[first + j * distance]);
    WARPRANK_UNROLL
    for (int j = 0; j < at_once; ++j)
      if (first + j * distance < count) store(&to[first + j * distance], values[j]);
  }
  if (flag == nullptr) return;
  sync_block();
  if (thread_rank() != 0) return;
  fence<Scope::system>();  // every block waits for its stores on the bus beside the others, not the last for all
  const uint32_t last = grid_dim().x - 1;
  if (take_ticket<Order::acq_rel, Scope::device>(ticket, last) == last)
    store<Order::release, Scope::system>(flag, number);
}

/// Arguments of the kernel above.
struct Publish {
  float* to = nullptr;
  const float* from = nullptr;
  int64_t count = 0;
  uint32_t *ticket = nullptr, *flag = nullptr;
  uint32_t number = 0;

  /// For up to so many floats: a graph's grid stays as it was captured.
  static unsigned blocks(int64_t most_count) {
    constexpr int64_t most = 32, count_per_block = 4 * publish_threads;
    return static_cast<unsigned>(std::clamp((most_count + count_per_block - 1) / count_per_block, int64_t{1}, most));
  }
  WARPRANK_HIDDEN void queue(device::Stream stream, unsigned num_blocks) const;
  /// For the next launch of a graph that has it.
  WARPRANK_HIDDEN void set(const device::Graph& graph) const;
};

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ENGINE)
WARPRANK_KERNELS_INLINE void Publish::queue(device::Stream stream, unsigned num_blocks) const {
  device::launch_overlapping({num_blocks, publish_threads, 0, stream}, publish_kernel<publish_threads>, to, from, count,
                             ticket, flag, number);
}
WARPRANK_KERNELS_INLINE void Publish::set(const device::Graph& graph) const {
  graph.set_arguments(publish_kernel<publish_threads>, to, from, count, ticket, flag, number);
}
#endif

}}}  // namespace warprank::v0::cuda_backend
