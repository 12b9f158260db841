// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measures which kernels are fastest for the linear layers of a model on this card: once, without a limit of time, so
/// that every start and every server can use the result:
///
///     save_tuning(tune(plan, weights, tables), "t4.json");                                  // once for each card
///
///     BindOptions options;
///     options.tuning = std::make_shared<const Tuning>(load_tuning("t4.json"));              // at every start
///     auto model = Model::bind(plan, weights, tables, options);
///
/// Without it bind measures by itself, for up to a second. Plain C++; a part of the CUDA engine, as cuda.hpp says.
/// engine/tuning.hpp has the result, the work of bind, and the rule for layers that were not measured.

#include "warprank/cuda.hpp"
#include "warprank/engine/tuning.hpp"
#include "warprank/engine/tuning_json.hpp"

namespace warprank { inline namespace v0 {

/// Runs every step of linears of the plan at each of its capacities, full, with every kernel that computes it: chains
/// fused or layer by layer, layers cut into tiles in several ways, and each by some algorithms of cuBLASLt where the
/// machine has it. Takes seconds, allocates the memory of a context and the weights once more, and waits; nothing else
/// should run on the device. A step is measured by itself, again and again, so that the cache has its data if they fit.
/// An algorithm that cuts sums into parts is taken only for sums that are stored as FP32, and only if equal rows gave
/// equal results. Throws as bind does.
WARPRANK_ENGINE_HIDDEN Tuning tune(const Plan& plan, const Weights& weights, const Tables& tables,
                                   const BindOptions& bind_options = {}, const TuneOptions& options = {});

}}  // namespace warprank::v0
