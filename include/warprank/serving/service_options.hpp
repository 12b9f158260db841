// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The options of a RankingService, and its counters. docs/SERVING.md says how to choose.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

#include "warprank/engine/device_states.hpp"
#include "warprank/serving/reply.hpp"
#include "warprank/serving/user_key.hpp"

namespace warprank { inline namespace v0 {

struct ServiceOptions {
  int64_t most_waiting = 256;  ///< requests that are packed or wait; those beyond are refused
  int64_t most_merged = 64;    ///< requests in a batch; the plan's capacities may allow fewer
  /// Rows of any axis in a batch of several requests; the plan's capacities may allow fewer.
  int64_t most_rows = std::numeric_limits<int64_t>::max();
  /// Rows of any axis of a request; a request with more is bad.
  int64_t most_request_rows = std::numeric_limits<int64_t>::max();
  /// How long a free worker waits for more requests after the oldest came, unless a batch is full before. 0: it does
  /// not wait; requests then merge only if they came while all workers were busy.
  std::chrono::microseconds most_wait{0};
  /// For finding errors: a whole request about a user with states is compared with the user's side that these were
  /// computed from. If it differs, they are computed anew, and counted (ServiceCounters::changed_users). Without this
  /// that is so only if the request divides its items among more or fewer rows of the user's axes.
  bool compare_users = false;
  /// States of users that are also kept in the device's memory, where a UserStates keeps them in the host's: batches
  /// about these users need not send them. For a model on a GPU alone.
  DeviceStatesOptions device_states = {};
};

enum class Priority { high, normal };

/// How one request is to be served.
struct CallOptions {
  using TimePoint = std::chrono::steady_clock::time_point;

  /// The time after which its answer is worthless. The request is refused as soon as its answer is known to come later.
  TimePoint deadline = TimePoint::max();
  Priority priority = Priority::normal;  ///< requests of high priority go first, and are the last to find no place
  /// The number by which RankingService::cancel finds the request: one for all requests of a caller, from new_call().
  /// 0: never.
  uint64_t call = 0;
  /// By which the states of its user are kept and found, where the plan is divided and the service has a UserStates.
  /// Requests with the same key have the same user's side, or its older states will do. None: neither.
  std::optional<UserKey> user = {};
};

/// Requests since the service was made.
struct ServiceCounters {
  int64_t scored = 0, bad = 0, failed = 0;
  std::array<int64_t, num_refusals> refused_by = {};  ///< by Refusal
  int64_t batches = 0;                                ///< that had the scored requests
  int64_t known_users = 0;                            ///< scored by states that were kept before
  int64_t changed_users = 0;                          ///< whose states were of another user's side

  int64_t refused() const { return std::accumulate(refused_by.begin(), refused_by.end(), int64_t{0}); }
  int64_t refused(Refusal refusal) const { return refused_by[static_cast<size_t>(refusal)]; }
};

}}  // namespace warprank::v0
