// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests that are scored together by the two models of a divided plan: some with a user's side, some with states
/// that are known.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/host_allocator.hpp"
#include "warprank/core/status.hpp"
#include "warprank/engine/context.hpp"
#include "warprank/engine/divided_requests.hpp"
#include "warprank/engine/kept_states.hpp"

namespace warprank { inline namespace v0 {

/// Keeps its memory from batch to batch. One thread at a time.
class DividedBatch {
 public:
  /// Shared with those that keep it (UserStates).
  using States = std::shared_ptr<const KeptStates>;

  explicit DividedBatch(std::shared_ptr<const DividedRequests> requests, const HostAllocator& allocator = {})
      : requests_(std::move(requests)),
        users_(requests_->plan().user.batch(allocator)),
        items_(requests_->plan().items.batch(allocator)) {}

  /// Adds a request of DividedPlan::whole or of DividedPlan::later_requests. Without states, it is a whole one, and its
  /// states are computed. The blob lives until `run` has returned.
  void add(const BlobView& request, States states) {
    if (states == nullptr) {
      of_request_.push_back(users_.size());
      users_.add_blob(Span<const std::byte>(requests_->user(request)));
    } else {
      of_request_.push_back(-1);
    }
    blobs_.push_back(request);
    states_.push_back(std::move(states));
  }

  /// Scores the users' sides that have no states yet, in one batch, then all items' sides in another. Scores are those
  /// of the items' side, in the order of `add`. Throws as Context::run does.
  Scores run(Context& users, Context& items) {
    status_.resize(blobs_.size());
    if (users_.size() > 0) {
      const Scores scores = users.run(users_);
      for (size_t r = 0; r < blobs_.size(); ++r)
        if (of_request_[r] >= 0) compute_states(scores, r);
    }
    DividedRequests::Blob blob;
    for (size_t r = 0; r < blobs_.size(); ++r) {
      Status& status = status_[r];
      blob.clear();  // without states: a blob that has no scores
      if (status.ok()) status = requests_->items(*states_[r], blobs_[r], blob);
      const Request request = items_.add_blob(Span<const std::byte>(blob));
      if (status.ok()) status = request.status();
    }
    return items.run(items_);
  }

  int64_t size() const { return static_cast<int64_t>(blobs_.size()); }
  // Of request `r`, after a run:
  const Status& status(int64_t r) const { return status_[static_cast<size_t>(r)]; }
  /// Null: they could not be computed.
  const States& states(int64_t r) const { return states_[static_cast<size_t>(r)]; }

  /// Forgets all requests.
  void clear() {
    users_.clear();
    items_.clear();
    of_request_.clear(), blobs_.clear(), states_.clear(), status_.clear();
  }

 private:
  void compute_states(const Scores& scores, size_t r) {
    const int64_t of_user = of_request_[r];
    KeptStates states;
    status_[r] = users_.status(of_user);
    if (status_[r].ok()) status_[r] = requests_->states(scores, users_, of_user, states);
    if (status_[r].ok()) states_[r] = std::make_shared<const KeptStates>(std::move(states));
  }

  std::shared_ptr<const DividedRequests> requests_;
  Batch users_, items_;
  std::vector<int64_t> of_request_;  // its number among the users' sides; -1: its states were given
  std::vector<BlobView> blobs_;
  std::vector<States> states_;
  std::vector<Status> status_;
};

}}  // namespace warprank::v0
