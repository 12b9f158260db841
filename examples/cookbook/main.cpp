// SPDX-License-Identifier: Apache-2.0

// The recipes of docs/COOKBOOK.md, one function each, run one after the other.

#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../tutorial/model.hpp"
#include "warprank/graph_json.hpp"
#include "warprank/host.hpp"
#include "warprank/narrow_inputs.hpp"
#include "warprank/serving.hpp"

namespace cookbook {

using namespace warprank;

/// In the place of trained files.
Weights dense_weights(const Plan& plan) {
  std::map<std::string, StoredTensor> tensors;
  for (const Parameter& parameter : plan.parameters()) {
    std::vector<float> values(static_cast<size_t>(*num_elements(parameter.shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i % 13) - 0.05f;
    tensors.emplace(parameter.name, make_tensor(parameter.shape, values));
  }
  return Weights::from_tensors(std::move(tensors));
}

Weights table_rows() {
  std::vector<float> videos(100 * 16), regions(8 * 4, 0.5f);
  for (size_t i = 0; i < videos.size(); ++i) videos[i] = 0.01f * static_cast<float>(i % 37);
  return Weights::from_tensors({{"videos", make_tensor({100, 16}, videos)}, {"regions", make_tensor({8, 4}, regions)}});
}

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("expected that ") + what);
}

void fill(const Plan& plan, Request request) {
  request.ids(plan.ids("video_id"), {7, 42, 99}).ids(plan.ids("watched_id"), {1, 2});
  request.ids(plan.ids("region"), {3}).dense(plan.dense("hour"), {0.5f, 0.8f});
}

/// Sizes of batches that contexts are made for: a usual request, and eight of them merged.
Plan choose_capacities() {
  CompileOptions options;
  options.capacities = {{1, 100, {{"watched", 20}}}, {8, 800, {{"watched", 160}}}};
  return compile(tutorial::watch, options);
}

/// Names that differ from the file's, and matrices as Keras has them.
Weights open_with_other_names(const std::string& path) {
  WeightsOptions options;
  options.layout = Layout::keras;
  options.names = {{"tower.0.weight", "dense/kernel"}, {"tower.0.bias", "dense/bias"}};
  return Weights::open(path, options);
}

/// Rows of tables, while they are looked up.
void replace_a_row(const Plan& plan) {
  LoadOptions options;
  options.updatable = true;
  Tables tables = Tables::load(plan, table_rows(), host(), options);
  const Weights delta = Weights::from_tensors({{"videos.keys", make_tensor<int64_t>({1}, {42})},
                                               {"videos.rows", make_tensor({1, 16}, std::vector<float>(16, 0.25f))}});
  const UpdateReport report = tables.update(delta);
  expect(report.at("videos").updated == 1, "the row of video 42 is new");
}

/// All weights and tables, while requests are scored; refused where recorded requests change by more than 0.2.
void exchange_the_model(const Plan& plan, const std::vector<std::vector<std::byte>>& recorded) {
  const auto pages = std::make_shared<PagePool>();
  Tables tables = Tables::load(plan, table_rows(), host(), {.pages = pages});
  pages->double_up();  // else the first exchange touches new memory yet
  Model model = Model::bind(plan, dense_weights(plan), tables);
  ServedModel served(std::move(model), std::move(tables), {.contexts = 2});
  const SwapReport report = served.swap({.dense = dense_weights(plan), .tables = table_rows()}, SwapMode::full,
                                        {.recorded = recorded, .most_difference = 0.2});
  expect(report.version == 2, "the second model serves");
}

/// Ids that no table has, which are the usual reason why scores are not what they were in training.
void count_unknown_ids(const Model& model, const Plan& plan) {
  Context context = model.context();
  Batch batch = plan.batch();
  Request request = batch.add_request();
  request.ids(plan.ids("video_id"), {7, 100000}).ids(plan.ids("region"), {3}).dense(plan.dense("hour"), {0.0f, 1.0f});
  context.run(batch);
  for (const FeatureCounters& feature : context.counters())
    if (feature.counters.out_of_range > 0)
      std::printf("%s: %lld ids that are no row\n", feature.feature.c_str(),
                  static_cast<long long>(feature.counters.out_of_range));
}

/// Any value on the way to the scores.
void look_inside(const Model& model, Batch& batch) {
  ContextOptions options;
  options.keep_intermediates = true;
  Context context = model.context(options);
  context.run(batch);
  const Matrix<const float> taste = context.tap("embed_bag.watched_id");
  std::printf("the viewer's taste begins with %.3f, %.3f\n", static_cast<double>(taste.row(0)[0]),
              static_cast<double>(taste.row(0)[1]));
}

/// Where the time of a batch goes.
void profile(const Model& model, Batch& batch) {
  Context context = model.context();
  std::fputs(context.profile(batch).to_string().c_str(), stdout);
}

/// The same model with inputs in half the bytes wherever that changes no score on a GPU.
Graph send_fewer_bytes(const Plan& plan) { return narrow_inputs(plan); }

/// A function of your own: a calibration behind the last layer.
Outputs calibrated(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto ctr = b.sigmoid(b.linear("ctr", b.dense("x", item, 2), 1));
  return {{"ctr", b.custom("calibrate", {ctr}, item, 1)}};
}

Model bind_calibrated(const Plan& plan, const Weights& weights, const Tables& tables) {
  BindOptions options;
  options.custom["calibrate"] = [](const CustomCall& call) {
    for (int64_t r = 0; r < call.output.rows; ++r)
      call.output.row(r)[0] = std::pow(call.inputs[0].values.row(r)[0], 1.1f);
  };
  return Model::bind(plan, weights, tables, options);
}

void run() {
  const Plan plan = choose_capacities();
  const Tables tables = Tables::load(plan, table_rows(), host());
  const Model model = Model::bind(plan, dense_weights(plan), tables);
  Batch batch = plan.batch();
  fill(plan, batch.add_request());
  Context context = model.context();
  expect(context.run(batch)["watch"].of(0).size() == 3, "three videos have scores");  // which packs the requests

  replace_a_row(plan);
  const BlobView blob = batch.blob(0);
  exchange_the_model(plan, {{blob.data(), blob.data() + blob.bytes()}});
  count_unknown_ids(model, plan);
  look_inside(model, batch);
  profile(model, batch);
  std::printf("%zu bytes of JSON\n", to_json(send_fewer_bytes(plan)).size());

  const Plan other = compile(calibrated);
  const Tables none = Tables::load(other, Weights::from_tensors({}), host());
  Context other_context = bind_calibrated(other, dense_weights(other), none).context();
  Batch values = other.batch();
  Request two = values.add_request();
  two.dense(other.dense("x"), {1, 2, 3, 4});
  expect(other_context.run(values)["ctr"].of(two).size() == 2, "two items have scores");
}

}  // namespace cookbook

int main() {
  try {
    cookbook::run();
    std::puts("all recipes work");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
