// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <warprank/host.hpp>
#include <warprank/model.hpp>

#include <map>
#include <string>
#include <vector>

struct TinyModel {
  warprank::Tables tables;
  warprank::Model model;
};

/// A model from description to scores, in C++17. Each unit that includes this compiles a copy of its own.
static TinyModel tiny_model(warprank::Device device = warprank::host()) {
  using namespace warprank;
  const auto describe = [](Builder& b) -> Outputs {
    const auto user = b.axis("user");
    const auto item = b.axis("item", user);
    TableOptions two_columns;
    two_columns.dim = 2;
    const auto films = b.embed(b.ids("film", item), b.table("film", two_columns));
    const auto context = b.expand(b.dense("context", user, 1), item);
    return {{"score", b.sigmoid(b.linear("top", b.concat({context, films}), 1))}};
  };
  const Plan plan = compile(describe);

  const auto table = make_tensor<float>({3, 2}, {0, 0, 1, 2, 3, 4});
  const Tables tables = Tables::load(plan, Weights::from_tensors({{"film", table}}), device);
  const Weights weights = Weights::from_tensors(
      {{"top.weight", make_tensor<float>({1, 3}, {1, 0.5f, -0.25f})}, {"top.bias", make_tensor<float>({1}, {0.125f})}});
  return {tables, Model::bind(plan, weights, tables)};
}

/// Three films of one user.
static warprank::Request fill_tiny_request(const warprank::Plan& plan, warprank::Request request) {
  return request.dense(plan.dense("context"), {0.5f}).ids(plan.ids("film"), {2, 0, 1});
}

static std::vector<float> score_with_tiny_model(warprank::Device device = warprank::host()) {
  const warprank::Model model = tiny_model(device).model;
  warprank::Context context = model.context();
  warprank::Batch batch = model.plan().batch();
  const warprank::Request request = fill_tiny_request(model.plan(), batch.add_request());
  const warprank::Span<const float> scores = context.run(batch)["score"].of(request);
  return {scores.begin(), scores.end()};
}

/// What they must be: sigmoid(0.5 + 0.5 film[0] - 0.25 film[1] + 0.125) for films 2, 0 and 1.
[[maybe_unused]] static bool are_right(const std::vector<float>& scores) {
  const float expected[] = {0.7549149869f, 0.6513548646f, 0.6513548646f};
  if (scores.size() != 3) return false;
  for (size_t i = 0; i < 3; ++i)
    if (!(scores[i] > expected[i] - 1e-6f && scores[i] < expected[i] + 1e-6f)) return false;
  return true;
}
