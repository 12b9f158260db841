// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What launches ask of an executor of kernels on the CPU. The functions that are only declared are the executor's;
/// whoever calls a kernel in plain C++ links one. Ours is in tests/simt.

#include <cstdint>
#include <functional>
#include <tuple>

#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 { namespace device::backend {

using Here = SourceLine;

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr Dim3() = default;
  constexpr Dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT: converts as CUDA's dim3
};

struct StreamState;
using Stream = StreamState*;

/// What the executor was told to be.
int target();
int num_multiprocessors();
/// What the largest target has; less is refused by launches.
inline int64_t max_shared_bytes() { return 227 << 10; }

inline bool launches_overlap() { return true; }

/// Queues a grid whose every thread calls `body`, which is `kernel` with its arguments; throws when the launch would be
/// refused. With `overlaps` it may begin once all blocks of the launch before have.
void launch_grid(Dim3 grid, Dim3 block, int64_t shared_bytes, Stream stream, bool overlaps, const void* kernel,
                 std::function<void()> body, Here here);

template <class... Params>
std::function<void()> call_of(void (*kernel)(Params...), Params... args) {
  return [kernel, arguments = std::make_tuple(args...)] { std::apply(kernel, arguments); };
}
template <class... Params>
void launch_kernel(Dim3 grid, Dim3 block, int64_t shared_bytes, Stream stream, bool overlaps, Here here,
                   void (*kernel)(Params...), Params... args) {
  launch_grid(grid, block, shared_bytes, stream, overlaps, reinterpret_cast<const void*>(kernel),
              call_of<Params...>(kernel, args...), here);
}

}}}  // namespace warprank::v0::device::backend
