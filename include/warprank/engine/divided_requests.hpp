// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests of a divided plan: whole ones, users' sides, the states that come of these, and items' sides.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// Makes requests of one kind from those of the others, by copies of whole sections of their blobs
/// (docs/BATCH_FORMAT.md). Immutable, so any threads may use it at once. Blobs that are given to it are those of
/// batches.
class DividedRequests {
 public:
  explicit DividedRequests(DividedPlan divided)
      : plan_(std::make_shared<const DividedPlan>(std::move(divided))),
        user_(plan_->user.layout(), {&plan_->whole.layout()}, std::vector<int>(plan_->is_of_items.size(), 0)),
        states_(plan_->kept_states, {&plan_->user.layout()}, std::vector<int>(plan_->is_of_items.size(), 0)),
        items_of_whole_(plan_->items.layout(), {&plan_->kept_states, &plan_->whole.layout()}, axes_of_items()),
        items_of_later_(plan_->items.layout(), {&plan_->kept_states, &plan_->later_requests}, axes_of_items()) {}

  const DividedPlan& plan() const { return *plan_; }

  /// Adds the user's side of a request of DividedPlan::whole to a batch of DividedPlan::user. Throws invalid_argument
  /// for a request of another layout.
  Request add_user(const BlobView& whole, Batch& users) const {
    if (whole.fingerprint() != plan_->whole.layout().fingerprint())
      throw invalid_argument("request of a divided plan", "a whole one, as states of its user are not known",
                             "another");
    return add(user_, {whole}, users);
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
    const std::vector<BlobView> user = {users.blob(r)};
    detail::BlobJoin::Shape shape = states_.shape(user);
    if (!shape.status.ok()) return std::move(shape.status);
    states.blob.resize(static_cast<size_t>(shape.bytes));
    states.side = hash(user[0]);
    static std::atomic<uint64_t> last_number{0};
    states.number = ++last_number;
    const DenseInfo* bad = nullptr;
    states_.write(user, shape, states.blob.data(), [&](const DenseInfo& info) {
      const Span<const float> values = scores[info.name].of(r);
      const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
      if (detail::find_not_finite(bytes, values.size(), DenseWire::f32) >= 0) bad = &info;
      return values;
    });
    if (bad == nullptr) return {};
    return {StatusCode::not_finite, Problem{"", "'" + bad->name + "'", "finite values", "NaN or infinity"}.to_string()};
  }

  /// Rows of an axis of the users' side.
  int64_t rows(const KeptStates& states, AxisSlot axis) const { return view(states).rows(axis); }

  /// Whether a whole request divides its items among as many rows of the user's axes as the states have.
  bool fits(const KeptStates& states, const BlobView& whole) const {
    return items_of_whole_.shape({view(states), whole}).status.ok();
  }

  /// Adds to a batch of DividedPlan::items what a user's states make with a request about this user: one of
  /// DividedPlan::later_requests, or a whole one, whose user's side is then not read. The request's status tells if its
  /// items are divided among other rows than the states have. Throws invalid_argument for a request of another layout.
  Request add_items(const KeptStates& states, const BlobView& request, Batch& items) const {
    return add_items(states, request, items, detail::BlobJoin::Copy());
  }
  /// The same, and tells the places of the states' values in the blob. These bytes stay as they are in the batch unless
  /// they `are_copied`: they are for the device's memory (PiecewiseBatch).
  Request add_items(const KeptStates& states, const BlobView& request, Batch& items, bool are_copied,
                    std::vector<StateSection>& sections) const {
    sections.clear();
    const auto copy = [&](std::byte* blob, int64_t at, const std::byte* values, int64_t bytes, int part) {
      constexpr int of_states = 0;
      if (part == of_states) sections.push_back({values - states.blob.data(), at, detail::align_8(bytes)});
      if (part != of_states || are_copied) std::memcpy(blob + at, values, static_cast<size_t>(bytes));
    };
    return add_items(states, request, items, copy);
  }
  /// Adds a request that has no scores.
  static Request add_bad(Status status, Batch& items) { return items.add_bad(std::move(status)); }

 private:
  std::vector<int> axes_of_items() const { return {plan_->is_of_items.begin(), plan_->is_of_items.end()}; }
  BlobView view(const KeptStates& states) const { return {states.blob.data(), plan_->kept_states}; }

  template <class CopyInput>
  Request add_items(const KeptStates& states, const BlobView& request, Batch& items, CopyInput&& copy) const {
    const bool is_whole = request.fingerprint() == plan_->whole.layout().fingerprint();
    if (!is_whole && request.fingerprint() != plan_->later_requests.fingerprint())
      throw invalid_argument("request of a divided plan", "a whole one, or one of its items' side", "another");
    return add(is_whole ? items_of_whole_ : items_of_later_, {view(states), request}, items, copy);
  }
  template <class CopyInput = detail::BlobJoin::Copy>
  static Request add(const detail::BlobJoin& join, const std::vector<BlobView>& parts, Batch& batch,
                     CopyInput&& copy = {}) {
    detail::BlobJoin::Shape shape = join.shape(parts);
    if (!shape.status.ok()) return batch.add_bad(std::move(shape.status));
    return batch.add_valid(shape.bytes, [&](std::byte* to) {
      const auto given = [](const DenseInfo&) { return Span<const float>(); };  // all are in parts
      join.write(parts, shape, to, given, copy);
    });
  }

  std::shared_ptr<const DividedPlan> plan_;
  detail::BlobJoin user_, states_, items_of_whole_, items_of_later_;
};

}}  // namespace warprank::v0
