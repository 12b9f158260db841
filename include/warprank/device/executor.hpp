// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The interface between launches and an executor of kernels on the CPU. The executor defines the functions that are
/// only declared here; a program that calls a kernel in plain C++ links one. Ours is in tests/simt.

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

/// The device that the executor is configured as.
int target();
int num_multiprocessors();
/// The shared memory of the largest target; launches refuse more than their own target has.
inline int64_t max_shared_bytes() { return 227 << 10; }

inline bool launches_overlap() { return true; }

/// Queues a grid in which every thread calls `body`, which is `kernel` with its arguments. Throws if CUDA would refuse
/// the launch. With `overlaps` it may begin once all blocks of the previous launch have begun.
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
