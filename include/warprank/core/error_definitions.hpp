// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of core/error.hpp.

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

inline std::string join(const std::vector<Problem>& problems) {
  if (problems.size() == 1) return problems[0].to_string();
  std::string text = std::to_string(problems.size()) + " problems:";
  for (const Problem& problem : problems) text += "\n  " + problem.to_string();
  return text;
}

}  // namespace detail

WARPRANK_HOST_INLINE std::string Problem::to_string() const {
  return (where.empty() ? "" : where + ": ") + what + ": expected " + expected + ", got " + got;
}

WARPRANK_HOST_INLINE invalid_argument::invalid_argument(std::vector<Problem> problems)
    : error_of(detail::join(problems)), problems_(std::move(problems)) {}
WARPRANK_HOST_INLINE invalid_argument::invalid_argument(std::string what, std::string expected, std::string got)
    : invalid_argument(std::vector<Problem>{{"", std::move(what), std::move(expected), std::move(got)}}) {}

WARPRANK_HOST_INLINE void Problems::add(Problem problem) { list_.push_back(std::move(problem)); }
WARPRANK_HOST_INLINE void Problems::add(std::string what, std::string expected, std::string got) {
  add({"", std::move(what), std::move(expected), std::move(got)});
}
WARPRANK_HOST_INLINE void Problems::throw_if_any() const {
  if (!list_.empty()) raise(invalid_argument(list_));
}

}}  // namespace warprank::v0
