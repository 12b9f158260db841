// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests of a divided plan in a RankingService: with a user's side, or about a user whose states are kept.

#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "warprank/batch/batch.hpp"
#include "warprank/core/host_allocator.hpp"
#include "warprank/core/status.hpp"
#include "warprank/engine/device_states.hpp"
#include "warprank/engine/divided_batch.hpp"
#include "warprank/engine/divided_requests.hpp"
#include "warprank/engine/served_model.hpp"
#include "warprank/serving/reply.hpp"
#include "warprank/serving/user_key.hpp"
#include "warprank/serving/user_states.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// A request as it was packed, and what is known of its user.
struct PackedCall {
  /// `later`: null where the plan is not divided.
  PackedCall(std::shared_ptr<const BatchLayout> whole, std::shared_ptr<const BatchLayout> later)
      : whole_(std::move(whole)) {
    if (later != nullptr) later_.emplace(std::move(later));
  }

  Batch& packed() { return is_later ? *later_ : whole_; }
  /// Finds the states that are of this version of the model, unless it has them.
  void look_up(UserStates* kept, int64_t of_version) {
    if (states != nullptr && version == of_version) return;
    states = kept != nullptr && user && packed().status(0).ok() ? kept->find(*user, of_version) : nullptr;
    version = of_version;
  }
  void clear() {
    packed().clear();
    states = nullptr;
  }

  bool is_later = false;  ///< of DividedPlan::later_requests
  std::optional<UserKey> user = {};
  UserStates::States states = {};
  int64_t version = 0;  ///< of the states

 private:
  Batch whole_;
  std::optional<Batch> later_;
};

/// A worker's batch. `Call` is a PackedCall with a Reply.
template <class Call>
class DividedCalls {
 public:
  using Calls = std::list<Call>;

  /// `kept` and `on_device` may be null.
  DividedCalls(std::shared_ptr<const DividedRequests> requests, UserStates* kept, DeviceStates* on_device,
               bool compare_users, const HostAllocator& allocator)
      : requests_(std::move(requests)),
        kept_(kept),
        on_device_(on_device),
        compare_users_(compare_users),
        batch_(requests_, allocator) {}

  /// Scores the calls, but for those whose user this version of the model does not know: these go to `unknown`.
  Scores run(const ContextLease& context, Calls& calls, Calls& unknown) {
    begin_ = UserStates::Clock::now();
    known_users_ = changed_users_ = 0;
    batch_.clear();
    for (auto call = calls.begin(); call != calls.end();) {
      const auto next = std::next(call);
      call->look_up(kept_, context.version());
      if (!call->is_later && call->states != nullptr && has_changed(*call)) {
        ++changed_users_;
        call->states = nullptr;
      }
      if (call->is_later && call->states == nullptr)
        unknown.splice(unknown.end(), calls, call);
      else
        batch_.add(call->packed().blob(0), call->states);
      call = next;
    }
    const Scores scores = batch_.run(context.users(), *context, on_device_);
    int64_t r = 0;
    for (Call& call : calls) finish(call, r++, context.version());
    return scores;
  }

  // Of the last batch:
  int64_t known_users() const { return known_users_; }
  int64_t changed_users() const { return changed_users_; }

 private:
  /// Whether the user's side of a whole request is another than that of the states, as far as items need it, or in all
  /// where it is to be compared.
  bool has_changed(Call& call) const {
    const BlobView whole = call.packed().blob(0);
    if (!requests_->fits(*call.states, whole)) return true;
    if (!compare_users_) return false;
    Batch user = requests_->plan().user.batch();
    const Request request = requests_->add_user(whole, user);
    return !request.status().ok() || DividedRequests::hash(user.blob(0)) != call.states->side;
  }
  void finish(Call& call, int64_t r, int64_t version) {
    const Status& status = batch_.status(r);
    if (!status.ok()) {
      call.reply.outcome = Outcome::bad_request;
      call.reply.message = status.message;
    }
    const UserStates::States& states = batch_.states(r);
    if (kept_ == nullptr || !call.user || states == nullptr) return;
    const bool is_known = call.states != nullptr;
    known_users_ += is_known;
    call.reply.is_user_kept = is_known || kept_->keep(*call.user, version, states, begin_);
  }

  const std::shared_ptr<const DividedRequests> requests_;
  UserStates* const kept_;
  DeviceStates* const on_device_;
  const bool compare_users_;
  DividedBatch batch_;
  UserStates::Clock::time_point begin_;  // of the last batch, which has read no rows that are older
  int64_t known_users_ = 0, changed_users_ = 0;
};

}}}  // namespace warprank::v0::detail
