// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernels of ops/mix_tokens.cuh are given.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace detail::mix_tokens {

/// The most threads of a block, and so many blocks of them on a multiprocessor.
struct Block {
  int max_threads, min_blocks;
};

/// The learned vectors of a norm [columns of a token], or null.
struct NormVectors {
  const float *gamma, *beta;
};
/// In device memory, where those of another model may replace them between launches.
struct Vectors {
  NormVectors of_input, of_sums;
};

/// By value. A token has as many parts as there are tokens.
template <class Out>
struct Arguments {
  Matrix<const float16> x;
  Matrix<Out> y;
  int tokens, columns, part;  // columns of a token, and of a part of it
  bool norms_input;
  float input_eps, eps;
  const int64_t* num_rows;
};

}}}  // namespace warprank::v0::detail::mix_tokens
