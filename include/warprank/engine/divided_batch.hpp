// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests that are scored together by the two models of a divided plan: some with a user's side, some with states
/// that are known.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/host_allocator.hpp"
#include "warprank/core/status.hpp"
#include "warprank/engine/context.hpp"
#include "warprank/engine/device_states.hpp"
#include "warprank/engine/divided_requests.hpp"
#include "warprank/engine/kept_states.hpp"
#include "warprank/engine/piecewise_batch.hpp"

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
    of_request_.push_back(states == nullptr ? users_.size() : -1);
    if (states == nullptr) requests_->add_user(request, users_);
    blobs_.push_back(request);
    states_.push_back(std::move(states));
  }

  /// Scores the users' sides that have no states yet, in one batch, then all items' sides in another. Scores are those
  /// of the items' side, in the order of `add`. `on_device`: keeps states in the memory of the contexts' device. Throws
  /// as Context::run does.
  Scores run(Context& users, Context& items, DeviceStates* on_device = nullptr) {
    std::optional<Scores> scores;
    if (users_.size() > 0) scores = users.run(users_);
    std::optional<DeviceStates::InUse> in_use;
    if (on_device != nullptr) in_use.emplace(*on_device);
    places_.clear();
    for (size_t r = 0; r < blobs_.size(); ++r) {
      const Status status = of_request_[r] < 0 ? Status{} : compute_states(*scores, r);
      if (!status.ok())
        DividedRequests::add_bad(status, items_);
      else if (in_use)
        add_items(r, *in_use);
      else
        requests_->add_items(*states_[r], blobs_[r], items_);
    }
    if (places_.empty()) return items.run(items_);
    items_.close();
    find_pieces();
    const Scores of_items = items.submit(PiecewiseBatch(items_, on_device->memory(), pieces_)).wait();
    in_use->succeed();
    return of_items;
  }

  int64_t size() const { return static_cast<int64_t>(blobs_.size()); }
  // Of request `r`, after a run:
  const Status& status(int64_t r) const { return items_.status(r); }
  /// Null: they could not be computed.
  const States& states(int64_t r) const { return states_[static_cast<size_t>(r)]; }

  /// Forgets all requests.
  void clear() {
    users_.clear();
    items_.clear();
    of_request_.clear(), blobs_.clear(), states_.clear();
  }

 private:
  Status compute_states(const Scores& scores, size_t r) {
    const Status& of_user = users_.status(of_request_[r]);
    if (!of_user.ok()) return of_user;
    KeptStates states;
    Status status = requests_->states(scores, users_, of_request_[r], states);
    if (status.ok()) states_[r] = std::make_shared<const KeptStates>(std::move(states));
    return status;
  }

  /// The states of a request that have pages, or are to have them.
  struct Place {
    int64_t request;
    DeviceStates::InUse::Pages pages;
    std::vector<StateSection> sections;
  };

  void add_items(size_t r, DeviceStates::InUse& in_use) {
    const DeviceStates::InUse::Pages pages = in_use.add(*states_[r]);
    if (pages.pages.empty()) {
      requests_->add_items(*states_[r], blobs_[r], items_);
      return;
    }
    Place place{items_.size(), pages, {}};
    const Request added = requests_->add_items(*states_[r], blobs_[r], items_, !pages.is_there, place.sections);
    if (added.status().ok())
      places_.push_back(std::move(place));
    else if (!pages.is_there)
      in_use.drop_last();
  }
  void find_pieces() {
    pieces_.clear();
    for (const Place& place : places_) {
      const int64_t blob_at = items_.blob(place.request).data() - items_.blobs().data();
      for (const StateSection& section : place.sections)
        DeviceStates::for_each_page(section, place.pages.pages, [&](int64_t in_section, int64_t bytes, int64_t at) {
          pieces_.push_back({blob_at + section.in_blob + in_section, bytes, at, place.pages.is_there});
        });
    }
    std::sort(pieces_.begin(), pieces_.end(), [](const BatchPiece& a, const BatchPiece& b) { return a.at < b.at; });
  }

  std::shared_ptr<const DividedRequests> requests_;
  Batch users_, items_;
  std::vector<int64_t> of_request_;  // its number among the users' sides; -1: its states were given
  std::vector<BlobView> blobs_;
  std::vector<States> states_;
  std::vector<Place> places_;
  std::vector<BatchPiece> pieces_;
};

}}  // namespace warprank::v0
