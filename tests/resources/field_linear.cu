// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/field_linear.cuh"

template class warprank::FieldLinear<float>;
template class warprank::FieldLinear<warprank::float16>;
