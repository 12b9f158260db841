// SPDX-License-Identifier: Apache-2.0

/// Every kernel of din_attention, for scripts/kernel_report.sh. A launch asks for the shared memory that its histories
/// want, up to all that a block may have on its card (DinPartition.FitsForEveryShapeAndTarget, DinPlaces): the budgets
/// name the least of these limits; of chained kernels of which two blocks share a multiprocessor, half of it.

#include "warprank/ops/din_attention.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::DinLaunch& histories, void* memory) { histories.launch({memory}); }
