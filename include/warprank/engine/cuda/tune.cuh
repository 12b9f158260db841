// SPDX-License-Identifier: Apache-2.0
#pragma once

/// tune(): tries the kernels that compute each step of linears, and takes the fastest.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "warprank/cuda_tuning.hpp"
#include "warprank/device/stopwatch.hpp"
#include "warprank/engine/cuda/linear_chooser.cuh"
#include "warprank/engine/cuda/make_steps.cuh"
#include "warprank/engine/cuda/run_set.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// When a measurement must not begin any more.
class Deadline {
 public:
  explicit Deadline(const TuneOptions& options)
      : clock_(options.clock), begin_(now()), seconds_(options.most_seconds) {}

  double elapsed() const { return now() - begin_; }
  /// Whether a share of the time, from the beginning, is over.
  bool is_over(double share = 1) const { return elapsed() >= share * seconds_; }

 private:
  double now() const {
    if (clock_) return clock_();
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  std::function<double()> clock_;
  double begin_, seconds_;
};

/// Queues and waits; also where something goes wrong, so that the caller may free what is copied from or to.
template <class Queue>
void queue_and_wait(device::Stream stream, const Queue& queue) {
  try {
    queue();
    device::synchronize(stream);
  } catch (...) {
    settle(stream);
    throw;
  }
}

/// A step by some kernels, captured.
class LinearTrial {
 public:
  LinearTrial(const LinearStep& step, const StepShape& shape, LinearPicks picks, const Bindings& bindings, int runs,
              device::Stream stream)
      : picks_(std::move(picks)), runs_(runs) {
    choice_.layers = shape.layers;
    choice_.kernels = picks_.kernels;
    choice_.variants = picks_.variants;
    try {
      StepMemory needed;
      step.prepare(shape, picks_, bindings, needed);
      const StepMemory::Sizes& sizes = needed.sizes();
      device_memory_ = device::DeviceMemory(sizes.bytes() + sizes.in_turns, "a step that is tried");
      auto* const begin = static_cast<unsigned char*>(device_memory_.data());
      StepMemory memory(begin, sizes, begin + sizes.bytes());
      prepared_ = step.prepare(shape, picks_, bindings, memory);
      queue_and_wait(stream, [&] {
        memory.write(stream);
        prepared_.queue(stream);  // loads the kernels
      });
      if (!sums_rows_alike(stream)) return;
    } catch (const no_cublaslt_algorithm&) {
      has_algorithm_ = false;
      return;
    } catch (const cuda_error&) {  // what cuBLASLt proposes it may refuse
      if (!picks_.has(LinearKernel::cublaslt)) throw;
      return;
    }
    graph_ = device::Graph::capture(stream, [&] {
      for (int i = 0; i < runs; ++i) prepared_.queue(stream);
    });
    choice_.launches = graph_.num_kernels() / runs;
  }

  const LinearPicks& picks() const { return picks_; }
  const LinearChoice& choice() const { return choice_; }
  bool can_run() const { return graph_.num_nodes() > 0; }
  bool has_algorithm() const { return has_algorithm_; }

  /// Takes part in a turn.
  void run(const TuneOptions& options, device::Stream stream) {
    if (!can_run()) return;
    device::Stopwatch stopwatch;
    stopwatch.start(stream);
    graph_.launch(stream);
    stopwatch.stop(stream);
    const double seconds = stopwatch.seconds() / runs_;
    seconds_.push_back(options.seconds ? options.seconds(choice_) : seconds);
  }
  /// The median of all turns; infinity for what cannot run, or has not.
  double seconds() const {
    if (seconds_.empty()) return std::numeric_limits<double>::infinity();
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  int64_t num_turns() const { return static_cast<int64_t>(seconds_.size()); }

 private:
  /// Rows that are alike must be summed alike. All are, as the Tuner has made them. FP16 would hide it: sums that are
  /// stored so, behind which there is nothing but a bias and an activation, are not cut.
  bool sums_rows_alike(device::Stream stream) const {
    for (const FloatMatrix<const void>& y : prepared_.cut_sums) {
      if (y.type != DType::f32) return false;
      if (y.rows == 0) continue;
      std::vector<float> values(static_cast<size_t>((y.rows - 1) * y.stride + y.cols));
      queue_and_wait(stream, [&] {
        device::copy_to_host(values.data(), y.data, 4 * static_cast<int64_t>(values.size()), stream);
      });
      for (int64_t row = 1; row < y.rows; ++row)
        if (std::memcmp(values.data(), values.data() + row * y.stride, 4 * static_cast<size_t>(y.cols)) != 0)
          return false;
    }
    return true;
  }

  LinearPicks picks_;
  int runs_;
  device::DeviceMemory device_memory_;
  PreparedStep prepared_;
  device::Graph graph_;
  bool has_algorithm_ = true;
  LinearChoice choice_;
  std::vector<double> seconds_;
};

class Tuner {
 public:
  /// The tables' device must be the current one.
  Tuner(const Plan& plan, const Weights& weights, const CudaTableStore& tables, int device_index,
        const BindOptions& bind_options, const TuneOptions& options)
      : plan_(plan), options_(options), device_index_(device_index), values_(plan.graph(), plan.storage()) {
    Problems problems;
    if (options.turns < 1) problems.add("tune: turns", "1 or more", std::to_string(options.turns));
    if (options.runs < 1) problems.add("tune: runs", "1 or more", std::to_string(options.runs));
    problems.throw_if_any();
    WeightsMemory memory;
    const detail::Int8Linears none;  // cuBLASLt is tried, too, and the tuning is for all models of the plan
    steps_ = StepMaker(plan_, values_, weights, tables, bind_options, none, chooser_, memory).make();
    weights_ = copied(memory.bytes(), "the weights of a model that is tuned", stream_.get());
    copied_weights_ = copied(memory.copied(), "the weights of a model that is tuned", stream_.get());
  }

  /// Choices for what `known` has none for, as far as the time reaches: each capacity has its share, and what those
  /// before it have left of theirs.
  Tuning run(const Tuning& known = {}) {
    Tuning tuning;
    tuning.on = tuned_on(device_index_);
    const std::vector<Capacity>& capacities = plan_.options().capacities;
    for (size_t c = 0; c < capacities.size() && !deadline_.is_over(); ++c) {
      share_ = static_cast<double>(c + 1) / static_cast<double>(capacities.size());
      RunSize size;
      size.rows = plan::rows_at(plan_.source(), capacities[c]);
      size.max_requests = plan_.most_requests();
      const RunSource source{
          plan_.graph(),  values_, plan_.storage(), steps_, static_cast<const unsigned char*>(weights_.data()),
          copied_weights_};
      const RunSet runs(source, {size}, nullptr, "tuning", device_index_, stream_.get());
      fill(runs, size);
      const Bindings& bindings = runs.runs()[0]->bindings();
      for (const ModelStep* step : by_work(bindings)) {
        const StepShape shape = step->linears->shape(bindings);
        if (known.find(shape.layers) != nullptr || tuning.find(shape.layers) != nullptr) continue;
        if (deadline_.is_over(share_)) break;
        make_rows_alike(*step->linears, bindings);
        if (std::optional<LinearChoice> choice = fastest(*step->linears, shape, bindings))
          tuning.choices.push_back(std::move(*choice));
      }
    }
    return tuning;
  }

 private:
  using Trials = std::vector<std::unique_ptr<LinearTrial>>;

  /// Steps of which something can be chosen, those with the most operations first: their choice matters most.
  std::vector<const ModelStep*> by_work(const Bindings& bindings) const {
    std::vector<std::pair<double, const ModelStep*>> all;
    for (const ModelStep& step : steps_.steps) {
      if (step.linears == nullptr) continue;
      const StepShape shape = step.linears->shape(bindings);
      if (!shape.is_open()) continue;
      double work = 0;
      for (const LinearShape& layer : shape.layers)
        work += static_cast<double>(layer.count) * static_cast<double>(layer.rows) * static_cast<double>(layer.in) *
                static_cast<double>(layer.out);
      all.emplace_back(work, &step);
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<const ModelStep*> steps;
    for (const auto& [work, step] : all) steps.push_back(step);
    return steps;
  }

  /// As many rows as the capacity has, all of the last request, and values that are neither zeros nor overflow, as FP16
  /// and as FP32.
  void fill(const RunSet& runs, const RunSize& size) const {
    const BatchIndex layout = PreparedRun::index_of(size);
    std::vector<int64_t> index(static_cast<size_t>(layout.bytes() / 8));
    std::copy(size.rows.begin(), size.rows.end(), index.begin());
    const SharedMemory& to = runs.shared();
    constexpr unsigned char about_one = 0x3c;  // the upper byte of an FP16
    queue_and_wait(stream_.get(), [&] {
      device::fill(to.arena, about_one, ArenaLayout(values_, plan_.storage(), size.rows).bytes, stream_.get());
      device::copy_to_device(to.index, index.data(), layout.bytes(), stream_.get());
    });
  }
  /// Makes all rows of what a step reads alike, so that it shows whether they come out alike.
  void make_rows_alike(const LinearStep& step, const Bindings& bindings) const {
    std::minstd_rand random;
    for (const NodeChain& chain : step.nodes)
      for (const int n : chain)
        for (const int input : bindings.graph().node(n).inputs) {
          if (std::find(chain.begin(), chain.end(), input) != chain.end()) continue;
          const FloatMatrix<void> x = bindings.value(input);
          if (x.rows == 0) continue;
          const int64_t bytes = ((x.rows - 1) * x.stride + x.cols) * size_of(x.type);
          std::vector<uint16_t> row(static_cast<size_t>(x.stride * size_of(x.type) / 2));
          for (uint16_t& half : row) half = static_cast<uint16_t>((random() & 0x83ff) | 0x3800);  // 0.5 to 1
          auto* const to = static_cast<unsigned char*>(x.data);
          queue_and_wait(stream_.get(), [&] {
            int64_t done = std::min(bytes, 2 * static_cast<int64_t>(row.size()));
            device::copy_to_device(to, row.data(), done, stream_.get());
            for (int64_t more = 0; done < bytes; done += more) {
              more = std::min(done, bytes - done);
              device::copy_on_device(to + done, to, more, stream_.get());
            }
          });
        }
  }

  /// Tries what the rule says; all fused, in some ways; all by tiles, and instead of those each depth cut otherwise,
  /// and each layer by each algorithm of cuBLASLt, alone; all by cuBLASLt; then those together that gained alone. None
  /// where there was no time to compare anything.
  std::optional<LinearChoice> fastest(const LinearStep& step, const StepShape& shape, const Bindings& bindings) const {
    Trials trials;
    const auto add = [&](const LinearPicks& picks) -> LinearTrial& {
      for (const auto& trial : trials)
        if (trial->picks() == picks) return *trial;
      trials.push_back(std::make_unique<LinearTrial>(step, shape, picks, bindings, options_.runs, stream_.get()));
      return *trials.back();
    };
    const size_t count = shape.layers.size();
    const LinearPicks tiles(std::vector<LinearKernel>(count, LinearKernel::tiles));
    LinearTrial &by_rule = add(LinearPicks(chooser_.by_rule(shape))), &by_tiles = add(tiles);
    LinearPicks fused(std::vector<LinearKernel>(count, LinearKernel::fused));
    if (shape.is_stack) add(fused);
    std::vector<std::vector<LinearTrial*>> cut(static_cast<size_t>(depth_of(shape))), algorithms(count);
    LinearPicks all = tiles;
    for (size_t i = 0; i < count; ++i) {
      if (!shape.may_be(i, LinearKernel::cublaslt, chooser_.has_cublaslt())) continue;
      all.kernels[i] = LinearKernel::cublaslt;
      for (int a = 0; a < most_algorithms && !deadline_.is_over(share_); ++a) {
        LinearPicks one = tiles;
        one.kernels[i] = LinearKernel::cublaslt;
        if (a > 0) one.variants[i] = name_of_algorithm(a);
        LinearTrial& trial = add(one);
        if (a > 0 && !trial.has_algorithm()) break;
        algorithms[i].push_back(&trial);
      }
    }
    if (!deadline_.is_over(share_)) add(all);
    if (shape.is_stack)
      for (const ChainPolicy& policy : chains_to_try(shape, device::target())) {
        if (deadline_.is_over(share_)) break;
        fused.variants.assign(count, policy.to_string());
        add(fused);
      }
    for (int64_t depth = 0; depth < depth_of(shape); ++depth)
      for (const LinearTiling& tiling : tilings_to_try(shape, depth, device::target())) {
        if (deadline_.is_over(share_)) break;
        cut[static_cast<size_t>(depth)].push_back(&add(cut_otherwise(shape, tiles, depth, tiling.to_string())));
      }
    take_turns(trials);

    LinearPicks gaining = tiles;
    const auto best_of = [&](const std::vector<LinearTrial*>& of) {
      LinearTrial* best = &by_tiles;
      for (LinearTrial* const trial : of)
        if (trial->seconds() < best->seconds()) best = trial;
      return best;
    };
    for (int64_t depth = 0; depth < depth_of(shape); ++depth)
      if (const LinearTrial* const best = best_of(cut[static_cast<size_t>(depth)]); best != &by_tiles)
        gaining = cut_otherwise(shape, gaining, depth, variant_at(shape, best->picks(), depth));
    for (size_t i = 0; i < count; ++i)
      if (const LinearTrial* const best = best_of(algorithms[i]); best != &by_tiles) {
        gaining.kernels[i] = LinearKernel::cublaslt;
        gaining.variants[i] = best->picks().variants[i];
      }
    if (!deadline_.is_over(share_)) {
      add(gaining);  // maybe a new one
      take_turns(trials);
    }

    const LinearTrial& best = **std::min_element(
        trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a->seconds() < b->seconds(); });
    // What cannot run is left to tiles (LinearStep::prepare_all_the_same).
    const LinearTrial& unasked = by_rule.can_run() ? by_rule : by_tiles;
    const double seconds_by_rule = unasked.seconds();
    if (unasked.num_turns() == 0) return {};
    const bool is_faster = best.seconds() < (1 - options_.min_gain) * seconds_by_rule;
    const LinearTrial& chosen = is_faster ? best : unasked;
    LinearChoice choice = chosen.choice();
    choice.seconds = chosen.seconds();
    choice.seconds_by_rule = seconds_by_rule;
    return choice;
  }

  /// All take a turn; then those that are not much slower than the fastest take the others, where there is time.
  void take_turns(const Trials& trials) const {
    constexpr double much_slower = 1.3;
    for (int turn = 0; turn < options_.turns; ++turn) {
      double least = std::numeric_limits<double>::infinity();
      for (const auto& trial : trials) least = std::min(least, trial->seconds());
      for (const auto& trial : trials) {
        if (trial->num_turns() > turn || (turn > 0 && trial->seconds() > much_slower * least)) continue;
        if (deadline_.is_over(share_)) return;
        trial->run(options_, stream_.get());
      }
    }
  }

  /// Tiles of a depth have one variant.
  static LinearPicks cut_otherwise(const StepShape& shape, LinearPicks picks, int64_t depth,
                                   const std::string& variant) {
    for (size_t i = 0; i < picks.kernels.size(); ++i)
      if (shape.layers[i].depth == depth && picks.kernels[i] == LinearKernel::tiles) picks.variants[i] = variant;
    return picks;
  }
  static std::string variant_at(const StepShape& shape, const LinearPicks& picks, int64_t depth) {
    for (size_t i = 0; i < picks.kernels.size(); ++i)
      if (shape.layers[i].depth == depth && picks.kernels[i] == LinearKernel::tiles) return picks.variants[i];
    return "";
  }

  const Plan plan_;
  const TuneOptions options_;
  const Deadline deadline_{options_};
  const int device_index_;
  const ValueLayout values_;
  const LinearChooser chooser_ = LinearChooser::for_trials(has_cublaslt(), device::target());
  device::OwnedStream stream_;
  ModelSteps steps_;
  device::DeviceMemory weights_, copied_weights_;
  double share_ = 1;  // of the time, until the end of this capacity's
};

}}}  // namespace warprank::v0::cuda_backend
