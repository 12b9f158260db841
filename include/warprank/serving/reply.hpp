// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The answers of a RankingService.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace warprank { inline namespace v0 {

enum class Outcome {
  scored,
  bad_request,  ///< its data is wrong, and the message tells the error; trying again does not help
  refused,      ///< not scored, and the reason is Reply::refusal; another server may take it
  failed        ///< the engine could not run the batch, and the message tells why
};

/// Why a request was refused.
enum class Refusal {
  none,
  full,         ///< too many are waiting
  displaced,    ///< too many are waiting, and one of a higher priority took its place
  late,         ///< it could not be scored before its deadline
  stopping,     ///< the service stops
  cancelled,    ///< its caller no longer waits: RankingService::cancel was called
  unknown_user  ///< it has no user's side, and no states are kept for its user: send the whole request
};
inline constexpr int num_refusals = 7;

/// For people; metrics have the enumerator's name.
inline const char* to_string(Refusal refusal) {
  switch (refusal) {
    case Refusal::none:
      return "";
    case Refusal::full:
      return "too many requests are waiting";
    case Refusal::displaced:
      return "too many requests are waiting, and one of a higher priority came";
    case Refusal::late:
      return "it could not be scored before its deadline";
    case Refusal::stopping:
      return "the service is stopping";
    case Refusal::cancelled:
      return "it was cancelled";
    case Refusal::unknown_user:
      return "nothing is known of its user; send the whole request";
  }
  return "";
}

struct Reply {
  Outcome outcome = Outcome::scored;
  Refusal refusal = Refusal::none;
  std::string message;                     ///< empty when scored
  std::vector<std::vector<float>> scores;  ///< [outputs][rows * width]; outputs as RankingService::outputs() has them
  int64_t version = 0;                     ///< of the model that scored it (ContextLease::version)
  int64_t merged = 0;                      ///< requests in its batch
  /// Whether states are kept for its user: the next request about the user may leave the user's side out.
  bool is_user_kept = false;
  double waited_seconds = 0;    ///< until its batch was put together
  double computed_seconds = 0;  ///< from then until the batch had its scores
};

/// Called once for each request: by a worker, or by a thread that asks, when a request is bad or refused. It must not
/// throw, and should be short, since a context waits for it.
using ReplyCallback = std::function<void(Reply)>;

}}  // namespace warprank::v0
