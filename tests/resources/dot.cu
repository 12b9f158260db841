// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/dot.cuh"

template class warprank::Dot<float>;
template class warprank::Dot<warprank::float16>;
