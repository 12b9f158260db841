// SPDX-License-Identifier: Apache-2.0
#pragma once

/// tune(): tries the kernels that compute each step of linears, and takes the fastest.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "warprank/cuda_tuning.hpp"
#include "warprank/device/stopwatch.hpp"
#include "warprank/engine/cuda/linear_chooser.cuh"
#include "warprank/engine/cuda/make_steps.cuh"
#include "warprank/engine/cuda/run_set.cuh"

namespace warprank::cuda_backend {

/// A step by some kernels, captured.
class LinearTrial {
 public:
  LinearTrial(const LinearStep& step, const StepShape& shape, std::vector<LinearKernel> kernels,
              const Bindings& bindings, int runs, device::Stream stream)
      : runs_(runs) {
    choice_.layers = shape.layers;
    choice_.kernels = std::move(kernels);
    try {
      StepMemory needed;
      step.prepare(shape, choice_.kernels, bindings, needed);
      device_memory_ = device::DeviceMemory(needed.sizes().bytes(), "a step that is tried");
      StepMemory memory(static_cast<unsigned char*>(device_memory_.data()), needed.sizes());
      prepared_ = step.prepare(shape, choice_.kernels, bindings, memory);
      memory.write(stream);
      prepared_.queue(stream);  // loads the kernels
      device::synchronize(stream);
    } catch (const cuda_error&) {  // cuBLASLt may have no algorithm
      if (!has(LinearKernel::cublaslt)) throw;
      return;
    }
    graph_ = device::Graph::capture(stream, [&] {
      for (int i = 0; i < runs; ++i) prepared_.queue(stream);
    });
    choice_.launches = graph_.num_kernels() / runs;
  }

  const LinearChoice& choice() const { return choice_; }
  bool has(LinearKernel kernel) const {
    return std::find(choice_.kernels.begin(), choice_.kernels.end(), kernel) != choice_.kernels.end();
  }

  /// Takes part in a turn.
  void run(const TuneOptions& options, device::Stream stream) {
    if (graph_.num_nodes() == 0) return;
    device::Stopwatch stopwatch;
    stopwatch.start(stream);
    graph_.launch(stream);
    stopwatch.stop(stream);
    const double seconds = stopwatch.seconds() / runs_;
    seconds_.push_back(options.seconds ? options.seconds(choice_) : seconds);
  }
  /// The median of all turns; infinity for what cannot run.
  double seconds() const {
    if (seconds_.empty()) return std::numeric_limits<double>::infinity();
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

 private:
  int runs_;
  device::DeviceMemory device_memory_;
  PreparedStep prepared_;
  device::Graph graph_;
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
    steps_ = StepMaker(plan_, values_, weights, tables, bind_options, chooser_, memory).make();
    weights_ = copied(memory.bytes(), "the weights of a model that is tuned", stream_.get());
    copied_weights_ = copied(memory.copied(), "the weights of a model that is tuned", stream_.get());
  }

  Tuning run() {
    Tuning tuning;
    tuning.on = tuned_on(device_index_);
    for (const Capacity& capacity : plan_.options().capacities) {
      RunSize size;
      size.rows = plan::rows_at(plan_.source(), capacity);
      size.max_requests = plan_.most_requests();
      const RunSource source{
          plan_.graph(),  values_, plan_.storage(), steps_, static_cast<const unsigned char*>(weights_.data()),
          copied_weights_};
      const RunSet runs(source, {size}, nullptr, "tuning", device_index_, stream_.get());
      fill(runs, size);
      const Bindings& bindings = runs.runs()[0]->bindings();
      for (const ModelStep& step : steps_.steps) {
        if (step.linears == nullptr) continue;
        const StepShape shape = step.linears->shape(bindings);
        const bool has_rows = std::any_of(shape.layers.begin(), shape.layers.end(),
                                          [](const LinearShape& layer) { return layer.rows > 0; });
        if (!shape.mixes && has_rows && tuning.find(shape.layers) == nullptr)
          tuning.choices.push_back(fastest(*step.linears, shape, bindings));
      }
    }
    return tuning;
  }

 private:
  /// As many rows as the capacity has, and values that are neither zeros nor overflow, as FP16 and as FP32.
  void fill(const RunSet& runs, const RunSize& size) const {
    std::vector<uint16_t> values(static_cast<size_t>(ArenaLayout(values_, plan_.storage(), size.rows).bytes / 2));
    std::minstd_rand random;
    for (uint16_t& value : values) value = static_cast<uint16_t>((random() & 0x83ff) | 0x3800);  // 0.5 to 1
    const BatchIndex layout = PreparedRun::index_of(size);
    std::vector<int64_t> index(static_cast<size_t>(layout.bytes() / 8));  // that all rows are of the last request
    std::copy(size.rows.begin(), size.rows.end(), index.begin());
    const SharedMemory& to = runs.shared();
    device::copy_to_device(to.arena, values.data(), 2 * static_cast<int64_t>(values.size()), stream_.get());
    device::copy_to_device(to.index, index.data(), layout.bytes(), stream_.get());
    device::synchronize(stream_.get());
  }

  /// Tries what the rule says; all fused; all by tiles, and instead of those by cuBLASLt each layer alone and all; then
  /// those together that gained alone.
  LinearChoice fastest(const LinearStep& step, const StepShape& shape, const Bindings& bindings) const {
    std::vector<LinearTrial> trials;
    const auto add = [&](const std::vector<LinearKernel>& kernels) {
      const auto same = std::find_if(trials.begin(), trials.end(),
                                     [&](const LinearTrial& trial) { return trial.choice().kernels == kernels; });
      if (same != trials.end()) return static_cast<size_t>(same - trials.begin());
      trials.emplace_back(step, shape, kernels, bindings, options_.runs, stream_.get());
      return trials.size() - 1;
    };
    const auto take_turns = [&] {
      for (int turn = 0; turn < options_.turns; ++turn)
        for (LinearTrial& trial : trials) trial.run(options_, stream_.get());
    };
    const std::vector<LinearKernel> tiles(shape.layers.size(), LinearKernel::tiles);
    const size_t by_rule = add(chooser_.by_rule(shape)), by_tiles = add(tiles);
    if (shape.is_stack) add(std::vector<LinearKernel>(shape.layers.size(), LinearKernel::fused));
    std::vector<LinearKernel> all = tiles, gaining = tiles;
    std::vector<size_t> alone(shape.layers.size(), by_tiles);  // by layer: its trial
    for (size_t i = 0; i < shape.layers.size(); ++i) {
      if (!shape.may_be(i, LinearKernel::cublaslt, chooser_.has_cublaslt())) continue;
      std::vector<LinearKernel> one = tiles;
      one[i] = all[i] = LinearKernel::cublaslt;
      alone[i] = add(one);
    }
    add(all);
    take_turns();
    for (size_t i = 0; i < shape.layers.size(); ++i)
      if (trials[alone[i]].seconds() < trials[by_tiles].seconds()) gaining[i] = LinearKernel::cublaslt;
    if (add(gaining) + 1 == trials.size()) take_turns();  // maybe a new one

    const auto best = std::min_element(trials.begin(), trials.end(), [](const LinearTrial& a, const LinearTrial& b) {
      return a.seconds() < b.seconds();
    });
    // What cannot run is left to tiles (LinearStep::prepare_all_the_same).
    const LinearTrial& unasked = trials[std::isinf(trials[by_rule].seconds()) ? by_tiles : by_rule];
    const double seconds_by_rule = unasked.seconds();
    const bool is_faster = best->seconds() < (1 - options_.min_gain) * seconds_by_rule;
    const LinearTrial& chosen = is_faster ? *best : unasked;
    LinearChoice choice = chosen.choice();
    choice.seconds = chosen.seconds();
    choice.seconds_by_rule = seconds_by_rule;
    return choice;
  }

  const Plan plan_;
  const TuneOptions options_;
  const int device_index_;
  const ValueLayout values_;
  const LinearChooser chooser_ = LinearChooser::for_trials(has_cublaslt(), device::target());
  device::OwnedStream stream_;
  ModelSteps steps_;
  device::DeviceMemory weights_, copied_weights_;
};

}  // namespace warprank::cuda_backend
