// SPDX-License-Identifier: Apache-2.0

#include "warprank/model/builder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "warprank/model/parameters.hpp"

namespace warprank { namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The problems of a model that must be wrong.
std::vector<Problem> problems_of(const ModelFunction& model) {
  try {
    build(model);
  } catch (const invalid_argument& error) {
    return error.problems();
  }
  ADD_FAILURE() << "the model was accepted";
  return {};
}

/// The one problem of what `mistake` does with a user and an item axis and a tensor of four columns on each.
std::string problem_of(const std::function<void(Builder&, Axis user, Axis item, Tensor u, Tensor i)>& mistake) {
  const auto problems = problems_of([&](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto u = b.dense("u", user, 4), i = b.dense("i", item, 4);
    mistake(b, user, item, u, i);
    return {{"out", i}};
  });
  EXPECT_EQ(problems.size(), 1u);
  return problems.empty() ? "" : problems[0].to_string();
}

TEST(Builder, NamesBothTensorsAndTheLineWhenAxesAreMixedWithoutExpand) {
  const int line = __LINE__ + 1;
  const std::string problem = problem_of([](Builder& b, Axis, Axis, Tensor u, Tensor i) { b.concat({u, i}); });
  EXPECT_THAT(problem, AllOf(HasSubstr("builder_test.cpp:" + std::to_string(line)), HasSubstr("'u' [user, 4]"),
                             HasSubstr("'i' [item, 4]"), HasSubstr("use expand(u, item)")));
}

TEST(Builder, KnowsTheLineOfAnOperator) {
  const int line = __LINE__ + 1;
  const std::string problem = problem_of([](Builder&, Axis, Axis, Tensor u, Tensor i) { u* i; });
  EXPECT_THAT(problem, HasSubstr("builder_test.cpp:" + std::to_string(line)));
}

TEST(Builder, ReportsEveryMistakeOnceAndNothingThatFollowsFromIt) {
  const auto problems = problems_of([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto u = b.dense("u", user, 4), i = b.dense("i", item, 4);
    const auto mixed = b.concat({u, i});
    const auto from_mixed = b.mlp("tower", mixed, {8, 1});
    b.linear("nothing", i, 0);
    b.table("no_dim", {});
    return {{"a", from_mixed}, {"a", i}};
  });
  EXPECT_EQ(problems.size(), 4u);
}

TEST(Builder, RefusesWhatDoesNotFit) {
  using B = Builder&;
  const auto expect = [](const std::string& text, const std::function<void(B, Axis, Axis, Tensor, Tensor)>& mistake) {
    SCOPED_TRACE(text);
    EXPECT_THAT(problem_of(mistake), HasSubstr(text));
  };
  expect("an axis nested in another", [](B b, Axis, Axis, Tensor, Tensor) { b.axis("second"); });
  expect("a name not used before", [](B b, Axis user, Axis, Tensor, Tensor) { b.axis("item", user); });
  expect("a name not used before", [](B b, Axis, Axis item, Tensor, Tensor) { b.dense("u", item, 1); });
  expect("an axis of this Builder", [](B b, Axis, Axis, Tensor, Tensor) { b.ids("id", Axis{}); });
  expect("1 to 1048576 columns", [](B b, Axis, Axis item, Tensor, Tensor) { b.dense("x", item, 0); });
  expect("1 to 1048576 columns", [](B b, Axis, Axis item, Tensor, Tensor) { b.dense("x", item, (1 << 20) + 1); });
  expect("a non-empty range", [](B b, Axis, Axis, Tensor, Tensor i) { b.slice(i, INT64_MIN, INT64_MAX); });
  expect("a finite default", [](B b, Axis, Axis item, Tensor, Tensor) { b.dense("x", item, 1, {NAN}); });
  expect("an axis nested in 'item'", [](B b, Axis user, Axis, Tensor, Tensor i) { b.expand(i, user); });
  expect("a non-empty range inside 4 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.slice(i, 2, 5); });
  expect("a non-empty range inside 4 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.slice(i, 2, 2); });
  expect("1 to 3 hidden layers", [](B b, Axis user, Axis, Tensor, Tensor i) {
    b.din_attention("a", i, b.dense("k", b.axis("h", user), 4), {{}});
  });
  expect("query and history of one width",
         [](B b, Axis user, Axis, Tensor, Tensor i) { b.din_attention("a", i, b.dense("k", b.axis("h", user), 3)); });
  expect("a history nested in an axis",
         [](B b, Axis, Axis item, Tensor u, Tensor) { b.din_attention("a", u, b.dense("k", b.axis("h", item), 4)); });
  expect("widths that divide into heads", [](B b, Axis user, Axis, Tensor, Tensor) {
    b.self_attention("a", b.dense("k", b.axis("h", user), 4), {.heads = 3});
  });
  expect("causal attention of an axis over itself", [](B b, Axis user, Axis, Tensor, Tensor i) {
    b.target_attention("a", i, b.dense("k", b.axis("h", user), 4), {.causal = true});
  });
  expect("contexts among the 2 parts that are no targets", [](B b, Axis, Axis, Tensor, Tensor i) {
    b.hstu("a", {i, i, i}, {.contexts = 3});
  });
  expect("contexts among the 1 parts", [](B b, Axis, Axis, Tensor, Tensor i) { b.hstu("a", {i}, {.contexts = -1}); });
  expect("one part in order", [](B b, Axis, Axis, Tensor, Tensor i) { b.hstu("a", {i, i, i}, {.window = 4}); });
  expect("full_last only with a window", [](B b, Axis, Axis, Tensor, Tensor i) { b.hstu("a", {i}, {.full_last = 4}); });
  expect("a window and full_last of 0", [](B b, Axis, Axis, Tensor, Tensor i) { b.hstu("a", {i}, {.window = -4}); });
  const auto expect_of_bias = [&](const std::string& message, int64_t keep, HstuOptions options, int64_t time_width) {
    expect(message, [&](B b, Axis user, Axis, Tensor, Tensor) {
      const auto history = b.axis("h", user, keep_last(keep));
      if (time_width > 0) options.times = {b.dense("t", history, time_width)};
      b.hstu("a", {b.dense("x", history, 4)}, options);
    });
  };
  expect_of_bias("0 to 16777216 positions, got -1", 9, {.positions = -1}, 0);
  expect_of_bias(
      "a position for each distance of a row and an event that it sees, or clamp_positions, got 8 positions, "
      "h's last 9 rows",
      9, {.positions = 8}, 0);
  expect_of_bias("or clamp_positions, got 9 positions, h of any length", 0, {.positions = 9}, 0);
  expect_of_bias("or clamp_positions, got 5 positions, h of any length", 0, {.window = 5, .positions = 5}, 0);
  expect_of_bias("clamp_positions with one by position, got none", 9, {.clamp_positions = true}, 0);
  expect_of_bias("bias_by_head with a bias", 9, {.bias_by_head = true}, 0);
  expect_of_bias("0 to 1424 time_buckets, got 1425", 9, {.time_buckets = 1425}, 1);
  expect_of_bias("0 to 1424 time_buckets, got -3", 9, {.time_buckets = -3}, 1);
  expect_of_bias("a time_bucket_width of 0.062500 or more, got 0.01", 9,
                 {.time_buckets = 4, .time_bucket_width = 0.01f}, 1);
  expect_of_bias("a time of each row [h, 1] and of each event [h, 1], got 't' [h, 2] and 't' [h, 2]", 9,
                 {.time_buckets = 4}, 2);
  expect_of_bias("times of 1 parts, those that are no contexts, got 0 times and 0 next_times", 9, {.time_buckets = 4},
                 0);
  expect_of_bias("times of 0 parts, those that are no contexts, as there are no time_buckets, got 1 times", 9, {}, 1);
  expect_of_bias("events in order, as there is a bias, got contexts and targets", 9, {.contexts = 1, .time_buckets = 4},
                 1);
  expect("h's last 9 rows", [](B b, Axis user, Axis, Tensor, Tensor i) {  // a target is behind them
    b.hstu("a", {b.dense("x", b.axis("h", user, keep_last(9)), 4), i}, {.positions = 9});
  });
  expect("one part in order, as there is a bias by position, got 2", [](B b, Axis, Axis, Tensor, Tensor i) {
    b.hstu("a", {i, i, i}, {.positions = 4});
  });
  expect("events, or events and targets", [](B b, Axis, Axis, Tensor, Tensor) { b.relu(b.hstu("a", {})[1]); });
  expect("a max_length of 1 or more", [](B b, Axis, Axis, Tensor, Tensor i) { b.hstu("a", {i}, {.max_length = 0}); });
  expect("self-attention over a nested axis", [](B b, Axis, Axis, Tensor u, Tensor) { b.hstu("a", {u}); });
  expect("a finite scale", [](B b, Axis, Axis, Tensor, Tensor i) { b.hstu("a", {i}, {.scale = INFINITY}); });
  expect("widths that divide into heads", [](B b, Axis, Axis, Tensor, Tensor i) { b.hstu("a", {i}, {.heads = 3}); });
  expect("keys of its own for rows that are not the events", [](B b, Axis, Axis, Tensor, Tensor i) {
    b.hstu("a", {i, i});
  });
  expect("parts of one width, 6 columns", [](B b, Axis user, Axis, Tensor, Tensor i) {
    b.hstu("a", {b.dense("k", b.axis("h", user), 6), i});
  });
  expect("self-attention over a nested axis", [](B b, Axis, Axis, Tensor u, Tensor) { b.self_attention("a", u); });
  expect("fields of 3 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.fm({i, i}, 3); });
  expect("two fields or more", [](B b, Axis, Axis, Tensor, Tensor i) { b.dot({i}, 4); });
  expect("dot_between: expected fields on both sides, got 0 and 1 tensors",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.dot_between({}, {i}, 4); });
  expect("dot_between: expected fields on both sides, got 1 and 0 tensors",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.dot_between({i}, {}, 4); });
  expect("inputs made of fields of 3 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.dot_between({i}, {i}, 3); });
  expect("a field dim of 1 or more", [](B b, Axis, Axis, Tensor, Tensor i) { b.dot_between({i}, {i}, 0); });
  expect("tensors on one axis", [](B b, Axis, Axis, Tensor u, Tensor i) { b.dot_between({u}, {i}, 4); });
  expect("one logit per expert", [](B b, Axis, Axis, Tensor, Tensor i) { b.mix(i, b.gate("g", i, 3)); });
  expect("inputs of one width", [](B b, Axis, Axis, Tensor, Tensor i) { i + b.slice(i, 0, 3); });
  expect("sum, mean, sqrtn or max", [](B b, Axis, Axis, Tensor, Tensor i) { b.reduce(i, Pooling::none); });
  expect("a tensor on a nested axis", [](B b, Axis, Axis, Tensor u, Tensor) { b.pool(u, mean); });
  expect("pooled onto its parent",
         [](B b, Axis user, Axis, Tensor, Tensor) { b.embed_bag(b.ids("id", user), b.table("t", {.dim = 2}), mean); });
  expect("no weights with max pooling", [](B b, Axis, Axis item, Tensor, Tensor) {
    b.embed_bag(b.ids("id", item), b.table("t", {.dim = 2}), maximum, b.dense("w", item, 1));
  });
  expect("weights of 1 column on axis 'item'", [](B b, Axis, Axis item, Tensor u, Tensor) {
    b.embed_bag(b.ids("id", item), b.table("t", {.dim = 2}), mean, u);
  });
  expect("a name for its weights", [](B b, Axis, Axis, Tensor, Tensor i) { b.activate(i, dice); });
  expect("one layer or more", [](B b, Axis, Axis, Tensor, Tensor i) { b.mlp("m", i, {}); });
  expect("one expert and one layer or more", [](B b, Axis, Axis, Tensor, Tensor i) { b.experts("e", i, 0, {4}); });
  expect("at most 16777216 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.experts("e", i, INT64_MAX, {4}); });
  expect("at most 16777216 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.experts("e", i, 1 << 20, {1 << 20}); });
  expect("one task and one level or more", [](B b, Axis, Axis, Tensor, Tensor i) { b.ple("p", i, {}); });
  expect("scene ids on the axis of x or above it",
         [](B b, Axis, Axis item, Tensor u, Tensor) { b.scene_experts("s", u, b.ids("scene", item), 2, {4}); });
  expect("the name of a function", [](B b, Axis, Axis item, Tensor, Tensor i) { b.custom("", {i}, item, 1); });
  expect("inputs on axis 'user' or above", [](B b, Axis user, Axis, Tensor, Tensor i) { b.custom("f", {i}, user, 1); });
  expect("at most 16777216 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.linear("l", i, int64_t{1} << 40); });
  expect("a name not used before", [](B b, Axis, Axis, Tensor, Tensor i) { b.label("u", i); });
  expect("1 or more tokens", [](B b, Axis, Axis, Tensor, Tensor i) { b.mix_tokens("m", i, 0); });
  expect("columns that divide into 4 tokens of as many parts, got",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.mix_tokens("m", i, 4); });
  expect("a finite eps of 0 or more", [](B b, Axis, Axis, Tensor, Tensor i) { b.mix_tokens("m", i, 1, -1); });
  expect("a name for the weights", [](B b, Axis, Axis, Tensor, Tensor i) { b.mix_tokens("", i, 1); });
  expect("one token and one layer or more",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.tokens = 0}); });
  expect(
      "1 or more layers, and 1 to 16777216 columns of a field, fields of both blocks, and mixtures, got 0 layers, "
      "dim 2, 16 and 16",
      [](B b, Axis, Axis, Tensor, Tensor i) { b.wukong("w", i, 2, {.layers = 0}); });
  expect("16 and 0 fields, rank 16",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.wukong("w", i, 2, {.linear_fields = 0}); });
  expect("0 and 16 fields, rank 16",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.wukong("w", i, 2, {.machine_fields = 0}); });
  expect("rank 0", [](B b, Axis, Axis, Tensor, Tensor i) { b.wukong("w", i, 2, {.rank = 0}); });
  expect("rank 9223372036854775807",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.wukong("w", i, 2, {.rank = INT64_MAX}); });
  expect("got 3 layers, dim 0", [](B b, Axis, Axis, Tensor, Tensor i) { b.wukong("w", i, 0, {}); });
  expect("fields of 3 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.wukong("w", i, 3, {}); });
  expect("one token and one layer or more",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.layers = 0}); });
  expect("input columns that divide into 3 groups",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.tokens = 3, .dim = 3}); });
  expect("columns that divide into 2 tokens of as many parts, got",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.tokens = 2, .dim = 3}); });
  expect("at most 16777216 columns",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.tokens = 2, .dim = int64_t{1} << 40}); });
  expect("1 or more tokens",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.tokens = int64_t{1} << 40}); });
  expect("a top_k of 0 to as many, got 2 experts and top_k 3",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.experts = 2, .top_k = 3}); });
  expect("0 to 256 experts, and a top_k of 0 to as many, got 257 experts and top_k 2",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.experts = 257, .top_k = 2}); });
  for (const int64_t experts : {int64_t{-1}, int64_t{1} << 40})
    expect("0 to 16777216 experts",
           [experts](B b, Axis, Axis, Tensor, Tensor i) { b.rank_mixer("m", i, {.experts = experts}); });
  expect("1 to 2 inputs", [](B b, Axis, Axis, Tensor, Tensor) { b.field_linear("f", {}, 2, 3); });
  expect("1 to 2 inputs", [](B b, Axis, Axis, Tensor, Tensor i) { b.field_linear("f", {i, i, i}, 2, 3); });
  expect("tensors on one axis", [](B b, Axis, Axis, Tensor u, Tensor i) { b.field_linear("f", {u, i}, 2, 3); });
  expect("a name for the weights", [](B b, Axis, Axis, Tensor, Tensor i) { b.field_linear("", {i}, 2, 3); });
  expect("fields of 1 or more columns, got 0",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.field_linear("f", {i}, 0, 3); });
  expect("fields of 3 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.field_linear("f", {i}, 3, 3); });
  expect("fields of 4 columns, got 'x' [item, 6]", [](B b, Axis, Axis item, Tensor, Tensor i) {
    b.field_linear("f", {i, b.dense("x", item, 6)}, 4, 3);
  });
  expect("1 or more fields, at most 16777216 columns, got 0",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.field_linear("f", {i}, 2, 0); });
  expect("1 or more fields, at most 16777216 columns, got 8388609",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.field_linear("f", {i}, 2, (1 << 23) + 1); });
  const auto expect_results = [&](const std::string& got, const FieldLinearOptions& options) {
    expect("results among 3 fields, got " + got,
           [&](B b, Axis, Axis, Tensor, Tensor i) { b.field_linear("f", {i}, 2, 3, options); });
  };
  expect_results("4 kept and 0 summed", {.kept = 4});
  expect_results("0 kept and 0 summed", {.kept = 0});
  expect_results("3 kept and 4 summed", {.summed = 4});
  expect_results("3 kept and -1 summed", {.summed = -1});
  expect("fields of at most 64 columns to be summed, got 65", [](B b, Axis, Axis item, Tensor, Tensor) {
    b.field_linear("f", {b.dense("x", item, 130)}, 65, 3, {.summed = 1});
  });
  for (const Activation& learned : {prelu, dice})
    expect("an activation without learned tensors, got " + std::string(name_of_enum(learned.kind)),
           [&](B b, Axis, Axis, Tensor, Tensor i) { b.field_linear("f", {i}, 2, 3, {.activation = learned}); });
  expect("at most 16777216 products, got 1099511627776", [](B b, Axis, Axis item, Tensor, Tensor) {
    const auto x = b.dense("x", item, 1 << 20);
    b.field_linear("f", {x, x}, 1, 3);
  });
  expect("one layer or more, got none", [](B b, Axis, Axis, Tensor, Tensor i) { b.cin("c", i, 2, {}); });
  expect("maps that divide into two halves, got 5", [](B b, Axis, Axis, Tensor, Tensor i) {
    b.cin("c", i, 2, {.layers = {4, 5, 3}});
  });
  expect("1 or more fields", [](B b, Axis, Axis, Tensor, Tensor i) { b.cin("c", i, 2, {.layers = {0, 3}}); });
  expect("fields of 3 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.cin("c", i, 3, {.layers = {4, 3}}); });
  expect("fields of at most 64 columns to be summed",
         [](B b, Axis, Axis item, Tensor, Tensor) { b.cin("c", b.dense("x", item, 130), 65, {.layers = {3}}); });
  expect("an activation without learned tensors",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.cin("c", i, 2, {.layers = {3}, .activation = prelu}); });
  const auto expect_of_field_attention = [&](const std::string& message, int64_t dim,
                                             const FieldAttentionOptions& options) {
    expect(message, [&](B b, Axis, Axis, Tensor, Tensor i) { b.field_attention("a", i, dim, options); });
  };
  expect("a name for the weights", [](B b, Axis, Axis, Tensor, Tensor i) { b.field_attention("", i, 2); });
  expect_of_field_attention("fields of 1 or more columns, got 0", 0, {});
  expect_of_field_attention("fields of 3 columns, got 'i' [item, 4]", 3, {});
  expect_of_field_attention("columns that divide into heads, got 2 columns, 3 heads", 2, {.heads = 3});
  for (const auto& [heads, head_dim] : {std::pair{0, 2}, std::pair{-1, 2}, std::pair{2, -1}, std::pair{1, 1 << 24}})
    expect_of_field_attention("1 or more heads of 1 or more columns, at most 16777216 columns of all fields, got " +
                                  std::to_string(heads) + " heads of " + std::to_string(head_dim),
                              2, {.heads = heads, .head_dim = head_dim});
  expect_of_field_attention("a finite scale, got inf", 2, {.scale = INFINITY});
  for (const Activation& learned : {prelu, dice})
    expect_of_field_attention("an activation without learned tensors, got " + std::string(name_of_enum(learned.kind)),
                              2, {.activation = learned});
  expect("one layer or more, got 0", [](B b, Axis, Axis, Tensor, Tensor i) { b.auto_int("a", i, 2, {.layers = 0}); });
  expect("fields of 3 columns", [](B b, Axis, Axis, Tensor, Tensor i) { b.auto_int("a", i, 3, {.heads = 1}); });
  expect("columns that divide into heads", [](B b, Axis, Axis, Tensor, Tensor i) { b.auto_int("a", i, 1); });
  for (const int64_t hidden : {int64_t{0}, int64_t{1} << 23}) {
    expect("gru 'a': expected 1 to 5592405 hidden columns, got " + std::to_string(hidden),
           [&](B b, Axis, Axis, Tensor, Tensor i) { b.gru("a", i, hidden); });
    expect("augru 'a': expected 1 to 5592405 hidden columns, got " + std::to_string(hidden),
           [&](B b, Axis, Axis, Tensor, Tensor i) { b.augru("a", i, i, i, hidden); });
  }
  expect("events on a nested axis, got 'a.input' [user, 6]",
         [](B b, Axis, Axis, Tensor u, Tensor) { b.gru("a", u, 2); });
  const auto expect_of_augru = [&](const std::string& message, int64_t keys, bool is_other_axis,
                                   const AugruOptions& options) {
    expect(message, [&](B b, Axis user, Axis, Tensor, Tensor i) {
      const auto events = b.axis("h", user);
      const auto k = b.dense("k", is_other_axis ? b.axis("other", user) : events, keys);
      b.augru("a", i, k, b.dense("x", events, 3), 2, options);
    });
  };
  expect_of_augru("keys and gates on one axis, got 'k' [other, 4] and 'a.input' [h, 6]", 4, true, {});
  expect_of_augru("queries and keys of one width, got 'i' [item, 4] and 'k' [h, 5]", 5, false, {});
  expect_of_augru("a finite scale, got inf", 4, false, {.scale = INFINITY});
  expect("events on an axis of their own", [](B b, Axis, Axis, Tensor, Tensor i) { b.augru("a", i, i, i, 2); });
  expect("a history nested in an axis that the query lives on or under", [](B b, Axis, Axis item, Tensor u, Tensor) {
    const auto below = b.dense("below", b.axis("below_item", item), 4);
    b.augru("a", u, below, below, 2);
  });
  for (const int64_t groups : {0, 4097})
    expect("1 to 4096 groups", [&](B b, Axis, Axis, Tensor, Tensor i) { b.layer_norm("n", i, {.groups = groups}); });
  expect("columns that divide into 5 groups",
         [](B b, Axis, Axis, Tensor, Tensor i) { b.layer_norm("n", i, {.groups = 5}); });
  for (const float eps : {-1.0f, NAN, INFINITY}) {
    const std::string text = ": expected a finite eps of 0 or more, got " + std::to_string(eps);
    expect("layer_norm 'n'" + text, [&](B b, Axis, Axis, Tensor, Tensor i) { b.layer_norm("n", i, {.eps = eps}); });
    expect("elementwise 'n'" + text, [&](B b, Axis, Axis, Tensor, Tensor i) { b.batch_norm("n", i, {.eps = eps}); });
    const Activation wrong_dice{ActivationKind::dice, 0, eps};
    expect("linear 'l'" + text, [&](B b, Axis, Axis, Tensor, Tensor i) { b.linear("l", i, 2, {true, wrong_dice}); });
  }
  for (const float alpha : {NAN, INFINITY}) {
    const std::string text = ": expected a finite alpha, got " + std::to_string(alpha);
    expect("elementwise 'elu'" + text, [&](B b, Axis, Axis, Tensor, Tensor i) { b.activate(i, elu(alpha)); });
    expect("linear 'l'" + text, [&](B b, Axis, Axis, Tensor, Tensor i) { b.linear("l", i, 2, {true, elu(alpha)}); });
    expect("din_attention 'a'" + text, [&](B b, Axis user, Axis, Tensor, Tensor i) {
      b.din_attention("a", i, b.dense("k", b.axis("h", user), 4), {.activation = leaky_relu(alpha)});
    });
  }
}

TEST(Builder, RefusesATensorOfAnotherBuilder) {
  Builder other;
  const auto foreign = other.dense("x", other.axis("user"), 4);
  EXPECT_THAT(problem_of([&](Builder& b, Axis, Axis, Tensor, Tensor) { b.softmax(foreign); }),
              HasSubstr("a tensor of this Builder"));
}

TEST(Builder, RefusesEmptyHandlesAndThoseOfAnotherBuilder) {
  Builder other;
  const auto user = other.axis("user"), far_axis = other.axis("b", other.axis("a", user));
  other.ids("0", user);
  const auto far_ids = other.ids("1", user);
  const auto far_table = other.table("t", {.dim = 4});
  const auto foreign = other.dense("x", user, 4);
  const auto expect = [](const std::string& expected, const std::string& got,
                         const std::function<void(Builder&, Ids, Tensor)>& mistake) {
    EXPECT_THAT(problem_of([&](Builder& b, Axis, Axis item, Tensor, Tensor i) { mistake(b, b.ids("id", item), i); }),
                AllOf(HasSubstr("builder_test.cpp"), HasSubstr(expected + " of this Builder, got " + got)));
  };
  const auto another = "another Builder's", empty = "an empty handle";
  expect("an axis", another, [&](Builder& b, Ids, Tensor) { b.dense("x", far_axis, 1); });
  expect("an ids input", another, [&](Builder& b, Ids, Tensor) { b.embed(far_ids, b.table("t", {.dim = 4})); });
  expect("an ids input", empty, [](Builder& b, Ids, Tensor) { b.embed(Ids{}, b.table("t", {.dim = 4})); });
  expect("an ids input", empty, [](Builder& b, Ids, Tensor i) { b.scene_experts("s", i, Ids{}, 2, {4}); });
  expect("a table", another, [&](Builder& b, Ids id, Tensor) { b.embed_bag(id, far_table, mean); });
  expect("a table", empty, [](Builder& b, Ids id, Tensor) { b.embed_bag(id, Table{}, mean); });
  expect("a tensor", empty, [](Builder&, Ids, Tensor i) { i + Tensor{}; });
  expect("a tensor", empty, [](Builder& b, Ids, Tensor i) { b.concat({i, Tensor{}}); });
  expect("a tensor", another, [&](Builder& b, Ids, Tensor) { b.label("l", foreign); });
  expect("a tensor", another, [&](Builder& b, Ids, Tensor i) { b.target_attention("a", foreign, i); });
  expect("a tensor", another, [&](Builder& b, Ids, Tensor) { b.self_attention("a", foreign); });
  expect("a tensor", another, [&](Builder& b, Ids, Tensor) { b.cross("c", foreign); });
  EXPECT_EQ(problems_of([&](Builder& b) -> Outputs {
              return {{"a", b.dense("x", b.axis("user"), 1)}, {"b", foreign}};
            }).size(),
            1u);
}

TEST(Builder, SaysNothingOfWhatComesFromAnAxisThatIsWrong) {
  const auto problems = problems_of([](Builder& b) -> Outputs {
    const auto history = b.axis("history", Axis{});
    const auto k = b.dense("k", history, 4);
    return {{"k", k}, {"e", b.embed(b.ids("id", history), b.table("t", {.dim = 4}))}, {"x", b.expand(k, history)}};
  });
  EXPECT_EQ(problems.size(), 1u);
}

TEST(Builder, TakesNumbersOfEveryType) {
  const Graph graph = build([](Builder& b) -> Outputs {
    const auto x = b.dense("x", b.axis("user"), 4);
    return {{"y", (int64_t{2} - x) * size_t{3} / 4u + 5.0 - 6.0f + 7}};
  });
  std::vector<float> constants;
  for (const Node& node : graph.nodes)
    if (const auto* op = std::get_if<ElementwiseOp>(&node.op)) constants.push_back(op->program.constants.at(0));
  EXPECT_THAT(constants, testing::ElementsAre(2, 3, 4, 5, 6, 7));
}

TEST(Builder, GivesEveryNodeANameOfItsOwn) {
  const Graph graph = build([](Builder& b) -> Outputs {
    const auto x = b.label("linear#2", b.dense("x", b.axis("user"), 4));
    b.linear("linear", x, 4);
    return {{"y", b.linear("linear", x, 4)}};
  });
  EXPECT_EQ(graph.nodes.back().name, "linear#3");
}

TEST(Builder, ReportsParametersThatShareANameButNotAShape) {
  const Graph graph = build([](Builder& b) -> Outputs {
    const auto x = b.dense("x", b.axis("user"), 4);
    return {{"a", b.linear("same", x, 2)}, {"b", b.linear("same", x, 3)}};
  });
  Problems problems;
  parameters_of(graph, problems);
  ASSERT_EQ(problems.list().size(), 2u);  // weight and bias
  EXPECT_THAT(problems.list()[0].to_string(),
              AllOf(HasSubstr("same.weight"), HasSubstr("[2, 4]"), HasSubstr("[3, 4]")));
}

TEST(Builder, MakesALayerOfFieldsOfEachLayerOfMaps) {
  const auto lines_of = [](const ModelFunction& model) {
    const Graph graph = build(model);
    Problems problems;
    std::vector<std::string> lines;
    for (const Parameter& p : parameters_of(graph, problems)) lines.push_back(p.name + " " + to_string(p.shape));
    for (const auto& output : graph.outputs)
      lines.push_back(output.name + " " + std::to_string(graph.node(output.node).width));
    return lines;
  };
  const auto of_cin = [&](const CinOptions& options) {
    return lines_of([&](Builder& b) -> Outputs {
      return {{"y", b.cin("c", b.dense("x", b.axis("item", b.axis("user")), 15), 3, options)}};
    });
  };
  EXPECT_THAT(of_cin({.layers = {12, 10, 7}}),
              testing::ElementsAre("c.0.weight [12, 25]", "c.0.bias [12]", "c.1.weight [10, 30]", "c.1.bias [10]",
                                   "c.2.weight [7, 25]", "c.2.bias [7]", "y 18"));
  EXPECT_THAT(of_cin({.layers = {11, 7}, .split_half = false, .bias = false}),
              testing::ElementsAre("c.0.weight [11, 25]", "c.1.weight [7, 55]", "y 18"));
  EXPECT_THAT(of_cin({.layers = {7}}), testing::ElementsAre("c.0.weight [7, 25]", "c.0.bias [7]", "y 7"));
  EXPECT_THAT(lines_of([](Builder& b) -> Outputs {
                const auto item = b.axis("item", b.axis("user"));
                const auto x = b.dense("x", item, 15), z = b.dense("z", item, 6);
                return {{"one", b.field_linear("one", {x}, 3, 4)},
                        {"two", b.field_linear("two", {x, z}, 3, 4, {.bias = false, .kept = 1, .summed = 2})}};
              }),
              testing::ElementsAre("one.weight [4, 5]", "one.bias [4]", "two.weight [4, 10]", "one 12", "two 5"));
}

TEST(Builder, MakesALayerOfFieldsOfEachLayerOfAttention) {
  const auto lines_of = [](const AutoIntOptions& options) {
    const Graph graph = build([&](Builder& b) -> Outputs {
      return {{"y", b.auto_int("a", b.dense("x", b.axis("item", b.axis("user")), 20), 4, options)}};
    });
    Problems problems;
    std::vector<std::string> lines;
    for (const Parameter& p : parameters_of(graph, problems)) lines.push_back(p.name + " " + to_string(p.shape));
    lines.push_back(std::to_string(graph.node(graph.outputs[0].node).width));
    return lines;
  };
  EXPECT_THAT(lines_of({.layers = 2, .heads = 2, .head_dim = 3}),
              testing::ElementsAre("a.0.query.weight [6, 4]", "a.0.key.weight [6, 4]", "a.0.value.weight [6, 4]",
                                   "a.0.residual.weight [6, 4]", "a.1.query.weight [6, 6]", "a.1.key.weight [6, 6]",
                                   "a.1.value.weight [6, 6]", "a.1.residual.weight [6, 6]", "30"));
  EXPECT_THAT(
      lines_of({.layers = 1, .residual = false}),
      testing::ElementsAre("a.0.query.weight [4, 4]", "a.0.key.weight [4, 4]", "a.0.value.weight [4, 4]", "20"));
}

TEST(Builder, MakesTheGatesOfRecurrentLayersOfAllEventsTogether) {
  const Graph graph = build([](Builder& b) -> Outputs {
    const auto user = b.axis("user");
    const auto x = b.dense("x", b.axis("event", user), 5), q = b.dense("q", b.axis("item", user), 4);
    const auto states = b.gru("gru", x, 4);
    return {{"y", b.augru("augru", q, states, x, 3)}, {"states", states}};
  });
  Problems problems;
  std::vector<std::string> lines;
  for (const Parameter& p : parameters_of(graph, problems)) lines.push_back(p.name + " " + to_string(p.shape));
  EXPECT_THAT(lines, testing::UnorderedElementsAre("gru.input.weight [12, 5]", "gru.input.bias [12]",
                                                   "gru.hidden.weight [12, 4]", "gru.hidden.bias [12]",
                                                   "augru.input.weight [9, 5]", "augru.input.bias [9]",
                                                   "augru.hidden.weight [9, 3]", "augru.hidden.bias [9]"));
  EXPECT_EQ(graph.node(graph.outputs[0].node).width, 3);
  EXPECT_EQ(graph.axis(graph.node(graph.outputs[0].node).axis).name, "item");
  EXPECT_EQ(graph.axis(graph.node(graph.outputs[1].node).axis).name, "event");
}

TEST(Builder, SharesTheBiasesOfHstuAmongItsEventsAndTargetsAndGivesContextsNone) {
  const Graph graph = build([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), event = b.axis("event", user, keep_last(8)), item = b.axis("item", user);
    const auto c = b.dense("c", b.axis("context", user), 4), t = b.dense("t", event, 1), s = b.dense("s", item, 1);
    const auto y = b.hstu("a", {c, b.dense("x", event, 4), b.dense("y", item, 4)},
                          {.heads = 2,
                           .contexts = 1,
                           .positions = 9,
                           .time_buckets = 3,
                           .bias_by_head = true,
                           .times = {t, s},
                           .next_times = {b.dense("n", event, 1), s}});
    return {{"c", y[0]}, {"x", y[1]}, {"y", y[2]}};
  });
  Problems problems;
  std::vector<std::string> lines;
  for (const Parameter& p : parameters_of(graph, problems))
    if (p.name.find("_bias") != std::string::npos) lines.push_back(p.name + " " + to_string(p.shape));
  EXPECT_THAT(lines, testing::ElementsAre("a.position_bias [2, 9]", "a.time_bias [2, 4]"));
  std::vector<std::string> biased;  // axes of rows, of keys, and of what else there is
  for (const Node& node : graph.nodes)
    if (const auto* op = std::get_if<AttentionOp>(&node.op); op != nullptr) {
      std::string line = op->has_bias() ? "biased" : "plain";
      for (const int input : node.inputs)
        if (const Node& n = graph.node(input); n.width == 1) line += " " + n.name;
      biased.push_back(line + " " + graph.axis(node.axis).name + " " + std::to_string(node.inputs.size()));
    }
  EXPECT_THAT(biased, testing::ElementsAre("plain context 3", "plain event 3", "biased n t event 5", "plain item 3",
                                           "biased s t item 7"));
}

TEST(Builder, NamesParametersAfterTheirLayers) {
  const Graph graph = build([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user);
    const auto x = b.dense("x", item, 4), k = b.dense("k", history, 4);
    const auto e = b.mix(b.experts("mmoe", x, 3, {8, 4}, prelu), b.gate("gate", x, 3));
    const auto a = b.din_attention("attention", x, k, {{5}});
    const auto c = b.cross("cross", x, {.layers = 1, .rank = 2});
    const auto m = b.mlp("mlp", b.concat({e, a, c}), {6, 1}, dice, {.batch_norm = true});
    return {{"out", m}, {"wide", b.wide("wide", {x})}, {"norm", b.layer_norm("norm", x)}};
  });
  Problems problems;
  std::vector<std::string> lines;
  for (const Parameter& p : parameters_of(graph, problems)) lines.push_back(p.name + " " + to_string(p.shape));
  EXPECT_THAT(lines,
              testing::UnorderedElementsAre(
                  "mmoe.0.weight [3, 8, 4]", "mmoe.0.bias [3, 8]", "mmoe.0.prelu.alpha [3, 8]",
                  "mmoe.1.weight [3, 4, 8]", "mmoe.1.bias [3, 4]", "mmoe.1.prelu.alpha [3, 4]", "gate.weight [3, 4]",
                  "gate.bias [3]", "attention.0.weight [5, 16]", "attention.0.bias [5]", "attention.0.dice.alpha [5]",
                  "attention.0.dice.running_mean [5]", "attention.0.dice.running_var [5]", "attention.1.weight [1, 5]",
                  "attention.1.bias [1]", "cross.0.v.weight [2, 4]", "cross.0.w.weight [4, 2]", "cross.0.w.bias [4]",
                  "mlp.0.weight [6, 12]", "mlp.0.bias [6]", "mlp.0.norm.running_mean [6]", "mlp.0.norm.running_var [6]",
                  "mlp.0.norm.weight [6]", "mlp.0.norm.bias [6]", "mlp.0.dice.alpha [6]", "mlp.0.dice.running_mean [6]",
                  "mlp.0.dice.running_var [6]", "mlp.1.weight [1, 6]", "mlp.1.bias [1]", "wide.bias [1]",
                  "norm.weight [4]", "norm.bias [4]"));
}

}}  // namespace warprank
