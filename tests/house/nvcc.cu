// SPDX-License-Identifier: Apache-2.0

// A unit that takes all names of the library and of std beside CUDA's own: none is taken for another.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <functional>
#include <warprank/core/cuda_floats.hpp>
#include <warprank/core/stream_ordered_allocator.hpp>
#include <warprank/cuda.hpp>
#include <warprank/model.hpp>

#include "all_primitives.hpp"

using namespace std;       // NOLINT
using namespace warprank;  // NOLINT

half cuda_half(float16 value) { return to_cuda(value); }
float16 our_half(half value) { return from_cuda(value); }
__nv_bfloat16 cuda_bfloat16(bfloat16 value) { return to_cuda(value); }
bfloat16 our_bfloat16(__nv_bfloat16 value) { return from_cuda(value); }

Model bound(const Plan& plan, const Weights& weights, Tables& tables) {
  const auto adds = bind(plus<int>(), 1, placeholders::_1);  // std's
  static_cast<void>(adds(1));
  return Model::bind(plan, weights, tables);
}

void use_a_pool() { set_cuda_allocator(0, stream_ordered_allocator()); }
