// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/detail/segments/launch.cuh"

void launch_segments(const warprank::detail::segments::SegmentsLaunch& launch, warprank::device::Stream stream) {
  launch.launch({}, stream);
}
