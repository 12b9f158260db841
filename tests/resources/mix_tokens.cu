// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/mix_tokens.cuh"

template class warprank::MixTokens<float>;
template class warprank::MixTokens<warprank::float16>;
