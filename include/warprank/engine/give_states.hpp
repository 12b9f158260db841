// SPDX-License-Identifier: Apache-2.0
#pragma once

/// States from a run of a divided plan's user side to requests of its items' side.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"
#include "warprank/engine/context.hpp"
#include "warprank/plan/divide.hpp"

namespace warprank { inline namespace v0 {

/// Sets the states of a request of divided.items: those of request `r` of `users`, a batch of divided.user whose scores
/// are `states`. Throws invalid_argument for a batch of another plan, and if request `r` was not scored.
inline void give_states(const DividedPlan& divided, const Scores& states, const Batch& users, int64_t r,
                        Request& request) {
  if (users.fingerprint() != divided.user.layout().batch_fingerprint())
    throw invalid_argument("give_states: batch of users", "one of the divided plan's user side", "one of another plan");
  if (!states.scored(r))
    throw invalid_argument("give_states: request " + std::to_string(r), "one that was scored", "one without scores");
  const BlobView blob = users.blob(r);
  const BatchLayout &from = divided.user.layout(), &to = divided.items.layout();
  std::vector<bool> has_rows(to.axes().size(), false);
  std::vector<int64_t> ids;
  std::vector<float> values;
  for (const UserState& state : divided.states) {
    const AxisSlot axis{state.axis};
    if (to.has_offsets(axis) && !has_rows[static_cast<size_t>(state.axis)]) {
      const Span<const uint32_t> offsets = blob.offsets(axis);
      request.offsets(axis, std::vector<int64_t>(offsets.begin(), offsets.end()));
      has_rows[static_cast<size_t>(state.axis)] = true;
    }
    const auto rows = static_cast<size_t>(blob.rows(axis));
    const bool is_ids = state.is_input && std::any_of(to.ids().begin(), to.ids().end(),
                                                      [&](const IdsInfo& info) { return info.name == state.name; });
    if (!state.is_input) {
      request.dense(to.dense(state.name), states[state.name].of(r));
    } else if (is_ids && blob.has(from.ids(state.name))) {
      ids.resize(rows);
      blob.copy_ids(from.ids(state.name), ids.data());
      request.ids(to.ids(state.name), ids);
    } else if (!is_ids && blob.has(from.dense(state.name))) {
      values.resize(rows * static_cast<size_t>(state.width));
      blob.copy_dense(from.dense(state.name), 0, static_cast<int64_t>(values.size()), values.data());
      request.dense(to.dense(state.name), values);
    }
  }
}

}}  // namespace warprank::v0
