// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/fm.cuh"

template class warprank::Fm<float, float>;
template class warprank::Fm<float, warprank::half>;
template class warprank::Fm<warprank::half, float>;
template class warprank::Fm<warprank::half, warprank::half>;
