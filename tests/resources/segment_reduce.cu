// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/segment_reduce.cuh"

void launch_segment_reduce(const warprank::SegmentReduceLaunch& launch, warprank::device::Stream stream) {
  launch.launch({}, stream);
}
