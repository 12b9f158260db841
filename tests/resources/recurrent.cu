// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/recurrent.cuh"

template class warprank::Recurrent<float>;
template class warprank::Recurrent<warprank::float16>;
