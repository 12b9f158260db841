// SPDX-License-Identifier: Apache-2.0
#include "warprank/engine/cuda/publish.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::cuda_backend::Publish& publish) { publish.queue({}, 1); }
