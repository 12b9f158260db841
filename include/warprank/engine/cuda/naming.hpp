// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Errors of ops, told of the nodes of a model.

#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// body(), and `name` in front of every problem that it throws.
template <class Body>
auto naming(const std::string& name, Body&& body) {
  try {
    return body();
  } catch (const invalid_argument& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) problem.what = "'" + name + "': " + problem.what;
    throw invalid_argument(std::move(problems));
  }
}

}}}  // namespace warprank::v0::cuda_backend
