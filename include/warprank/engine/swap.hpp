// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The arguments and results of ServedModel::swap.

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
  full,            ///< new tables and weights are loaded beside the old; each batch uses only old or only new ones
  dense_and_rows,  ///< the tables stay and get rows, one by one; then new weights take over, between batches
  drain            ///< waits for all contexts, frees the old tables and weights, loads the new; batches wait meanwhile
};

inline const char* to_string(SwapMode mode) {
  return mode == SwapMode::full ? "full" : mode == SwapMode::drain ? "drain" : "dense_and_rows";
}

/// The model that shall serve: of the same plan and on the same device as the old one.
struct NextModel {
  Weights dense = Weights::from_tensors({});   ///< as for bind
  Weights tables = Weights::from_tensors({});  ///< as for Tables::load; dense_and_rows: as for Tables::update, or none
  HashTableFiles images = {};                  ///< as for Tables::load; dense_and_rows: none
  /// As for Tables::load; none: as the served tables were loaded; without `pages`: the pool of the first tables. With
  /// `full`, engines may refuse a change from updatable tables to others or back: a GPU does for hashed tables.
  std::optional<LoadOptions> load = {};
  /// As for bind, and not taken over from the served model: give the same options with which it was bound. When all is
  /// loaded, contexts on a GPU refuse a model whose other `tuning` or `linear_kernel` changes its launches; drain
  /// accepts it, since it makes new contexts.
  BindOptions bind = {};
};

struct SwapOptions {
  /// Requests as blobs (docs/BATCH_FORMAT.md), such as the last hundred that were served. Both models score them,
  /// merged up to each capacity, before the new model takes over. No request may be above all capacities.
  std::vector<std::vector<std::byte>> recorded = {};
  /// The swap is refused if a score of a recorded request differs by more, and always if the new score is NaN, infinite
  /// or missing and the old one was finite.
  double most_difference = std::numeric_limits<double>::infinity();
  /// How long to wait for contexts that are in use; then drain is refused, and the other modes return. Drain waits as
  /// long for other code that has the old model or its tables. More than a year counts as a year.
  std::chrono::milliseconds patience{10000};
  /// The priority of the thread that loads, binds, compares and frees while others serve. A drain loads with the
  /// caller's priority, since no request is served meanwhile.
  LoaderPriority loader = LoaderPriority::idle;
  /// The share of a core for that thread, and for each thread that it makes, in (0, 1]; it has no effect with
  /// `as_caller`. If the thread took all free time, systems would find no free core when a worker wakes, and quotas of
  /// processor time would be used up. Requests wait for the time that it takes: docs/SERVING.md has figures.
  double loader_share = 0.1;
};

struct SwapReport {
  int64_t version = 0;          ///< the result of ContextLease::version from now on
  MemoryReport needed;          ///< bytes, worked out before anything was allocated
  int64_t free_bytes = 0;       ///< free bytes at that time; with drain also the bytes to be freed
  ScoreComparison comparison;   ///< no outputs when there was nothing to compare with
  UpdateReport rows;            ///< dense_and_rows
  int64_t contexts_behind = 0;  ///< contexts in use for longer than `patience`: until they are given back, they keep
                                ///< the old model, which stays in memory
};

/// Contexts without the newest model: lent for longer than a swap waited, or unable to take it. The latter try again
/// whenever they are acquired or given back, and when a swap begins; until then they serve with their old model, where
/// no other context is idle.
struct ContextsBehind {
  int64_t count = 0;
  std::string error;  ///< of the last context that was unable; empty: they are only lent
};

/// The swap was refused for a reason outside of the files: memory, scores that differ too much, contexts that do not
/// come back. The message has the figures.
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
