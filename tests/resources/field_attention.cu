// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/field_attention.cuh"

template class warprank::FieldAttention<float>;
template class warprank::FieldAttention<warprank::float16>;
