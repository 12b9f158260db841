// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/pack_linear.cuh"

using warprank::Matrix;

WARPRANK_HIDDEN void launch_all(Matrix<const float> fp32, Matrix<const warprank::float16> fp16, void* packed) {
  warprank::pack_linear(fp32, nullptr, packed, nullptr);
  warprank::pack_linear(fp16, nullptr, packed, nullptr);
}
