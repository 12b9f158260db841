// SPDX-License-Identifier: Apache-2.0

/// The smallest whole program: a model with two towers, weights made up in memory, one request, its scores.

#include <cstdio>
#include <vector>

#include "warprank/host.hpp"

using namespace warprank;

Outputs clicks(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user, keep_last(100));
  auto films = b.table("film", {.dim = 4});
  auto film = b.embed(b.ids("film_id", item), films);
  auto seen = b.embed(b.ids("seen_film_id", history), films);
  auto interest = b.din_attention("attention", film, seen, {.hidden = {8}, .activation = relu});
  auto age = b.dense("age", user, 1);
  auto x = b.concat({b.expand(age, item), interest, film});
  return {{"ctr", b.sigmoid(b.mlp("tower", x, {16, 1}, relu))}};
}

/// Zeros but for a little variety, in the place of a trained file: Weights::open("dense.safetensors").
Weights made_up_weights(const Plan& plan) {
  std::map<std::string, StoredTensor> tensors;
  for (const Parameter& parameter : plan.parameters()) {
    std::vector<float> values(static_cast<size_t>(*num_elements(parameter.shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.1f * static_cast<float>(i % 7) - 0.2f;
    tensors.emplace(parameter.name, make_tensor(parameter.shape, values));
  }
  return Weights::from_tensors(std::move(tensors));
}

Weights made_up_tables() {
  std::vector<float> rows(1000 * 4);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = 0.01f * static_cast<float>(i % 101);
  return Weights::from_tensors({{"film", make_tensor({1000, 4}, rows)}});
}

int main() {
  // Once: plan, load, bind, and resolve the names of the inputs.
  Plan plan = compile(clicks);
  Tables tables = Tables::load(plan, made_up_tables(), host());
  Model model = Model::bind(plan, made_up_weights(plan), tables);
  IdsSlot film_id = plan.ids("film_id"), seen_film_id = plan.ids("seen_film_id");
  DenseSlot age = plan.dense("age");

  // In each serving thread: a context and a batch, reused.
  Context context = model.context();
  Batch batch = plan.batch();

  // For each batch: any number of requests, of any sizes.
  batch.clear();
  Request request = batch.add_request();
  request.ids(film_id, {17, 4, 256, 3}).ids(seen_film_id, {11, 17, 980}).dense(age, {0.35f});
  Scores scores = context.run(batch);
  for (float score : scores["ctr"].of(request)) std::printf("%.4f\n", static_cast<double>(score));
}
