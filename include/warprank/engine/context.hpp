// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/suggest.hpp"
#include "warprank/engine/engine.hpp"

namespace warprank {

/// One output of a run. Valid until the context runs again.
class OutputScores {
 public:
  OutputScores(const OutputView& view, Span<const int64_t> scored) : view_(&view), scored_(scored) {}

  /// All rows of one request, row-major [rows, width]; empty for a request that was not scored (see Scores::scored).
  Span<const float> of(int64_t request) const {
    const int64_t r = request >= 0 && request < scored_.size() ? scored_[request] : -1;
    if (r < 0) return {};
    return {view_->values.row(view_->requests.begin(r)), view_->requests.size(r) * width()};
  }
  Span<const float> of(const Request& request) const { return of(request.index()); }
  int64_t width() const { return view_->values.cols; }
  /// The rows of all scored requests.
  Matrix<const float> all() const { return view_->values; }

 private:
  const OutputView* view_;
  Span<const int64_t> scored_;
};

/// The scores of a run. Valid until the context runs again.
class Scores {
 public:
  Scores(Span<const OutputView> outputs, Span<const int64_t> scored) : outputs_(outputs), scored_(scored) {}

  /// An output by name; throws invalid_argument when the model has none of it.
  OutputScores operator[](const std::string& name) const {
    for (const OutputView& output : outputs_)
      if (output.name == name) return {output, scored_};
    std::vector<std::string> names;
    for (const OutputView& output : outputs_) names.push_back(output.name);
    throw invalid_argument("output '" + name + "'", "an output of the model", unknown_name(name, names));
  }
  /// Whether a request was scored; if not, Batch::status says why.
  bool scored(int64_t request) const { return request >= 0 && request < scored_.size() && scored_[request] >= 0; }
  bool scored(const Request& request) const { return scored(request.index()); }

 private:
  Span<const OutputView> outputs_;
  Span<const int64_t> scored_;
};

/// A batch on its way. On the host it is done when `submit` returns.
class Pending {
 public:
  explicit Pending(Scores scores) : scores_(scores) {}
  bool ready() const { return true; }
  Scores wait() const { return scores_; }

 private:
  Scores scores_;
};

/// Memory to run one batch of a model at a time; make as many as you have batches in flight. Movable; outlives the
/// Plan, Tables, Weights and Model it was made from. A second run while one is under way is refused, whichever thread
/// it comes from; everything else is for the thread that runs, between runs.
class Context {
 public:
  Context(Plan plan, std::unique_ptr<ContextBackend> backend, ContextOptions options)
      : plan_(std::move(plan)), backend_(std::move(backend)), options_(options), busy_(new std::atomic<bool>(false)) {}

  /// Closes a batch and scores it. Several contexts may run a batch at once when it was closed before. Requests that
  /// are not ok get no scores and do not disturb the others. Allocates nothing once the context was made for such a
  /// capacity or has seen a batch as large. Throws invalid_argument for a batch of another plan and std::logic_error
  /// when the context is in use.
  Scores run(Batch& batch) {
    if (batch.fingerprint() != plan_.layout().fingerprint())
      throw invalid_argument("batch", "one of this plan's axes and inputs", "one of another plan");
    const Use use(*busy_);
    batch.close();
    backend_->run(batch);
    return {backend_->outputs(), backend_->scored()};
  }
  /// `run`, begun; errors are thrown here.
  Pending submit(Batch& batch) { return Pending(run(batch)); }

  /// The value of a node in the last run: [rows of its axis, width], no rows before the first. Valid until the next
  /// run. Throws invalid_argument for an unknown node, and unless the context was made with keep_intermediates.
  Matrix<const float> tap(const std::string& node) {
    if (!options_.keep_intermediates)
      throw invalid_argument("tap '" + node + "'", "a context with keep_intermediates", "one without");
    std::vector<std::string> names;
    for (size_t n = 0; n < plan_.graph().nodes.size(); ++n) {
      if (plan_.graph().nodes[n].name == node) return backend_->tap(static_cast<int>(n));
      names.push_back(plan_.graph().nodes[n].name);
    }
    throw invalid_argument("tap '" + node + "'", "a node of the plan (a pass may have merged it into another)",
                           unknown_name(node, names));
  }

  /// What every feature has met since the context was made.
  std::vector<FeatureCounters> counters() const { return backend_->counters(); }
  MemoryReport memory() const { return backend_->memory(); }
  const Plan& plan() const { return plan_; }

 private:
  class Use {
   public:
    explicit Use(std::atomic<bool>& busy) : busy_(busy) {
      if (busy_.exchange(true, std::memory_order_acquire))
        throw std::logic_error("context: expected one batch at a time, got a second while one is under way");
    }
    ~Use() { busy_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool>& busy_;
  };

  Plan plan_;
  std::unique_ptr<ContextBackend> backend_;
  ContextOptions options_;
  std::unique_ptr<std::atomic<bool>> busy_;
};

}  // namespace warprank
