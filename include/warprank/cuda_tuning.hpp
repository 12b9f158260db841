// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measures which kernels are fastest for the linear layers of a model on this card, once, to be taken at every start:
///
///     save_tuning(tune(plan, weights, tables), "t4.json");                                  // once for each card
///
///     BindOptions options;
///     options.tuning = std::make_shared<const Tuning>(load_tuning("t4.json"));              // at every start
///     auto model = bind(plan, weights, tables, options);
///
/// Plain C++; a part of the CUDA engine, as cuda.hpp says. engine/tuning.hpp has what is found, and the rule for what
/// was not measured.

#include <functional>

#include "warprank/cuda.hpp"
#include "warprank/engine/tuning.hpp"
#include "warprank/engine/tuning_json.hpp"

namespace warprank {

struct TuneOptions {
  int turns = 7;  ///< in which all candidates of a step are measured; the median of each counts
  int runs = 20;  ///< of a step in a turn, in one captured graph
  /// What is chosen is that much faster than what the rule says: less would be noise.
  double min_gain = 0.03;
  /// What a candidate takes, in place of the device's clock: for tests, or a model of costs. It is run once, all the
  /// same; `seconds` and `seconds_by_rule` of the argument are not known.
  std::function<double(const LinearChoice&)> seconds = {};
};

/// Runs every step of linears of the plan at each of its capacities, full, with every kernel that computes it: chains
/// fused or layer by layer, and of those each by cuBLASLt where the engine is built with it (WARPRANK_CUBLASLT). Takes
/// seconds, allocates what a context needs and once more the weights, and waits; nothing else should run on the device.
/// A step is measured by itself, again and again, so that the cache has what it reads where it holds it. Throws as bind
/// does.
WARPRANK_ENGINE_HIDDEN Tuning tune(const Plan& plan, const Weights& weights, const Tables& tables,
                                   const BindOptions& bind_options = {}, const TuneOptions& options = {});

}  // namespace warprank
