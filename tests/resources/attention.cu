// SPDX-License-Identifier: Apache-2.0

/// Every kernel of attention, for scripts/kernel_report.sh. A launch asks for the shared memory that its widest head
/// wants, up to all that a block may have on its card (AttentionPartition.FitsForEveryWidthAndTarget): the budgets name
/// the least of these limits.

#include "warprank/ops/attention.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::AttentionLaunch& attentions, void* memory) {
  attentions.launch({memory});
}
