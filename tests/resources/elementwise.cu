// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/elementwise.cuh"

namespace elementwise_resources {

struct Gated {
  WARPRANK_DEVICE float operator()(float value, float gate) const { return gate > 0 ? value : 0; }
};

}  // namespace elementwise_resources

#define WARPRANK_STEP(Step)                                                                                   \
  template class warprank::Elementwise<elementwise_resources::Gated, warprank::float16, 2, warprank::float16, \
                                       warprank::Step>;
WARPRANK_STEP(EachElement)
WARPRANK_STEP(SoftmaxOfRow)
WARPRANK_STEP(LayerNormOfRow)
WARPRANK_STEP(ReduceRow)
