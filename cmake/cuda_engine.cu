// SPDX-License-Identifier: Apache-2.0

/// The CUDA engine, compiled once: the target warprank::cuda_engine.
#include "warprank/cuda_engine.cuh"
