// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests of a divided plan: whole ones, users' sides, the states that come of these, and items' sides.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/batch/detail/blob_join.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/context.hpp"
#include "warprank/engine/kept_states.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/plan/divide.hpp"

namespace warprank { inline namespace v0 {

/// Makes blobs of one kind from those of the others (docs/BATCH_FORMAT.md); plan/divide.hpp has an example. Immutable,
/// so any threads may use it at once. Blobs that are given to it are aligned to 8 bytes and have been checked: they are
/// those of a batch, or were made here.
class DividedRequests {
 public:
  using Blob = std::vector<std::byte>;

  explicit DividedRequests(DividedPlan divided)
      : plan_(std::make_shared<const DividedPlan>(std::move(divided))),
        user_(plan_->user.layout(), {&plan_->whole.layout()}, std::vector<int>(plan_->is_of_items.size(), 0)),
        items_of_whole_(plan_->items.layout(), {&plan_->kept_states, &plan_->whole.layout()}, axes_of_items()),
        items_of_later_(plan_->items.layout(), {&plan_->kept_states, &plan_->later_requests}, axes_of_items()) {}

  const DividedPlan& plan() const { return *plan_; }

  /// The user's side of a request of DividedPlan::whole: a request of DividedPlan::user.
  Blob user(const BlobView& whole) const {
    Blob blob;
    user_.run({whole}, blob);
    return blob;
  }

  /// Of a request of DividedPlan::user: h = fmix64(h ^ w) over its 64-bit words w, from 0 on. Tells, but for chance,
  /// whether two are the same.
  static uint64_t hash(const BlobView& user) {
    uint64_t hash = 0;
    for (int64_t at = 0; at < user.bytes(); at += 8)
      hash = hash_table::fmix64(hash ^ detail::load_unaligned<uint64_t>(user.data() + at));
    return hash;
  }

  /// Makes the states of request `r` of `users`, a batch of DividedPlan::user whose scores are `scores`. The status
  /// tells if they are not finite. Throws invalid_argument for a batch of another plan, and if the request was not
  /// scored.
  Status states(const Scores& scores, const Batch& users, int64_t r, KeptStates& states) const {
    const std::string what = "states of request " + std::to_string(r);
    if (users.fingerprint() != plan_->user.layout().batch_fingerprint())
      throw invalid_argument(what, "a batch of the divided plan's user side", "one of another plan");
    if (!scores.scored(r)) throw invalid_argument(what, "a request that was scored", "one without scores");
    Batch batch(plan_->kept_states);
    Request request = batch.add_request();
    const BlobView user = users.blob(r);
    set_states(scores, user, r, request);
    if (!request.finish().ok()) return request.status();
    const BlobView blob = batch.blob(0);
    states.blob.assign(blob.data(), blob.data() + blob.bytes());
    states.side = hash(user);
    return {};
  }

  /// Rows of an axis of the users' side.
  int64_t rows(const KeptStates& states, AxisSlot axis) const {
    return BlobView(states.blob.data(), plan_->kept_states).rows(axis);
  }

  /// Makes a request of DividedPlan::items from a user's states and a request about this user, which is of
  /// DividedPlan::later_requests, or a whole one, whose user's side is then not read. The status tells if items are
  /// divided among other rows than the states have. Throws invalid_argument for a request of another layout.
  Status items(const KeptStates& states, const BlobView& request, Blob& blob) const {
    const bool is_whole = request.fingerprint() == plan_->whole.layout().fingerprint();
    if (!is_whole && request.fingerprint() != plan_->later_requests.fingerprint())
      throw invalid_argument("request of a divided plan", "a whole one, or one of its items' side", "another");
    return (is_whole ? items_of_whole_ : items_of_later_)
        .run({{states.blob.data(), plan_->kept_states}, request}, blob);
  }

 private:
  std::vector<int> axes_of_items() const { return {plan_->is_of_items.begin(), plan_->is_of_items.end()}; }

  void set_states(const Scores& scores, const BlobView& user, int64_t r, Request& request) const {
    const BatchLayout &from = plan_->user.layout(), &to = plan_->kept_states;
    std::vector<bool> has_rows(to.axes().size(), false);
    std::vector<int64_t> ids;
    std::vector<float> values;
    for (const UserState& state : plan_->states) {
      const AxisSlot axis{state.axis};
      if (to.has_offsets(axis) && !has_rows[static_cast<size_t>(state.axis)]) {
        const Span<const uint32_t> offsets = user.offsets(axis);
        request.offsets(axis, std::vector<int64_t>(offsets.begin(), offsets.end()));
        has_rows[static_cast<size_t>(state.axis)] = true;
      }
      const auto rows = static_cast<size_t>(user.rows(axis));
      switch (state.source) {
        case UserState::Source::output:
          request.dense(to.dense(state.name), scores[state.name].of(r));
          break;
        case UserState::Source::ids_input:
          if (!user.has(from.ids(state.name))) break;
          ids.resize(rows);
          user.copy_ids(from.ids(state.name), ids.data());
          request.ids(to.ids(state.name), ids);
          break;
        case UserState::Source::dense_input:
          if (!user.has(from.dense(state.name))) break;
          values.resize(rows * static_cast<size_t>(state.width));
          user.copy_dense(from.dense(state.name), 0, static_cast<int64_t>(values.size()), values.data());
          request.dense(to.dense(state.name), values);
          break;
      }
    }
  }

  std::shared_ptr<const DividedPlan> plan_;
  detail::BlobJoin user_, items_of_whole_, items_of_later_;
};

}}  // namespace warprank::v0
