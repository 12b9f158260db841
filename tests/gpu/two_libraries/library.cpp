// SPDX-License-Identifier: Apache-2.0

/// A shared library of somebody's that scores on a GPU, in plain C++. It is built twice, under two names.

#include "two_libraries/library.hpp"

#include <warprank/cuda.hpp>

#include <exception>
#include <string>

#include "../../house/tiny_model.hpp"

Outcome LIBRARY_FUNCTION() {
  Outcome outcome;
  outcome.engine = &warprank::cuda_engine();
  outcome.is_own = warprank::cuda().engine == outcome.engine;
  outcome.num_devices = warprank::num_cuda_devices();
  try {
    outcome.is_right = are_right(score_with_tiny_model(warprank::cuda()));
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}
