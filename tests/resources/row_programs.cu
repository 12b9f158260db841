// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/row_programs.cuh"

void launch_row_programs(const warprank::RowProgramLaunch& launch, const void* descriptors,
                         warprank::device::Stream stream) {
  launch.launch({descriptors}, stream);
}
