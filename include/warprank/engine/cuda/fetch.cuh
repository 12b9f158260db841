// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How a batch of few bytes reaches the device: the first kernel of the graph loads it from pinned memory. A copy ahead
/// of the graph takes 6 us more, but runs beside the kernels of other contexts, with which a kernel takes turns: above
/// 250 KB several contexts do up to a tenth less (H200; docs/SERVING.md).

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/device/sync.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline constexpr int fetch_threads = 256;

/// to = blobs, then the index, in words of 8 bytes.
template <int Threads>
WARPRANK_KERNEL(Threads, 1)
fetch_kernel(uint64_t* to, const uint64_t* blobs, int64_t blob_words, const uint64_t* index, int64_t index_words) {
  using namespace device;  // NOLINT: for kernels
  wait_for_previous_launch();
  const int64_t count = blob_words + index_words;
  for (int64_t i = global_thread_rank(); i < count; i += num_threads())
    store(&to[i], load(i < blob_words ? &blobs[i] : &index[i - blob_words]));
}

/// Arguments of the kernel above.
struct Fetch {
  uint64_t* to = nullptr;
  const uint64_t* blobs = nullptr;
  int64_t blob_words = 0;
  const uint64_t* index = nullptr;
  int64_t index_words = 0;

  /// `to`: of the index, whose blobs come before it. Bytes are multiples of 8, and so are addresses.
  static Fetch of(unsigned char* to, const std::byte* blobs, int64_t blob_bytes, const std::byte* index,
                  int64_t index_bytes) {
    return {reinterpret_cast<uint64_t*>(to - blob_bytes), reinterpret_cast<const uint64_t*>(blobs), blob_bytes / 8,
            reinterpret_cast<const uint64_t*>(index), index_bytes / 8};
  }
  /// For up to so many bytes: a graph's grid stays as it was captured.
  static unsigned blocks(int64_t most_bytes) {
    constexpr int64_t most = 64, bytes_per_block = 8 * fetch_threads;
    return static_cast<unsigned>(std::clamp((most_bytes + bytes_per_block - 1) / bytes_per_block, int64_t{1}, most));
  }
  WARPRANK_HIDDEN void queue(device::Stream stream, unsigned num_blocks) const;
  /// For the next launch of a graph that has it.
  WARPRANK_HIDDEN void set(const device::Graph& graph) const;
};

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ENGINE)
WARPRANK_KERNELS_INLINE void Fetch::queue(device::Stream stream, unsigned num_blocks) const {
  device::launch_overlapping({num_blocks, fetch_threads, 0, stream}, fetch_kernel<fetch_threads>, to, blobs, blob_words,
                             index, index_words);
}
WARPRANK_KERNELS_INLINE void Fetch::set(const device::Graph& graph) const {
  graph.set_arguments(fetch_kernel<fetch_threads>, to, blobs, blob_words, index, index_words);
}
#endif

}}}  // namespace warprank::v0::cuda_backend
