// SPDX-License-Identifier: Apache-2.0
//
// Every kernel of ops/linear.cuh.

#include "warprank/ops/linear.cuh"

void run(const warprank::LinearLaunch& launch, const void* descriptors, void* workspace) {
  launch.run(descriptors, workspace);
}
