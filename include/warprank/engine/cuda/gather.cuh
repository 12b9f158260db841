// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How a batch some of whose bytes are in the device's memory is brought together: a kernel ahead of the graph copies
/// pieces from the batch in pinned memory, and from pages of users' states.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/target.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// One copy of words of 8 bytes.
struct alignas(16) GatherPiece {
  const uint64_t* from;
  uint64_t* to;
  uint64_t* also_to;  ///< null: nowhere else
  int64_t words;      ///< at most most_words

  static constexpr int64_t most_words = 512;  ///< 4 KB
};

/// So few that each has all its words of the longest piece in flight at once.
inline constexpr int gather_threads = 128;

/// Each block takes pieces, one after the other.
template <int Threads>
WARPRANK_KERNEL(Threads, 1)
gather_kernel(const GatherPiece* pieces, int64_t count) {
  using namespace device;  // NOLINT: for kernels
  constexpr int at_once = GatherPiece::most_words / Threads;
  for (int64_t p = block_index().x; p < count; p += grid_dim().x) {
    const uint64_t* const from = load(&pieces[p].from);
    uint64_t *const to = load(&pieces[p].to), *const also_to = load(&pieces[p].also_to);
    const int64_t words = load(&pieces[p].words);
    uint64_t values[at_once];
    WARPRANK_UNROLL
    for (int j = 0; j < at_once; ++j)
      if (const int i = thread_rank() + j * Threads; i < words) values[j] = load_ahead(&from[i]);
    WARPRANK_UNROLL
    for (int j = 0; j < at_once; ++j) {
      const int i = thread_rank() + j * Threads;
      if (i >= words) continue;
      store(&to[i], values[j]);
      if (also_to != nullptr) store(&also_to[i], values[j]);
    }
  }
}

/// Arguments of the kernel above.
struct Gather {
  const GatherPiece* pieces = nullptr;  ///< in pinned memory
  int64_t count = 0;

  WARPRANK_HIDDEN void queue(device::Stream stream) const;
};

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ENGINE)
WARPRANK_KERNELS_INLINE void Gather::queue(device::Stream stream) const {
  constexpr int64_t most_per_multiprocessor = 1024 / gather_threads;
  const int64_t most_blocks = most_per_multiprocessor * device::num_multiprocessors();
  const auto blocks = static_cast<unsigned>(std::clamp(count, int64_t{1}, most_blocks));
  device::launch({blocks, gather_threads, 0, stream}, gather_kernel<gather_threads>, pieces, count);
}
#endif

}}}  // namespace warprank::v0::cuda_backend
