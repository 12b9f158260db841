// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checked launches. Launchers that call this are WARPRANK_HIDDEN, as their kernels are: a weak symbol that two shared
/// libraries share would launch the kernel of the wrong one.

#include <cstdint>

#include "warprank/device/backend.hpp"
#include "warprank/device/launch_recorder.hpp"

namespace warprank::device {

using Dim3 = backend::Dim3;
/// cudaStream_t on CUDA; 0 is the default stream.
using Stream = backend::Stream;

/// How a kernel is launched.
struct LaunchConfig {
  Dim3 grid;
  Dim3 block;                ///< at most 1024 threads
  int64_t shared_bytes = 0;  ///< dynamic; up to 32 KB: with the kernel's static at most 48 KB, above that what the
                             ///< target has
  Stream stream = {};
  Here here;

  LaunchConfig(Dim3 grid, Dim3 block, int64_t shared_bytes = 0, Stream stream = {}, Here here = Here::current())
      : grid(grid), block(block), shared_bytes(shared_bytes), stream(stream), here(here) {}
};

/// Queues `kernel(args...)` on the stream and returns; an empty grid launches nothing. Arguments are copied. Throws
/// when the launch is refused. Allocates nothing on CUDA, and may be captured into a graph. While the thread has a
/// LaunchRecorder, that takes note of it instead.
template <class... Params, class... Args>
WARPRANK_HIDDEN inline void launch(const LaunchConfig& config, void (*kernel)(Params...), Args... args) {
  if (config.grid.x == 0 || config.grid.y == 0 || config.grid.z == 0) return;
  if (LaunchRecorder* const recorder = LaunchRecorder::current())
    return recorder->add<Params...>(config.grid, config.block, config.shared_bytes, kernel, args...);
  backend::launch_kernel<Params...>(config.grid, config.block, config.shared_bytes, config.stream, config.here, kernel,
                                    static_cast<Params>(args)...);
}

}  // namespace warprank::device
