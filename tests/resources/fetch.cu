// SPDX-License-Identifier: Apache-2.0
#include "warprank/engine/cuda/fetch.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::cuda_backend::Fetch& fetch) { fetch.queue({}, 1); }
