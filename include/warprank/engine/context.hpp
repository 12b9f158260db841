// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/engine/engine.hpp"

namespace warprank { inline namespace v0 {

class Model;

namespace detail {

inline invalid_argument unknown_output(const std::string& name, Span<const OutputView> outputs) {
  std::vector<std::string> names;
  for (const OutputView& output : outputs) names.push_back(output.name);
  return {"output '" + name + "'", "an output of the model", unknown_name(name, names)};
}

}  // namespace detail

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

  /// An output by name; throws invalid_argument when the model has no output of this name.
  OutputScores operator[](const std::string& name) const {
    for (const OutputView& output : outputs_)
      if (output.name == name) return {output, scored_};
    throw detail::unknown_output(name, outputs_);
  }
  /// Whether a request was scored; if not, Batch::status says why.
  bool scored(int64_t request) const { return request >= 0 && request < scored_.size() && scored_[request] >= 0; }
  bool scored(const Request& request) const { return scored(request.index()); }

 private:
  Span<const OutputView> outputs_;
  Span<const int64_t> scored_;
};

namespace detail {

/// A context's backend and whether it is in use: a Pending keeps both while it needs them.
struct ContextState {
  std::unique_ptr<ContextBackend> backend;
  std::atomic<bool> busy{false};
};

/// The right to use a context, which only one user has at a time. Movable.
class ContextUse {
 public:
  /// Throws usage_error when another user has it.
  explicit ContextUse(std::shared_ptr<ContextState> state) : state_(std::move(state)) {
    if (state_->busy.exchange(true, std::memory_order_acquire))
      throw usage_error("context: expected one batch at a time, got a second while one is under way");
  }
  ~ContextUse() { end(); }
  ContextUse(ContextUse&& other) noexcept
      : state_(std::move(other.state_)), ended_(std::exchange(other.ended_, true)) {}
  ContextUse& operator=(ContextUse&&) = delete;

  bool ended() const { return ended_; }
  void end() {
    if (!std::exchange(ended_, true)) state_->busy.store(false, std::memory_order_release);
  }
  ContextBackend& backend() const { return *state_->backend; }

 private:
  std::shared_ptr<ContextState> state_;
  bool ended_ = false;
};

}  // namespace detail

/// A batch on its way. Until wait() has returned, its context takes no other batch, and the batch must not change: the
/// device may still be reading it. On the host everything is done when `submit` returns.
class Pending {
 public:
  Pending(Pending&&) = default;
  Pending& operator=(Pending&&) = delete;
  /// Waits unless wait() was called; errors are then lost.
  ~Pending() {
    try {
      if (!use_.ended()) use_.backend().wait();
    } catch (...) {  // NOLINT: nobody asked
    }
  }

  /// Whether wait() would return at once. With tables that wait for rows (RowTier::waits), wait() may still have to
  /// wait and run the batch again. Does not wait.
  bool ready() const { return use_.ended() || use_.backend().ready(); }

  /// An output in the device's memory, for later kernels in the stream that was given to submit, such as a re-ranker's.
  /// Does not wait. Valid until the context gets its next batch; submit that batch in a stream that comes behind these
  /// kernels. Throws invalid_argument for an unknown output, on the host, for a batch that runs in parts (Oversize),
  /// and where tables wait for their stores, since such a batch is run again; throws usage_error after wait().
  DeviceScores device_scores(const std::string& output) const {
    if (use_.ended()) throw usage_error("device scores: expected a batch on its way, got one that was waited for");
    const Span<const OutputView> outputs = use_.backend().outputs();
    for (int64_t o = 0; o < outputs.size(); ++o)
      if (outputs[o].name == output) return use_.backend().device_scores(static_cast<int>(o));
    throw detail::unknown_output(output, outputs);
  }

  /// Waits for the scores, and lets the context take the next batch. The scores are valid until the context takes it,
  /// and as long as the context or this object exists. Throws cuda_error for errors on the device, and usage_error the
  /// second time.
  Scores wait() {
    if (use_.ended()) throw usage_error("pending batch: expected one wait, got a second");
    const struct AtTheEnd {
      detail::ContextUse& use;
      ~AtTheEnd() { use.end(); }
    } at_the_end{use_};
    ContextBackend& backend = use_.backend();
    backend.wait();
    return {backend.outputs(), backend.scored()};
  }

 private:
  friend class Context;

  explicit Pending(detail::ContextUse use) : use_(std::move(use)) {}

  detail::ContextUse use_;
};

/// Memory to run one batch of a model at a time; make as many as you have batches in flight. Movable; it may outlive
/// the Plan, Tables, Weights and Model from which it was made. A second run while one is under way is refused, from any
/// thread; all other functions are for the running thread, between runs.
class Context {
 public:
  Context(Plan plan, std::unique_ptr<ContextBackend> backend, ContextOptions options)
      : plan_(std::move(plan)), options_(options), state_(std::make_shared<detail::ContextState>()) {
    state_->backend = std::move(backend);
  }

  /// Closes a batch and scores it. Several contexts may run a batch at once if it was closed before. Requests that are
  /// not ok get no scores and do not disturb the others. Allocates nothing if the context was made for such a capacity
  /// or has seen a batch as large. Throws invalid_argument for a batch of another plan and usage_error when the context
  /// is in use.
  Scores run(Batch& batch) { return submit(batch).wait(); }

  /// Begins a `run`; the same errors. On a device it queues in `stream`, behind earlier work there, the copy of the
  /// batch, the kernels and the copy of the scores, and returns; later work in the stream comes behind the scores. It
  /// waits for no other stream. The stream must live until wait() has returned. Without `stream`: a stream of the
  /// context's own; null is CUDA's default stream. Throws invalid_argument, too, for a stream of another device.
  Pending submit(Batch& batch, std::optional<StreamHandle> stream = {}) {
    expect_same_plan(batch);
    detail::ContextUse use(state_);
    batch.close();
    use.backend().submit(batch, stream);
    return Pending(std::move(use));
  }

  /// The same for a batch in the device's memory, which it copies within the device. Kernels that write there come
  /// before it in `stream`. Throws invalid_argument also on the host, and for memory that is not the device's.
  Pending submit(const DeviceBatch& batch, std::optional<StreamHandle> stream = {}) {
    expect_same_plan(batch.batch());
    detail::ContextUse use(state_);
    use.backend().submit_on_device(batch, stream);
    return Pending(std::move(use));
  }

  /// The same for a batch some of whose bytes are in the device's memory already, or are to be stored there. A kernel
  /// ahead of the others brings the batch together.
  Pending submit(const PiecewiseBatch& batch, std::optional<StreamHandle> stream = {}) {
    expect_same_plan(batch.batch());
    detail::ContextUse use(state_);
    use.backend().submit_piecewise(batch, stream);
    return Pending(std::move(use));
  }

  /// From now on `next`, a model of the same plan, engine and device, scores the batches. Present scores stay valid,
  /// but values of `tap` may become invalid. Memory and graphs are kept, so this is cheap: on a device it copies
  /// descriptors, and within the device the weights that cuBLASLt reads. Only a graph with custom functions, whose
  /// launches may hold addresses of weights, is captured again, beside the old graph. The old model is freed with the
  /// last context that has it. Throws invalid_argument with the differences, usage_error while a batch is under way,
  /// the errors of custom functions, and errors of the device; after an error nothing has changed but the values of
  /// `tap`.
  void rebind(const Model& next);

  /// The value of a node in the last run: [rows of its axis, width], no rows before the first. Valid until the next
  /// run. Throws invalid_argument for an unknown node, and unless the context was made with keep_intermediates;
  /// usage_error when the context is in use.
  Matrix<const float> tap(const std::string& node) {
    if (!options_.keep_intermediates)
      throw invalid_argument("tap '" + node + "'", "a context with keep_intermediates", "one without");
    const detail::ContextUse use(state_);
    std::vector<std::string> names;
    for (size_t n = 0; n < plan_.graph().nodes.size(); ++n) {
      names.push_back(plan_.graph().nodes[n].name);
      if (names.back() != node) continue;
      if (!use.backend().keeps(static_cast<int>(n)))
        throw invalid_argument("tap '" + node + "'", "a value in memory, as with Passes::fuse_tails off",
                               "one that a kernel keeps on chip");
      return use.backend().tap(static_cast<int>(n));
    }
    throw invalid_argument("tap '" + node + "'", "a node of the plan (a pass may have merged it into another)",
                           unknown_name(node, names));
  }

  /// Whether `tap` shows a node; false for an unknown node, and for a node that an engine keeps on chip.
  bool keeps(const std::string& node) const {
    const std::vector<Node>& nodes = plan_.graph().nodes;
    for (size_t n = 0; n < nodes.size(); ++n)
      if (nodes[n].name == node) return options_.keep_intermediates && state_->backend->keeps(static_cast<int>(n));
    return false;
  }

  /// The counters of every feature since the context was made. Throws usage_error when the context is in use.
  std::vector<FeatureCounters> counters() const { return detail::ContextUse(state_).backend().counters(); }
  MemoryReport memory() const { return state_->backend->memory(); }
  /// Describes how the context waits, how the kernels of linears were chosen, and what happened to files of tunings.
  /// Then it has the launches of a batch at each capacity: a line for each kernel, with its grid, block and dynamic
  /// shared memory, in the order of plan.describe()'s steps. Empty where nothing is launched. Throws usage_error when
  /// the context is in use.
  std::string describe() const { return detail::ContextUse(state_).backend().describe(); }
  /// Closes a batch, runs it many times, and tells the time of each step. For measurements, not for serving: it
  /// allocates and waits, and on a GPU updates of the tables wait for it. The scores of the last run are lost, and
  /// features are not counted. On the host, inputs and outputs are also steps. On a GPU copies are no steps, and a
  /// step's time is the difference of two graphs, one that ends before the step and one that ends with it. So the time
  /// includes the gap before the step, and the cache is in the same state as in serving. Throws as run does, and
  /// invalid_argument for turns or runs below 1 and, on a GPU, for a batch above all capacities.
  Profile profile(Batch& batch, const ProfileOptions& options = {}) {
    detail::check(options);
    expect_same_plan(batch);
    const detail::ContextUse use(state_);
    batch.close();
    return use.backend().profile(batch, options);
  }
  const Plan& plan() const { return plan_; }

 private:
  void expect_same_plan(const Batch& batch) const {
    const BatchLayout& layout = plan_.layout();
    if (batch.fingerprint() == layout.batch_fingerprint()) return;
    const bool has_same_inputs = batch.layout().fingerprint() == layout.fingerprint();
    throw invalid_argument("batch", "one of this plan's axes and inputs",
                           has_same_inputs ? "one that holds inputs in other types" : "one of another plan");
  }

  Plan plan_;
  ContextOptions options_;
  std::shared_ptr<detail::ContextState> state_;
};

}}  // namespace warprank::v0
