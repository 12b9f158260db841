// SPDX-License-Identifier: Apache-2.0
#pragma once

/// States from a run of a divided plan's user side to requests of its items' side.

#include <cstdint>
#include <string>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"
#include "warprank/engine/context.hpp"
#include "warprank/plan/divide.hpp"

namespace warprank { inline namespace v0 {

/// Sets the states of a request of divided.items: those of request `r` of `users`, a batch of divided.user whose scores
/// are `states`. States that are not finite become the request's status. Throws invalid_argument for a batch of another
/// plan, and if request `r` was not scored.
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
    switch (state.source) {
      case UserState::Source::output:
        request.dense(to.dense(state.name), states[state.name].of(r));
        break;
      case UserState::Source::ids_input:
        if (!blob.has(from.ids(state.name))) break;
        ids.resize(rows);
        blob.copy_ids(from.ids(state.name), ids.data());
        request.ids(to.ids(state.name), ids);
        break;
      case UserState::Source::dense_input:
        if (!blob.has(from.dense(state.name))) break;
        values.resize(rows * static_cast<size_t>(state.width));
        blob.copy_dense(from.dense(state.name), 0, static_cast<int64_t>(values.size()), values.data());
        request.dense(to.dense(state.name), values);
        break;
    }
  }
}

}}  // namespace warprank::v0
