// SPDX-License-Identifier: Apache-2.0

/// Every op and whole models against PyTorch: tests/golden/*.safetensors, written by tools/golden/make.py, hold
/// requests, weights, and what PyTorch makes of them in float64. The interpreter must agree with PyTorch but for the
/// rounding of doubles, and the host with the interpreter within the bound that it has for each number.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/movielens/model.hpp"
#include "dcn_v2.hpp"
#include "dlrm.hpp"
#include "golden/op_models.hpp"
#include "meituan_like.hpp"
#include "reference/interpreter.hpp"
#include "support/expect_within.hpp"
#include "support/hashed_values.hpp"
#include "support/plain_request.hpp"
#include "warprank/host.hpp"
#include "warprank/ops/host/simd.hpp"
#include "wide_deep.hpp"

// After simd.hpp, which chooses the targets.
#include "each_target.hpp"

namespace warprank {
namespace {

using test_support::PlainRequest;

struct Case {
  const char* name;
  Outputs (*model)(Builder&);
  Layout layout = Layout::pytorch;
  bool hashed_weights = false;  ///< the file has requests alone
};
const Case cases[] = {{"linear", golden::linear},
                      {"mlp", golden::mlp},
                      {"norms", golden::norms},
                      {"elementwise", golden::elementwise},
                      {"reductions", golden::reductions},
                      {"embed", golden::embed},
                      {"embed_bag", golden::embed_bag},
                      {"structure", golden::structure},
                      {"din_attention", golden::din_attention},
                      {"target_attention", golden::target_attention},
                      {"self_attention", golden::self_attention},
                      {"interactions", golden::interactions},
                      {"experts", golden::experts},
                      {"keras", golden::keras, Layout::keras},
                      {"wide_deep", models::wide_deep, Layout::pytorch, true},
                      {"dlrm", models::dlrm, Layout::pytorch, true},
                      {"dcn_v2", models::dcn_v2, Layout::pytorch, true},
                      {"din_mmoe", movielens::din_mmoe, Layout::pytorch, true},
                      {"meituan_like", models::meituan_like, Layout::pytorch, true}};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

template <class Value>
std::vector<Value> values_of(const TensorView& tensor) {
  std::vector<Value> values;
  for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(load_element<Value>(tensor.data, i));
  return values;
}

/// A golden file, taken apart by the beginnings of its tensors' names.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name)
      : file_(std::string(WARPRANK_TEST_DATA) + "/golden/" + name + ".safetensors"),
        num_requests_(std::stoi(file_.metadata().at("requests"))) {}

  int num_requests() const { return num_requests_; }

  /// The tensors whose names begin with `prefix`, without it.
  std::map<std::string, TensorView> under(const std::string& prefix) const {
    std::map<std::string, TensorView> found;
    for (const auto& [name, tensor] : file_.tensors())
      if (name.rfind(prefix, 0) == 0) found.emplace(name.substr(prefix.size()), tensor);
    return found;
  }
  Weights weights(const std::string& prefix, Layout layout) const {
    std::map<std::string, StoredTensor> tensors;
    for (const auto& [name, view] : under(prefix))
      tensors.emplace(name, StoredTensor{view.dtype.value(), view.shape, {view.data, view.data + view.bytes}});
    return Weights::from_tensors(std::move(tensors), {.layout = layout});
  }
  PlainRequest request(int r) const {
    const std::string prefix = "request/" + std::to_string(r) + "/";
    PlainRequest request;
    for (const auto& [name, tensor] : under(prefix + "lengths/")) request.lengths[name] = values_of<int64_t>(tensor);
    for (const auto& [name, tensor] : under(prefix + "ids/")) request.ids[name] = values_of<int64_t>(tensor);
    for (const auto& [name, tensor] : under(prefix + "dense/")) request.dense[name] = values_of<float>(tensor);
    return request;
  }
  std::vector<double> output(int r, const std::string& name) const {
    return values_of<double>(file_.tensors().at("request/" + std::to_string(r) + "/output/" + name));
  }

 private:
  SafetensorsFile file_;
  int num_requests_;
};

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, HostAndInterpreterGiveWhatPyTorchGives) {
  const Case& c = GetParam();
  const GoldenFile file(c.name);
  const Graph graph = build(c.model);
  CompileOptions unplanned;
  unplanned.passes = Passes::none();
  const Plan plans[] = {compile(graph), compile(graph, unplanned)};

  constexpr int64_t hashed_rows = 8;
  const Weights weights = c.hashed_weights ? test_support::hashed_weights(plans[0]) : file.weights("weight/", c.layout);
  const Weights table_weights =
      c.hashed_weights ? test_support::hashed_tables(graph, hashed_rows) : file.weights("table/", Layout::pytorch);
  const Tables tables = Tables::load(plans[0], table_weights, host());
  reference::Interpreter interpreter(
      graph, reference::plain_weights(plans[0], weights), reference::plain_tables(graph, table_weights),
      c.hashed_weights ? reference::Rounding::independent : reference::Rounding::worst_case);

  std::vector<std::map<std::string, std::vector<reference::Row>>> interpreted;
  for (int r = 0; r < file.num_requests(); ++r) {
    SCOPED_TRACE("request " + std::to_string(r));
    interpreted.push_back(interpreter.run(file.request(r)));
    EXPECT_EQ(file.under("request/" + std::to_string(r) + "/output/").size(), graph.outputs.size());
    for (const OutputInfo& output : graph.outputs)
      test_support::expect_same(file.output(r, output.name), interpreted.back()[output.name], output.name);
  }
  const auto expect_interpreted = [&](const Plan& plan) {
    Batch batch = plan.batch();
    for (int r = 0; r < file.num_requests(); ++r) {
      const Request request = add_to(batch, file.request(r));
      ASSERT_TRUE(request.status().ok()) << request.status().message;
    }
    Context context = bind(plan, weights, tables).context();
    const Scores scores = context.run(batch);
    for (int r = 0; r < file.num_requests(); ++r)
      for (const OutputInfo& output : graph.outputs) {
        SCOPED_TRACE("request " + std::to_string(r));
        test_support::BoundCheck check;
        check.expect_within(scores[output.name].of(r), interpreted[static_cast<size_t>(r)][output.name], output.name);
        EXPECT_EQ(check.num_vague(), 0) << output.name;
      }
  };
  test::for_each_target([&] {
    for (const Plan& plan : plans) {
      SCOPED_TRACE(&plan == &plans[0] ? "planned" : "unplanned");
      expect_interpreted(plan);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(cases),
                         [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace warprank
