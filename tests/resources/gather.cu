// SPDX-License-Identifier: Apache-2.0
#include "warprank/engine/cuda/gather.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::cuda_backend::Gather& gather) { gather.queue({}); }
