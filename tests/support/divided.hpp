// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests of an undivided plan as those of the two plans that it is divided into.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/plain_request.hpp"
#include "warprank/engine/divided_requests.hpp"

namespace warprank::test_support {

/// What a layout has of a request: the values of its inputs, and the rows of their axes and of those above.
inline PlainRequest part_of(const PlainRequest& whole, const BatchLayout& layout) {
  PlainRequest part;
  std::vector<bool> has_input(layout.axes().size());
  for (const IdsInfo& info : layout.ids())
    if (const auto found = whole.ids.find(info.name); found != whole.ids.end()) {
      part.ids.insert(*found);
      has_input[static_cast<size_t>(info.axis)] = true;
    }
  for (const DenseInfo& info : layout.dense())
    if (const auto found = whole.dense.find(info.name); found != whole.dense.end()) {
      part.dense.insert(*found);
      has_input[static_cast<size_t>(info.axis)] = true;
    }
  for (size_t a = has_input.size(); a-- > 1;)
    if (has_input[a]) has_input[static_cast<size_t>(layout.axes()[a].parent)] = true;
  for (size_t a = 0; a < has_input.size(); ++a)
    if (const auto found = whole.lengths.find(layout.axes()[a].name); has_input[a] && found != whole.lengths.end())
      part.lengths.insert(*found);
  return part;
}

/// Adds later requests, with the states of `users`.
inline void add_items(Batch& batch, const DividedRequests& divided, const std::vector<PlainRequest>& requests,
                      const Scores& scores, const Batch& users) {
  for (size_t r = 0; r < requests.size(); ++r) {
    Batch later(divided.plan().later_requests);
    add_to(later, part_of(requests[r], later.layout()));
    KeptStates states;
    if (const Status status = divided.states(scores, users, static_cast<int64_t>(r), states); status.ok())
      divided.add_items(states, later.blob(0), batch);
    else
      DividedRequests::add_bad(status, batch);
  }
}

}  // namespace warprank::test_support
