// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/fm.cuh"

template class warprank::Fm<float, float>;
template class warprank::Fm<float, warprank::float16>;
template class warprank::Fm<warprank::float16, float>;
template class warprank::Fm<warprank::float16, warprank::float16>;
