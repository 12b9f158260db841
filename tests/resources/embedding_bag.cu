// SPDX-License-Identifier: Apache-2.0

/// Every kernel of embedding_bag, for scripts/kernel_report.sh.

#include "warprank/ops/embedding_bag.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::EmbeddingBag& bags, void* memory) { bags.launch({memory, memory}); }
