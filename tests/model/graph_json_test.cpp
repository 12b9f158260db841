// SPDX-License-Identifier: Apache-2.0

#include "warprank/graph_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "support/folder.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"

namespace warprank {
namespace {

using test_support::Folder;
using test_support::message_of;
using testing::HasSubstr;
using testing::Not;

Graph small_graph() {
  return build([](Builder& b) -> Outputs {
    const auto x = b.dense("x", b.axis("user"), 4);
    return {{"out", b.mlp("tower", x, {3, 1}, dice) * 0.1f}};
  });
}

TEST(GraphJson, RoundTripIsExact) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const std::string text = to_json(build(test_support::RandomModel(seed)));
    EXPECT_EQ(to_json(graph_from_json(text)), text) << "seed " << seed;
  }
}

TEST(GraphJson, KeepsEveryBitOfAFloat) {
  Graph graph = small_graph();
  for (const float value : {0.1f, 1e-45f, -0.0f, std::numeric_limits<float>::max(), INFINITY, -INFINITY, NAN}) {
    auto& program = std::get<ElementwiseOp>(graph.nodes.back().op).program;
    program.constants = {value};
    const Graph read = graph_from_json(to_json(graph));
    EXPECT_TRUE(std::get<ElementwiseOp>(read.nodes.back().op).program == program) << value;
  }
}

TEST(GraphJson, SaysHowRequestsHoldInputsWhereItIsNotAsEver) {
  Graph graph = small_graph();
  const std::string wide = to_json(graph);
  EXPECT_THAT(wide, Not(HasSubstr("wire")));
  EXPECT_THAT(wide, Not(HasSubstr("out_of_range")));
  EXPECT_EQ(graph_from_json(wide).dense[0].wire, DenseWire::f32);
  graph.dense[0].wire = DenseWire::bf16;
  graph.dense[0].out_of_range = OutOfRange::saturate;
  graph.ids.push_back({"id", 0, {}, {}, IdsWire::i32, OutOfRange::refuse});
  const std::string narrow = to_json(graph);
  EXPECT_THAT(narrow, HasSubstr("\"wire\": \"bf16\",\n   \"out_of_range\": \"saturate\""));
  const Graph read = graph_from_json(narrow);
  EXPECT_EQ(read.dense, graph.dense);
  EXPECT_EQ(read.ids, graph.ids);
  EXPECT_THAT(message_of([&] { graph_from_json(std::string(narrow).replace(narrow.find("bf16"), 4, "f64")); }),
              HasSubstr(".dense[0].wire: expected one of f32, f16, bf16, got \"f64\""));
}

TEST(GraphJson, RefusesNamesThatAreNotUtf8) {
  Graph graph = small_graph();
  graph.axes[0].name = "us\xe9r";
  EXPECT_THROW(to_json(graph), invalid_argument);
}

TEST(GraphJson, SavesToAndLoadsFromAFile) {
  const std::string path = testing::TempDir() + "/graph.json";
  save_graph(small_graph(), path);
  EXPECT_EQ(to_json(load_graph(path)), to_json(small_graph()));
  std::remove(path.c_str());
  EXPECT_THROW(save_graph(small_graph(), "/nonexistent/graph.json"), invalid_argument);
}

TEST(GraphJson, ReplacesAFileUnderThoseWhoReadIt) {
  const Folder folder("graph_json");
  const std::string path = folder.path() + "graph.json";
  save_graph(small_graph(), path);
  std::ifstream old(path);
  save_graph(Graph{}, path);
  const std::string text{std::istreambuf_iterator<char>(old), {}};
  EXPECT_EQ(text, to_json(small_graph()));
}

TEST(GraphJson, SaysWhyAFileCannotBeRead) {
  const Folder folder("graph_json");
  const std::string path = folder.path() + "graph.json";
  const std::string expected = ": expected a readable file, got ";
  EXPECT_EQ(message_of([&] { load_graph(path); }), path + expected + "No such file or directory");
  EXPECT_EQ(message_of([&] { load_graph(folder.path()); }), folder.path() + expected + "Is a directory");
  std::ofstream(path).close();
  EXPECT_THAT(message_of([&] { load_graph(path); }), HasSubstr(path + ": expected JSON in UTF-8"));
}

/// The message for `text` with the first `from` replaced by `to`.
std::string message_for(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) {
    ADD_FAILURE() << from << " is not in the JSON";
    return "";
  }
  text.replace(at, from.size(), to);
  try {
    graph_from_json(text, "model.json");
  } catch (const invalid_argument& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << to;
  return "";
}

TEST(GraphJson, SaysWhereAHostileFileIsWrong) {
  const std::string text = to_json(small_graph());
  const auto expect = [&](const std::string& from, const std::string& to, const std::string& message) {
    SCOPED_TRACE(from + " -> " + to);
    EXPECT_THAT(message_for(text, from, to), HasSubstr(message));
  };
  expect("{", "[", "JSON");
  expect("warprank.graph", "other.graph", "expected format \"warprank.graph\"");
  expect("\"version\": 1", "\"version\": 2", "expected version 1, got 2");
  expect("\"version\": 1", "\"version\": 1e300", "64-bit integer");
  expect("\"version\": 1", "\"version\": 1, \"more\": 0", "no other members, got \"more\"");
  expect("\"version\": 1", "\"version\": 1, \"version\": 1",
         "model.json: expected every member once, got \"version\" twice");
  expect("\"width\": 4", "\"width\": 9, \"width\": 4", "model.json.dense[0]: expected every member once");
  expect("\"groups\": 1", "\"groups\": 9, \"groups\": 1", "model.json.nodes[1].settings: expected every member once");
  expect("\"axes\"", "\"axis\"", "a member \"axes\"");
  expect("\"parent\": -1", "\"parent\": 0", "no parent");
  expect("\"keep_last\": 0", "\"keep_last\": -1", "keep_last of 0 or more");
  expect("\"width\": 4", "\"width\": \"4\"", "model.json.dense[0].width: expected a 64-bit integer");
  expect("\"width\": 4", "\"width\": 5", "axis 0, width 5");
  expect("\"op\": \"linear\"", "\"op\": \"convolution\"", "an op of the model language, got \"convolution\"");
  expect("\"input\": 0", "\"input\": 7", "a dense input of the graph");
  expect("\"kind\": \"identity\"", "\"kind\": \"magic\"", "one of identity, relu");
  expect("\"groups\": 1", "\"groups\": 1000000000000", "1 or more groups");
  expect("\"groups\": 1", "\"groups\": 0", "1 or more groups");
  expect("\"inputs\": [\n    0", "\"inputs\": [\n    9", "inputs that come before the node");
  expect("\"inputs\": [\n    0", "\"inputs\": [\n    -2", "inputs that come before the node");
  expect("\"scene\": -1", "\"scene\": 3", "an ids input of the graph");
  expect("\"row_bias\": false", "\"row_bias\": true", "which planning adds");
  expect("\"columns\": []", "\"columns\": [{\"begin\": 0, \"end\": 9}]", "which planning adds");
  expect("\"outputs\": [\n  {\n   \"name\": \"out\",\n   \"node\": ",
         "\"outputs\": [\n  {\n   \"name\": \"out\",\n   \"node\": 9", "a node of the graph");
}

TEST(GraphJson, RefusesSettingsThatMakeNaNOfNumbers) {
  const std::string text = to_json(build([](Builder& b) -> Outputs {
    const auto x = b.dense("x", b.axis("event", b.axis("user")), 4);
    const auto y = b.self_attention("a", x, {.eps = 0.25f});
    return {{"y", b.activate(b.batch_norm("n", y, {.eps = 0.125f}), leaky_relu(0.5f))}};
  }));
  const auto expect = [&](const std::string& from, const std::string& to, const std::string& message) {
    SCOPED_TRACE(from + " -> " + to);
    EXPECT_THAT(message_for(text, from, to), HasSubstr(message));
  };
  expect("\"eps\": 0.25", "\"eps\": -1", "layer_norm 'a.norm1': expected a finite eps of 0 or more, got -1.000000");
  expect("\"eps\": 0.25", "\"eps\": \"nan\"", "layer_norm 'a.norm1': expected a finite eps of 0 or more, got nan");
  expect("\"eps\": 0.125", "\"eps\": \"inf\"", "elementwise 'n': expected a finite eps of 0 or more, got inf");
  expect("\"scale\": 0.0", "\"scale\": \"nan\"", "attention 'a': expected a finite scale, got nan");
  expect("\"scale\": 0.0", "\"scale\": 1e300", "attention 'a': expected a finite scale, got inf");
  expect("\"alpha\": 0.0", "\"alpha\": \"nan\"", "linear 'a.q': expected a finite alpha, got nan");
  expect("\"alpha\": 0.5", "\"alpha\": \"-inf\"", "elementwise 'leaky_relu': expected a finite alpha, got -inf");
}

TEST(GraphJson, RefusesDotsWithoutFieldsOnBothSides) {
  const std::string text = to_json(build([](Builder& b) -> Outputs {
    const auto x = b.dense("x", b.axis("user"), 4);
    return {{"y", b.dot_between({x}, {x}, 2)}};
  }));
  for (const char* number : {"-1", "4", "5"}) {
    EXPECT_THAT(
        message_for(text, "\"num_left\": 2", std::string("\"num_left\": ") + number),
        HasSubstr("dot 'dot': expected fields on both sides, got " + std::string(number) + " of 4 on the left"));
  }
}

TEST(GraphJson, RefusesMixesThatPlanningMakes) {
  const std::string text = to_json(build([](Builder& b) -> Outputs {
    const auto x = b.dense("x", b.axis("user"), 4);
    return {{"y", b.mix(x, b.gate("g", x, 2))}};
  }));
  for (const char* name : {"multiply", "residual"}) {
    const std::string member = "\"" + std::string(name) + "\": ", without = member + "false";
    const size_t begin = text.find("\"softmax\""), end = text.find(without, begin);
    ASSERT_NE(end, std::string::npos);
    const std::string between = text.substr(begin, end - begin);
    EXPECT_THAT(message_for(text, between + without, between + member + "true"),
                HasSubstr("mix 'mix': expected a mix of the model language, got one with a factor or a residual"));
  }
}

TEST(GraphJson, RefusesEveryTruncationAndWhatFollowsTheEnd) {
  const std::string text = to_json(small_graph());
  EXPECT_EQ(message_of([&] { graph_from_json(text + "\n"); }), "");
  EXPECT_THAT(message_of([&] { graph_from_json(text + "{}"); }), HasSubstr("expected JSON in UTF-8"));
  EXPECT_EQ(message_of([&] { graph_from_json(text + '\0' + "{}"); }), "graph: expected JSON in UTF-8, got a zero byte");
  for (size_t length = 0; length + 1 < text.size(); length += 7)
    EXPECT_THROW(graph_from_json(text.substr(0, length)), invalid_argument) << length;
}

}  // namespace
// The fuzzer begins with these: one that is refused at once leads nowhere.
TEST(GraphJson, ReadsEveryFileThatTheFuzzerBeginsWith) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(WARPRANK_TEST_DATA "/model/graph_json_corpus")) {
    EXPECT_NO_THROW(load_graph(file.path().string())) << file.path();
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace warprank
