// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: weights in INT8.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/engine/servable.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches
using test_support::message_of;
using testing::HasSubstr;
using testing::Not;

/// Layers side by side, some of few outputs; a cross layer; experts by scenes; chains.
Outputs model_of_linears(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto x = b.dense("x", item, 40), u = b.dense("u", user, 8);
  const auto wide = b.linear("wide", x, 24, {.activation = relu}), head = b.linear("head", x, 1);
  const auto experts = b.experts("experts", b.linear("narrow", x, 16), 2, {24, 16});
  const auto crossed = b.cross("cross", b.concat({wide, b.expand(u, item)}));
  const auto scenes = b.scene_experts("by_scene", x, b.ids("scene", item), 3, {24, 8}, relu);
  return {{"head", head},
          {"experts", b.mix(experts, b.gate("gate", x, 2))},
          {"scenes", scenes},
          {"crossed", crossed},
          {"score", b.mlp("tower", crossed, {16, 1}, relu)}};
}

/// Multiples of 1 / 512, 127 of them in every eighth column, so that INT8 loses nothing and scales are powers of two,
/// also of a layer that a late broadcast divides.
Weights exact_weights(const Plan& plan) {
  std::mt19937 random(7);
  std::map<std::string, StoredTensor> tensors;
  for (const Parameter& parameter : plan.parameters()) {
    std::vector<float> values(static_cast<size_t>(num_elements(parameter.shape).value()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = (i % 8 == 0 ? 127.0f : static_cast<float>(random() % 255) - 127) / 512;
    tensors.emplace(parameter.name, make_tensor(parameter.shape, values));
  }
  return Weights::from_tensors(std::move(tensors));
}

class CudaEngineInt8 : public CudaEngine {
 protected:
  Model bound(const std::vector<std::string>& names) const { return bound(names, weights_); }
  Model bound(const std::vector<std::string>& names, const Weights& weights) const {
    BindOptions options;
    options.cuda_int8 = names;
    return Model::bind(plan_, weights, tables_, options);
  }
  std::vector<float> scores_of(const Model& model) const {
    Context context = model.context();
    Batch batch = batch_of(model, random_requests(plan_, 3, 5));
    return all_scores(plan_, context.run(batch));
  }

  const Plan plan_ = plan_for(warprank::build(model_of_linears), {}, {{2, 8, {}}, {4, 32, {}}});
  const Weights weights_ = exact_weights(plan_);
  const Tables tables_ = Tables::load(plan_, Weights::from_tensors({}), cuda());
};

TEST_F(CudaEngineInt8, HasTheBitsOfFp16WhereWeightsAreExact) {
  const std::vector<float> expected = scores_of(bound({}));
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"*"}, {"wide"}, {"narrow", "cross.0"}, {"by_scene.0"}})
    EXPECT_TRUE(same_bits(scores_of(bound(names)), expected)) << names[0];
}

TEST_F(CudaEngineInt8, RoundsWeights) {
  const Weights weights = test_support::random_weights(plan_, 3);
  const std::vector<float> exact = scores_of(bound({}, weights)), rounded = scores_of(bound({"*"}, weights));
  double most = 0, furthest = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    most = std::max<double>(most, std::abs(exact[i]));
    furthest = std::max<double>(furthest, std::abs(exact[i] - rounded[i]));
  }
  EXPECT_GT(furthest, 1e-4 * most);
  EXPECT_LT(furthest, 0.03 * most);
}

TEST_F(CudaEngineInt8, TakesLessMemory) {
  const auto bytes = [&](const Model& model) {
    int64_t all = 0;
    for (const auto& [what, of_it] : model.memory()) all += what == "weights" ? of_it : 0;
    return all;
  };
  EXPECT_LT(bytes(bound({"*"})), 0.75 * static_cast<double>(bytes(bound({}))));
}

TEST_F(CudaEngineInt8, SaysWhichWeightsItIs) {
  const auto described = [&](const std::vector<std::string>& names) { return bound(names).context().describe(); };
  EXPECT_THAT(described({}), Not(HasSubstr("INT8")));
  EXPECT_THAT(described({"wide"}), HasSubstr("weights in INT8: wide\n"));
  EXPECT_THAT(described({"head"}),
              HasSubstr("weights in INT8: none\nnot of linears of up to 8 outputs or in chains: head\n"));
  EXPECT_THAT(described({"*"}), HasSubstr("weights in INT8: by_scene.0, cross.0, narrow, wide\n"
                                          "not of linears of up to 8 outputs or in chains: by_scene.1, experts.0, "
                                          "experts.1, gate, head, tower.0, tower.1\n"));
}

TEST_F(CudaEngineInt8, RefusesNamesThatNoLinearHas) {
  EXPECT_EQ(message_of([&] {
              bound({"wid", "*", "nothing_like_it"});
            }),
            "2 problems:\n  BindOptions::cuda_int8: expected names of linears, or *, got an unknown name; did you mean "
            "'wide'?\n  BindOptions::cuda_int8: expected names of linears, or *, got an unknown name");
}

/// A context takes another model of the same kind, and none whose weights lie otherwise.
TEST_F(CudaEngineInt8, IsExchangedForItsOwnKind) {
  const Weights others = test_support::random_weights(plan_, 4);
  Context context = bound({"*"}).context();
  context.rebind(bound({"*"}, others));
  Batch batch = batch_of(bound({}), random_requests(plan_, 3, 5));
  EXPECT_TRUE(same_bits(all_scores(plan_, context.run(batch)), scores_of(bound({"*"}, others))));
  EXPECT_THAT(message_of([&] { context.rebind(bound({}, others)); }),
              HasSubstr("a model, bound with the same tuning, linear_kernel and cuda_int8, whose"));
}

TEST_F(CudaEngineInt8, IsComputedByTilesWhateverIsChosen) {
  const Weights weights = test_support::random_weights(plan_, 3);
  BindOptions options;
  options.cuda_int8 = {"*"};
  options.linear_kernel = LinearKernel::cublaslt;
  Context context = Model::bind(plan_, weights, tables_, options).context(), usual = bound({"*"}, weights).context();
  Batch batch = batch_of(bound({}), random_requests(plan_, 3, 5));
  const Scores scores = context.run(batch), expected = usual.run(batch);
  for (const char* output : {"head", "scenes", "crossed"})  // of no chain
    for (int64_t request = 0; request < batch.size(); ++request) {
      const Span<const float> own = scores[output].of(request), of_usual = expected[output].of(request);
      EXPECT_EQ(std::vector<float>(own.begin(), own.end()), std::vector<float>(of_usual.begin(), of_usual.end()))
          << output;
    }
}

/// Each side of a divided plan has linears that the other has not.
TEST_F(CudaEngineInt8, TakesNamesOfBothSidesOfADividedPlan) {
  const auto model = [](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto u = b.linear("of_user", b.dense("u", user, 16), 24, {.activation = relu});
    const auto x = b.linear("of_item", b.dense("x", item, 40), 24, {.activation = relu});
    return {{"y", b.linear("both", b.fm({b.expand(u, item), x}, 8), 16)}};
  };
  const Plan plan = compile(model);
  const auto requests = std::make_shared<const DividedRequests>(divide(plan, "item", StateType::as_on_a_gpu));
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  const auto bound = [&](const std::vector<std::string>& names) {
    BindOptions options;
    options.cuda_int8 = names;
    return Servable::bind(requests, exact_weights(plan), tables, options);
  };
  const Servable servable = bound({"of_item", "of_user"});
  EXPECT_THAT(servable.model().context().describe(), HasSubstr("weights in INT8: of_item\n"));
  EXPECT_THAT(servable.users()->context().describe(), HasSubstr("weights in INT8: of_user\n"));
  EXPECT_THAT(bound({"of_item"}).users()->context().describe(), Not(HasSubstr("INT8")));
  EXPECT_THAT(message_of([&] { bound({"of_nobody"}); }),
              HasSubstr("BindOptions::cuda_int8: expected names of linears, or *, got an unknown name"));
}

}}  // namespace warprank
