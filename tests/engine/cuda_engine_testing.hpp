// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What tests of the CUDA engine have in common.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/kernel_testing.hpp"
#include "support/plain_request.hpp"
#include "support/random_data.hpp"
#include "support/random_model.hpp"
#include "warprank/cuda.hpp"

namespace warprank::cuda_engine_testing {

using kernel_testing::Config;
using test_support::PlainRequest;

/// Builds for the executor in which a reference model with large layers takes up to two minutes. What it does there,
/// the plain build does too, and smaller models do in every build.
inline constexpr bool is_sanitized =
    kernel_testing::build == kernel_testing::Build::race || kernel_testing::build == kernel_testing::Build::asan;

inline Plan plan_for(const Graph& graph, Passes passes, std::vector<Capacity> capacities = {{8, 64, {}}}) {
  CompileOptions options;
  options.passes = passes;
  options.capacities = std::move(capacities);
  return compile(graph, options);
}

inline std::vector<PlainRequest> random_requests(const Plan& plan, int count, uint32_t seed,
                                                 const test_support::RequestShape& shape = {}) {
  std::mt19937 random(seed);
  std::vector<PlainRequest> requests;
  for (int r = 0; r < count; ++r) requests.push_back(test_support::random_request(plan.layout(), shape, random));
  return requests;
}

inline Batch batch_of(const Model& model, const std::vector<PlainRequest>& requests) {
  Batch batch = model.batch();
  for (const PlainRequest& plain : requests) {
    const Request request = add_to(batch, plain);
    EXPECT_TRUE(request.status().ok()) << request.status().message;
  }
  return batch;
}

/// A random model with its tables on the device.
struct RandomSetup {
  explicit RandomSetup(uint32_t seed, std::vector<Capacity> capacities = {{8, 64, {}}}, Passes passes = {})
      : plan(plan_for(warprank::build(test_support::RandomModel(seed)), passes, std::move(capacities))),
        weights(test_support::random_weights(plan, seed)),
        tables(test_support::random_tables(plan, 50, seed)),
        model(Model::bind(plan, weights, Tables::load(plan, tables, cuda()))) {}

  Plan plan;
  Weights weights, tables;
  Model model;
};

/// All numbers of all outputs.
inline std::vector<float> all_scores(const Plan& plan, const Scores& scores) {
  std::vector<float> all;
  for (const OutputInfo& output : plan.graph().outputs) {
    const Matrix<const float> values = scores[output.name].all();
    for (int64_t r = 0; r < values.rows; ++r) all.insert(all.end(), values.row(r), values.row(r) + values.cols);
  }
  return all;
}
inline std::vector<float> scores_of_request(const Plan& plan, const Scores& scores, int64_t request) {
  std::vector<float> all;
  for (const OutputInfo& output : plan.graph().outputs) {
    const Span<const float> values = scores[output.name].of(request);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Whether both contexts give a batch the same bits.
inline bool same_scores(Context& a, Context& b, Batch& batch) {
  return same_bits(all_scores(a.plan(), a.run(batch)), all_scores(b.plan(), b.run(batch)));
}

class CudaEngine : public testing::Test {
 protected:
  CudaEngine() { kernel_testing::reset(Config{}); }
};

}  // namespace warprank::cuda_engine_testing
