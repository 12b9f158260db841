// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The predicted time of a plan and its steps on a card.

#include <cstdint>
#include <vector>

#include "warprank/batch/layout.hpp"
#include "warprank/batch/most_blob_bytes.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/plan/cards.hpp"
#include "warprank/plan/cost.hpp"
#include "warprank/plan/latency.hpp"
#include "warprank/plan/steps.hpp"
#include "warprank/plan/storage.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// Launches, cost and time of a plan or a step on a card. The kernel that publishes scores counts only in the time of a
/// plan.
struct Prediction {
  int64_t launches = 0;
  Cost cost;
  double seconds = 0;
};

inline Prediction predict(const Graph& graph, const std::vector<int>& step, const std::vector<int64_t>& rows,
                          const Card& card) {
  Prediction p{launches_of(graph, step), cost_of(graph, step, rows), 0};
  p.seconds = predicted_seconds(p.cost, latency_of(graph, step), static_cast<double>(p.launches), card);
  return p;
}

inline Prediction predict(const Graph& graph, const Storage& storage, const std::vector<int64_t>& rows,
                          const Card& card) {
  Prediction total;
  for (const std::vector<int>& step : storage.steps) {
    const Prediction p = predict(graph, step, rows, card);
    total.cost += p.cost;
    total.seconds += p.seconds;
  }
  const Cost inputs = cost_of_inputs(graph, rows);
  total.cost += inputs;
  total.launches = launches_of(graph, storage.steps);
  const Latency publishing{1, 100};  // the scores, by a kernel behind all others
  const auto batch_bytes = static_cast<double>(most_blob_bytes(BatchLayout(graph), rows));
  total.seconds += predicted_seconds_outside(batch_bytes, card) + predicted_seconds({}, publishing, 1, card);
  return total;
}

}}}  // namespace warprank::v0::plan
