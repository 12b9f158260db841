// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What ServedModel::swap takes and gives.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/quiet_thread.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/recorded_requests.hpp"
#include "warprank/engine/tables.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank { inline namespace v0 {

/// How the next model takes over. docs/SERVING.md helps to choose.
enum class SwapMode {
  full,            ///< new tables and weights are loaded beside the old; each batch has either all old or all new
  dense_and_rows,  ///< the tables stay and get rows, one by one; then new weights take over, between batches
  drain            ///< waits for all contexts, frees the old tables and weights, loads the new; batches wait meanwhile
};

inline const char* to_string(SwapMode mode) {
  return mode == SwapMode::full ? "full" : mode == SwapMode::drain ? "drain" : "dense_and_rows";
}

/// What is to serve: of the same plan and on the same device as what it replaces.
struct NextModel {
  Weights dense = Weights::from_tensors({});   ///< as for bind
  Weights tables = Weights::from_tensors({});  ///< as for Tables::load; dense_and_rows: as for Tables::update, or none
  HashTableFiles images = {};                  ///< as for Tables::load; dense_and_rows: none
  /// As for Tables::load; none: as the served tables were loaded; without `pages`: those of the first. Engines may
  /// refuse that `full` makes tables updatable that were not, or the other way: hashed ones on a GPU.
  std::optional<LoadOptions> load = {};
  /// As for bind, and not taken over from the served model: give what that was bound with. Contexts on a GPU refuse a
  /// model of another `tuning` or `linear_kernel` where it is launched otherwise, when all is loaded; drain, which
  /// makes new ones, takes it.
  BindOptions bind = {};
};

struct SwapOptions {
  /// Requests as blobs (docs/BATCH_FORMAT.md), such as the last hundred that were served. Both models score them,
  /// merged up to each capacity, before the new one takes over. None may be above all capacities.
  std::vector<std::vector<std::byte>> recorded = {};
  /// The swap is refused where a score of a recorded request differs by more, and always where the new one is NaN,
  /// infinite or missing and the old one was finite.
  double most_difference = std::numeric_limits<double>::infinity();
  /// How long to wait for contexts that are in use: until drain is refused, the other modes return. And how long drain
  /// waits for others who have the old model or its tables. More than a year is a year.
  std::chrono::milliseconds patience{10000};
  /// Of the thread that loads, binds, compares and frees while others serve; a drain loads as the caller does, since
  /// nobody is served meanwhile.
  LoaderPriority loader = LoaderPriority::idle;
  /// What that thread, and each that it makes, takes of a core, in (0, 1]; for `as_caller` it says nothing. With all of
  /// what is free, systems look for no free core when a worker wakes, and quotas of processor time are used up. What it
  /// takes, requests wait for: docs/SERVING.md has figures.
  double loader_share = 0.1;
};

struct SwapReport {
  int64_t version = 0;          ///< what ContextLease::version says from now on
  MemoryReport needed;          ///< bytes, worked out before anything was allocated
  int64_t free_bytes = 0;       ///< for them: free then; drain: and what was going to be freed
  ScoreComparison comparison;   ///< no outputs when there was nothing to compare with
  UpdateReport rows;            ///< dense_and_rows
  int64_t contexts_behind = 0;  ///< in use for longer than `patience`: they have the old model, which stays in memory,
                                ///< until they are given back
};

/// Contexts that have not the newest model: lent for longer than a swap waited, or unable to take it. The latter try
/// again whenever they are acquired or given back, and when a swap begins; until then they serve with what they have,
/// where no other is idle.
struct ContextsBehind {
  int64_t count = 0;
  std::string error;  ///< the last one's that was unable; empty: they are only lent
};

/// The swap was not made for a reason that lies not in the files: memory, scores that differ too much, contexts that do
/// not come back. The message has the figures.
class swap_refused : public detail::error_of<std::runtime_error> {
 public:
  using error_of::error_of;
};

/// A served model has no model: a drain freed the old one, and the new one could not be loaded.
class no_model : public detail::error_of<std::runtime_error> {
 public:
  using error_of::error_of;
};

}}  // namespace warprank::v0
