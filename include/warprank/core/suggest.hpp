// SPDX-License-Identifier: Apache-2.0
#pragma once

/// "Did you mean": the intended name for a mistyped one.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace warprank { inline namespace v0 {

/// Levenshtein's distance: the fewest characters to insert, delete or replace to turn `a` into `b`.
inline size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a's first i characters to every prefix of b
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// The candidate nearest to `name`, the first of equals; empty when more than half of `name` would have to change.
/// Looks at the first 1,000 candidates and at those up to twice as long, so that a hostile list costs little.
inline std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t least = name.size() / 2 + 1;
  for (size_t i = 0; i < std::min<size_t>(candidates.size(), 1000); ++i) {
    if (candidates[i].size() > 2 * name.size()) continue;
    const size_t distance = edit_distance(name, candidates[i]);
    if (distance >= least) continue;
    least = distance;
    nearest = candidates[i];
  }
  return nearest;
}

/// The message for a name that is not among the candidates.
inline std::string unknown_name(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? "an unknown name" : "an unknown name; did you mean '" + nearest + "'?";
}

}}  // namespace warprank::v0
