// SPDX-License-Identifier: Apache-2.0

/// Every kernel of linear, for scripts/kernel_report.sh.

#include "warprank/ops/detail/gemm/finish.cuh"
#include "warprank/ops/linear.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::LinearLaunch& layers,
                                const warprank::detail::gemm::FinishLaunch& finish, void* memory) {
  layers.launch({memory, memory});
  finish.launch({memory});
}
