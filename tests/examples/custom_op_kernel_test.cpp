// SPDX-License-Identifier: Apache-2.0

/// The example of an op of one's own: the host engine gives its formula, and the CUDA engine what the host does.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "../../examples/custom_op/time_decay.cuh"
#include "support/kernel_testing.hpp"

namespace {

using namespace warprank;  // NOLINT: as its users

Plan decayed_plan() {
  return compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto worth =
        time_decay::make(b, b.dense("x", item, 3), b.dense("hours", item, 1), b.dense("half_life", user, 1), item, 3);
    return {{"worth", worth}, {"score", b.linear("head", worth, 1)}};  // which reads halves
  });
}

std::vector<float> scores_on(const Device& device) {
  const Plan plan = decayed_plan();
  const Weights weights =
      Weights::from_tensors({{"head.weight", make_tensor({1, 3}, std::vector<float>{0.5f, 1.0f, -1.0f})},
                             {"head.bias", make_tensor({1}, std::vector<float>{0.25f})}});
  BindOptions options;
  options.custom[time_decay::name] = time_decay::on_host;
  options.cuda_custom[time_decay::name] = time_decay::on_cuda;
  const Model model = Model::bind(plan, weights, Tables::load(plan, Weights::from_tensors({}), device), options);
  Batch batch = plan.batch();
  const auto add = [&](float half_life, const std::vector<float>& hours) {
    std::vector<float> x;
    for (size_t i = 0; i < 3 * hours.size(); ++i) x.push_back(static_cast<float>(i) + 1);
    batch.add_request()
        .dense(plan.dense("x"), x)
        .dense(plan.dense("hours"), hours)
        .dense(plan.dense("half_life"), {half_life});
  };
  add(2, {0, 2, 4});
  add(1, {});
  add(24, {12});
  Context context = model.context();
  const Scores scores = context.run(batch);
  std::vector<float> all;
  for (const char* output : {"worth", "score"})
    for (const int64_t request : {0, 1, 2})
      all.insert(all.end(), scores[output].of(request).begin(), scores[output].of(request).end());
  return all;
}

TEST(CustomOp, IsItsFormulaOnBothEngines) {
  std::vector<double> expected = {1, 2, 3, 4 / 2., 5 / 2., 6 / 2., 7 / 4., 8 / 4., 9 / 4.};
  for (const double x : {1, 2, 3}) expected.push_back(x / std::sqrt(2));
  for (size_t n = 0; n < 4; ++n)
    expected.push_back(0.5 * expected[3 * n] + expected[3 * n + 1] - expected[3 * n + 2] + 0.25);
  const std::vector<float> on_host = scores_on(host()), on_cuda = scores_on(cuda());
  ASSERT_EQ(on_host.size(), expected.size());
  ASSERT_EQ(on_cuda.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(on_host[i], expected[i], 1e-6 * (std::fabs(expected[i]) + 1)) << i;
    EXPECT_NEAR(on_cuda[i], expected[i], 2e-3 * (std::fabs(expected[i]) + 1)) << i << ", whose layer reads halves";
  }
}

}  // namespace
