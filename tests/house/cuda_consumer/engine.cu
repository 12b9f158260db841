// SPDX-License-Identifier: Apache-2.0

#include <warprank/cuda_engine.cuh>
