// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Columns through a model, by any number of threads.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "columns.hpp"
#include "device.hpp"
#include "warprank/engine/model.hpp"
#include "warprank/host.hpp"

namespace warprank::python {

/// A context and the batch that it runs.
struct Worker {
  Context context;
  Batch batch;
  int card = -1;           ///< on which the context is; -1: on the host
  DeviceBlobs blobs = {};  ///< of the batch, where columns are on a card
};

struct OutputColumn {
  int64_t width = 0;
  std::vector<float> values;     ///< [rows, width]
  std::vector<int64_t> offsets;  ///< [requests + 1]: the rows of each request
};

struct ScoredColumns {
  std::vector<OutputColumn> outputs;                    ///< in the order of the plan's
  std::vector<std::pair<int64_t, std::string>> failed;  ///< requests that have no scores, and why
};

/// Fills a worker's batch with the requests [begin, end), and begins to score it in a stream, without one in the
/// context's own. With columns on a card the stream is CUDA's default stream.
Pending submit_batch(const Columns& columns, int64_t begin, int64_t end, Worker& worker,
                     std::optional<StreamHandle> stream = {});
/// Scores the requests [begin, end) in one batch, behind what `scored` has.
void score_batch(const Columns& columns, int64_t begin, int64_t end, Worker& worker, ScoredColumns& scored);

/// A model and the contexts that were made for it, each used by one thread at a time.
class Scorer {
 public:
  Scorer(const Plan& plan, const Weights& weights, const Tables& tables, const BindOptions& options)
      : model_(Model::bind(plan, weights, tables, options)),
        card_(tables.device().engine == host().engine ? -1 : tables.device().index) {}

  const Model& model() const { return model_; }
  Worker worker(const ContextOptions& options = {}) const { return {model_.context(options), model_.batch(), card_}; }

  /// Batches are of as few requests as have `rows_per_batch` rows on all axes together. Throws what the first thread
  /// that fails throws.
  ScoredColumns score(const Columns& columns, int64_t threads, int64_t rows_per_batch);

  /// By feature what ids met in all that was scored, but for calls that are under way.
  std::map<std::string, LookupCounters> counters();

 private:
  std::unique_ptr<Worker> acquire();
  void release(std::unique_ptr<Worker> worker);

  Model model_;
  int card_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> idle_;
};

}  // namespace warprank::python
