// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests of an undivided plan as those of the two plans that it is divided into.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/plain_request.hpp"
#include "warprank/engine/give_states.hpp"
#include "warprank/plan/divide.hpp"

namespace warprank::test_support {

/// What one of the two plans has of a request: the values of its inputs that are not states, and the rows of their axes
/// and of those above, but for axes of states.
inline PlainRequest part_of(const PlainRequest& whole, const BatchLayout& layout,
                            const std::vector<UserState>& states = {}) {
  PlainRequest part;
  std::vector<bool> has_input(layout.axes().size());
  const auto is_state = [&](const std::string& name) {
    return std::any_of(states.begin(), states.end(), [&](const UserState& state) { return state.name == name; });
  };
  for (const IdsInfo& info : layout.ids())
    if (const auto found = whole.ids.find(info.name); found != whole.ids.end() && !is_state(info.name)) {
      part.ids.insert(*found);
      has_input[static_cast<size_t>(info.axis)] = true;
    }
  for (const DenseInfo& info : layout.dense())
    if (const auto found = whole.dense.find(info.name); found != whole.dense.end() && !is_state(info.name)) {
      part.dense.insert(*found);
      has_input[static_cast<size_t>(info.axis)] = true;
    }
  for (size_t a = has_input.size(); a-- > 1;)
    if (has_input[a]) has_input[static_cast<size_t>(layout.axes()[a].parent)] = true;
  for (const UserState& state : states) has_input[static_cast<size_t>(state.axis)] = false;
  for (size_t a = 0; a < has_input.size(); ++a)
    if (const auto found = whole.lengths.find(layout.axes()[a].name); has_input[a] && found != whole.lengths.end())
      part.lengths.insert(*found);
  return part;
}

/// Adds the items' sides of requests, with the states of `users`.
inline void add_items(Batch& batch, const DividedPlan& divided, const std::vector<PlainRequest>& requests,
                      const Scores& states, const Batch& users) {
  for (size_t r = 0; r < requests.size(); ++r) {
    Request request = add_open_to(batch, part_of(requests[r], divided.items.layout(), divided.states));
    give_states(divided, states, users, static_cast<int64_t>(r), request);
    request.finish();
  }
}

}  // namespace warprank::test_support
