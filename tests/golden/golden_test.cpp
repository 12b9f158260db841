// SPDX-License-Identifier: Apache-2.0

/// Every op and whole models against PyTorch: tests/golden/*.safetensors, written by tools/golden/make.py, hold
/// requests, weights, and what PyTorch makes of them in float64. The interpreter must agree with PyTorch but for the
/// rounding of doubles, and the host with the interpreter within the bound that it has for each number.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "golden/cases.hpp"
#include "reference/interpreter.hpp"
#include "support/expect_within.hpp"
#include "support/hashed_values.hpp"
#include "support/host_op_testing.hpp"
#include "support/plain_request.hpp"
#include "warprank/host.hpp"
#include "warprank/ops/host/simd.hpp"

// After simd.hpp, which chooses the targets.

namespace warprank { namespace {

using golden::Case;
using golden::GoldenFile;

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
    Context context = Model::bind(plan, weights, tables).context();
    const Scores scores = context.run(batch);
    for (int r = 0; r < file.num_requests(); ++r)
      for (const OutputInfo& output : graph.outputs) {
        SCOPED_TRACE("request " + std::to_string(r));
        test_support::BoundCheck check;
        check.expect_within(scores[output.name].of(r), interpreted[static_cast<size_t>(r)][output.name], output.name);
        EXPECT_EQ(check.num_vague(), 0) << output.name;
      }
  };
  test_support::for_each_target([&] {
    for (const Plan& plan : plans) {
      SCOPED_TRACE(&plan == &plans[0] ? "planned" : "unplanned");
      expect_interpreted(plan);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(golden::cases),
                         [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

template <class... Ops>
std::set<std::string> kinds_of_list(const std::variant<Ops...>*) {
  return {Ops::kind...};
}

// A custom function is the user's: PyTorch has none of it.
TEST(GoldenCases, HaveEveryOpOfTheLanguage) {
  std::set<std::string> missing = kinds_of_list(static_cast<const Op*>(nullptr));
  missing.erase(CustomOp::kind);
  for (const Case& c : golden::cases)
    for (const Node& node : build(c.model).nodes) missing.erase(kind_of(node.op));
  EXPECT_EQ(missing, std::set<std::string>()) << "add them to tools/golden/ops.py and tests/golden/op_models.hpp";
}

}}  // namespace warprank
