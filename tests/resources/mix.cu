// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/mix.cuh"

template class warprank::Mix<float, float>;
template class warprank::Mix<warprank::float16, float>;
template class warprank::Mix<warprank::float16, warprank::float16>;
