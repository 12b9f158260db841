// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which kernels compute the linears of a model that is bound: as a tuning says that is given, as measured now or
/// before (AutoTuning), or by rule.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/on_cuda.hpp"
#include "warprank/engine/cuda/linear_chooser.cuh"
#include "warprank/engine/cuda/tune.cuh"
#include "warprank/engine/tuning_folder.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline bool tunes_at_bind(TuneAtBind when) {
  if (when != TuneAtBind::on_a_card) return when == TuneAtBind::always;
#if defined(WARPRANK_ON_CUDA)
  const char* const variable = std::getenv("WARPRANK_TUNE_AT_BIND");
  return variable == nullptr || std::string(variable) != "0";
#else
  return false;
#endif
}

/// What a process has decided on a device, with a folder. It stands until the process ends: models that are exchanged
/// are launched alike, whichever of them was bound when there was time to measure.
struct DecidedLinears {
  std::mutex mutex;
  Tuning tuning;
  std::vector<std::vector<LinearShape>> left_to_rule;

  bool has(const std::vector<LinearShape>& layers) const {
    return tuning.find(layers) != nullptr ||
           std::find(left_to_rule.begin(), left_to_rule.end(), layers) != left_to_rule.end();
  }
  WARPRANK_HIDDEN static DecidedLinears& on(int device_index, const std::string& folder) {
    static std::mutex mutex;
    static std::map<std::pair<int, std::string>, DecidedLinears> all;
    const std::lock_guard<std::mutex> lock(mutex);
    return all[{device_index, folder}];
  }
};

/// A chooser, and lines that say why it chooses so.
struct LinearDecision {
  LinearChooser chooser;
  std::string text;
};

class LinearDecider {
 public:
  /// The device must be the current one; all outlive this.
  LinearDecider(const Plan& plan, const ValueLayout& layout, const Weights& weights, const CudaTableStore& tables,
                int device_index, const BindOptions& options)
      : plan_(plan),
        layout_(layout),
        weights_(weights),
        tables_(tables),
        device_index_(device_index),
        options_(options),
        here_(tuned_on(device_index)) {}

  /// Throws invalid_argument for a tuning of elsewhere that is to be refused, and for a file that is none.
  LinearDecision decide() const {
    LinearDecision decision = of_options();
    decision.text = "cuBLASLt: " + describe_cublaslt() + "\nlinear layers: " + decision.text + "\n";
    return decision;
  }

 private:
  LinearDecision of_options() const {
    const LinearChooser by_rule(nullptr, has_cublaslt(), here_.target);
    if (options_.linear_kernel)
      return {LinearChooser(nullptr, has_cublaslt(), here_.target, options_.linear_kernel),
              std::string("by ") + name_of_enum(*options_.linear_kernel) + " wherever it computes them, as said"};
    if (options_.same_kernels_at_all_capacities)
      return {LinearChooser::holding(HeldTilings(linear_shapes(plan_, layout_), here_.target), here_.target),
              "by the same tiles at all capacities, as said"};
    if (options_.tuning == nullptr)
      return tunes_at_bind(options_.auto_tuning.when) ? measured() : LinearDecision{by_rule, "by rule"};
    try {
      check_tuning(*options_.tuning, here_);
    } catch (const invalid_argument& foreign) {
      if (options_.foreign_tuning == ForeignTuning::refuse) throw;
      return {by_rule, std::string("by rule; the tuning that was given is ignored: ") + foreign.what()};
    }
    return {LinearChooser(options_.tuning, has_cublaslt(), here_.target), "by the tuning that was given"};
  }

  LinearDecision measured() const {
    std::vector<std::vector<LinearShape>> steps;
    for (const StepShape& step : linear_shapes(plan_, layout_))
      if (step.is_open() && std::find(steps.begin(), steps.end(), step.layers) == steps.end())
        steps.push_back(step.layers);
    const detail::TuningFolder folder(options_.auto_tuning.folder, here_, steps);
    DecidedLinears& decided = DecidedLinears::on(device_index_, options_.auto_tuning.folder);
    const std::lock_guard<std::mutex> lock(decided.mutex);  // measurements would disturb one another
    const auto num_open = [&] {
      return std::count_if(steps.begin(), steps.end(), [&](const auto& step) { return !decided.has(step); });
    };
    const auto num_steps = static_cast<std::ptrdiff_t>(steps.size());
    std::string text, line;
    const auto say = [&](const std::string& more) {
      if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
    };
    std::ptrdiff_t open = num_open();
    if (open < num_steps)
      say(std::to_string(num_steps - open) + " of " + std::to_string(num_steps) +
          " steps as decided before in this process");
    if (open > 0) {
      for (LinearChoice& kept : folder.load(line))
        if (!decided.has(kept.layers)) decided.tuning.choices.push_back(std::move(kept));
      const std::ptrdiff_t still_open = num_open();
      if (still_open < open) line = std::to_string(open - still_open) + " from " + folder.path();
      say(line);
      open = still_open;
    }
    if (open > 0) {
      say(measure(steps, decided));
      std::vector<LinearChoice> choices;
      for (const auto& step : steps)
        if (const LinearChoice* const choice = decided.tuning.find(step)) choices.push_back(*choice);
      line.clear();
      if (!choices.empty()) folder.save(choices, line);
      say(line);
    }
    auto tuning = std::make_shared<Tuning>();
    for (const auto& step : steps)
      if (const LinearChoice* const choice = decided.tuning.find(step)) tuning->choices.push_back(*choice);
    return {LinearChooser(std::move(tuning), has_cublaslt(), here_.target), text.empty() ? "nothing to choose" : text};
  }

  /// Decides what is open, and says how.
  std::string measure(const std::vector<std::vector<LinearShape>>& steps, DecidedLinears& decided) const {
    const Deadline clock(options_.auto_tuning.how);
    std::string problem = "the time was over";
    size_t num_measured = 0;
    try {
      Tuner tuner(plan_, weights_, tables_, device_index_, options_, options_.auto_tuning.how);
      for (LinearChoice& choice : tuner.run(decided.tuning).choices) {
        decided.tuning.choices.push_back(std::move(choice));
        ++num_measured;
      }
    } catch (const out_of_device_memory& error) {
      problem = error.what();
    }
    size_t num_left = 0;
    for (const auto& step : steps)
      if (!decided.has(step)) {
        decided.left_to_rule.push_back(step);
        ++num_left;
      }
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.2f", clock.elapsed());
    return std::to_string(num_measured) + " measured in " + seconds + " s" +
           (num_left == 0 ? "" : "; " + std::to_string(num_left) + " by rule, as " + problem);
  }

  const Plan& plan_;
  const ValueLayout& layout_;
  const Weights& weights_;
  const CudaTableStore& tables_;
  const int device_index_;
  const BindOptions& options_;
  const TunedOn here_;
};

}}}  // namespace warprank::v0::cuda_backend
