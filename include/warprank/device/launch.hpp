// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checked launches. Launchers that call this are WARPRANK_HIDDEN, as their kernels are: a weak symbol that two shared
/// libraries share would launch the kernel of the wrong one.

#include <cstdint>

#include "warprank/device/backend.hpp"
#include "warprank/device/launch_recorder.hpp"

namespace warprank { inline namespace v0 { namespace device {

using Dim3 = backend::Dim3;
/// cudaStream_t on CUDA; 0 is the default stream.
using Stream = backend::Stream;

/// Whether launches with LaunchConfig::overlaps do overlap on the current device. Asks the CUDA runtime.
WARPRANK_HIDDEN inline bool launches_overlap() { return backend::launches_overlap(); }

/// While an object of this class exists, launches of its thread do not overlap, whatever LaunchConfig::overlaps says.
class WARPRANK_HIDDEN LaunchesInTurn {
 public:
  LaunchesInTurn() : before_(are_wanted()) { are_wanted() = true; }
  ~LaunchesInTurn() { are_wanted() = before_; }
  LaunchesInTurn(const LaunchesInTurn&) = delete;
  LaunchesInTurn& operator=(const LaunchesInTurn&) = delete;

  static bool& are_wanted() {
    static thread_local bool wanted = false;
    return wanted;
  }

 private:
  bool before_;
};

#if !defined(WARPRANK_HOST_OF_CUDA)  // where nothing is launched

/// How a kernel is launched.
struct LaunchConfig {
  Dim3 grid;
  Dim3 block;                ///< at most 1024 threads
  int64_t shared_bytes = 0;  ///< dynamic; up to 32 KB: at most 48 KB together with the kernel's static memory; above
                             ///< 32 KB: at most the target's
  Stream stream = {};
  /// Every thread of the kernel calls wait_for_previous_launch() (sync.hpp). So the launch may begin before the
  /// previous launch in the stream has ended, if the card and the code compiled for it can do that (sm_90 and later).
  bool overlaps = false;
  Here here;

  LaunchConfig(Dim3 grid, Dim3 block, int64_t shared_bytes = 0, Stream stream = {}, Here here = Here::current())
      : grid(grid), block(block), shared_bytes(shared_bytes), stream(stream), here(here) {}
};

/// Queues `kernel(args...)` on the stream and returns; an empty grid launches nothing. Arguments are copied. Throws if
/// the launch is refused. Allocates nothing on CUDA, and may be captured into a graph. While the thread has a
/// LaunchRecorder, the launch is recorded there instead.
template <class... Params, class... Args>
WARPRANK_HIDDEN inline void launch(const LaunchConfig& config, void (*kernel)(Params...), Args... args) {
  if (config.grid.x == 0 || config.grid.y == 0 || config.grid.z == 0) return;
  if (LaunchRecorder* const recorder = LaunchRecorder::current())
    return recorder->add<Params...>(config.grid, config.block, config.shared_bytes, kernel, args...);
  backend::launch_kernel<Params...>(config.grid, config.block, config.shared_bytes, config.stream,
                                    config.overlaps && !LaunchesInTurn::are_wanted(), config.here, kernel,
                                    static_cast<Params>(args)...);
}

/// As launch, with LaunchConfig::overlaps.
template <class... Params, class... Args>
WARPRANK_HIDDEN inline void launch_overlapping(LaunchConfig config, void (*kernel)(Params...), Args... args) {
  config.overlaps = true;
  launch(config, kernel, args...);
}

#endif

}}}  // namespace warprank::v0::device
