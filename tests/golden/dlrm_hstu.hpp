// SPDX-License-Identifier: Apache-2.0
#pragma once

/// DLRM-HSTU with small sizes, and what the public PyTorch code makes of it (tools/golden/dlrm_hstu.py). That code
/// rounds its layer norms to FP32, and a bound that is carried through a dozen norms says nothing, so scores are
/// compared.

#include <cmath>
#include <cstddef>
#include <vector>

#include "../../examples/models/dlrm_hstu.hpp"
#include "golden/cases.hpp"
#include "support/plain_request.hpp"
#include "warprank/engine/model.hpp"

namespace warprank::golden {

inline Outputs dlrm_hstu(Builder& b) {
  return models::dlrm_hstu_of(
      b, {.item_dim = 6, .dim = 8, .heads = 2, .head_dim = 3, .layers = 2, .hidden = 5, .max_length = 16, .tasks = 2});
}

/// The largest difference of a probability, NaN if a score is NaN; `device`: host() or cuda().
inline double largest_difference_from_public_code(const Plan& plan, Device device) {
  const GoldenFile file("dlrm_hstu");
  const Model model = Model::bind(plan, file.weights("weight/", Layout::pytorch),
                                  Tables::load(plan, file.weights("table/", Layout::pytorch), device));
  Batch batch = plan.batch();
  for (int r = 0; r < file.num_requests(); ++r) test_support::add_to(batch, file.request(r)).finish();
  Context context = model.context();
  const Scores scores = context.run(batch);
  double largest = 0;
  for (int r = 0; r < file.num_requests(); ++r) {
    const std::vector<double> expected = file.output(r, "tasks");
    const auto given = scores["tasks"].of(r);
    if (given.size() != static_cast<int64_t>(expected.size())) return 1;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::fabs(given[static_cast<int64_t>(i)] - expected[i]);
      if (!(difference <= largest)) largest = difference;  // also NaN, which stays
      if (std::isnan(largest)) return largest;
    }
  }
  return largest;
}

}  // namespace warprank::golden
