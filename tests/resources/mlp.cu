// SPDX-License-Identifier: Apache-2.0

/// Every kernel of mlp, for scripts/kernel_report.sh: its own and those of single layers.

#include "warprank/ops/mlp.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::MlpLaunch& stacks, void* memory) { stacks.launch({memory, memory}); }
