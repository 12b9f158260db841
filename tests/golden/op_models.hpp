// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The models of tools/golden/ops.py, under the same names.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/model.hpp"

namespace warprank::golden {

using Name = std::pair<std::string, Activation>;

inline std::vector<Name> activations() {
  return {{"identity", identity},
          {"relu", relu},
          {"leaky_relu", leaky_relu()},
          {"elu", elu(1.5f)},
          {"prelu", prelu},
          {"dice", dice},
          {"dice_affine", {ActivationKind::dice, 0, 1e-8f, true}},
          {"sigmoid", sigmoid},
          {"tanh", hyperbolic_tangent},
          {"gelu", gelu},
          {"gelu_tanh", gelu_tanh},
          {"silu", silu}};
}

inline Axis item_axis(Builder& b) { return b.axis("item", b.axis("user")); }

inline Outputs linear(Builder& b) {
  const auto x = b.dense("x", item_axis(b), 7);
  Outputs outputs;
  for (const auto& [name, activation] : activations())
    outputs.emplace_back(name, b.linear(name, x, 5, {.activation = activation}));
  outputs.emplace_back("no_bias", b.linear("no_bias", x, 5, {.bias = false}));
  return outputs;
}

inline Outputs mlp(Builder& b) {
  const auto x = b.dense("x", item_axis(b), 6);
  Outputs outputs;
  for (const auto& [name, activation] : activations()) {
    outputs.emplace_back(name, b.mlp(name, x, {5, 4, 2}, activation));
    outputs.emplace_back(name + "_normed", b.mlp(name + "_normed", x, {5, 4, 2}, activation,
                                                 {.batch_norm = true, .batch_norm_eps = 1e-3f}));
  }
  outputs.emplace_back("no_bias",
                       b.mlp("no_bias", x, {5, 2}, hyperbolic_tangent, {.bias = false, .output_activation = silu}));
  return outputs;
}

inline Outputs norms(Builder& b) {
  const auto x = b.dense("x", item_axis(b), 6);
  Outputs outputs = {{"batch_norm", b.batch_norm("batch_norm", x)},
                     {"batch_norm_plain", b.batch_norm("batch_norm_plain", x, {.eps = 1e-3f, .affine = false})},
                     {"batch_norm_then_linear", b.linear("after", b.batch_norm("before", x), 3, {.activation = relu})},
                     {"layer_norm", b.layer_norm("layer_norm", x)},
                     {"layer_norm_plain", b.layer_norm("layer_norm_plain", x, {.eps = 1e-3f, .affine = false})},
                     {"layer_norm_groups", b.layer_norm("layer_norm_groups", x, {.groups = 2})},
                     {"layer_norm_stacked", b.layer_norm("layer_norm_stacked", x, {.groups = 3, .stacked = true})},
                     {"softmax", b.softmax(x)}};
  for (const auto& [name, activation] : activations())
    outputs.emplace_back("activate_" + name, b.activate(x, activation, "activate_" + name));
  return outputs;
}

inline Outputs elementwise(Builder& b) {
  using Function = ElementwiseFunction;
  const auto item = item_axis(b);
  const auto x = b.dense("a", item, 4), y = b.dense("b", item, 4), one = b.dense("one", item, 1);
  const auto of = [&](Function function, std::vector<Operand> operands) { return b.apply(function, operands); };
  Outputs outputs = {{"add", x + y},
                     {"sub", x - y},
                     {"mul", x * y},
                     {"div", x / y},
                     {"select", b.select(of(Function::less, {x, y}), x, 2 * y)},
                     {"neg", -x},
                     {"log", of(Function::log, {of(Function::abs, {x})})},
                     {"sqrt", of(Function::sqrt, {of(Function::abs, {y})})},
                     {"leaky_relu", b.activate(x, leaky_relu(0.2f))},
                     {"elu", b.activate(x, elu(1.5f))},
                     {"one_column", (x + one) * one - one / 3},
                     {"numbers", 1 - (2 * x + 0.5) / 4},
                     {"chain", b.sigmoid(x * y - one) * b.tanh(y) + of(Function::max, {x, 0.25})}};
  for (const auto& [function, name] : names_of(Function{})) {
    if (arity(function) == 2 && function >= Function::min) outputs.emplace_back(name, of(function, {x, y}));
    const bool is_done = function == Function::neg || function == Function::log || function == Function::sqrt ||
                         function == Function::leaky_relu || function == Function::elu;
    if (arity(function) == 1 && !is_done) outputs.emplace_back(name, of(function, {x}));
  }
  return outputs;
}

inline Outputs reductions(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user), event = b.axis("event", item);
  const auto x = b.dense("x", event, 5);
  Outputs outputs = {{"last_four", b.pool(b.dense("recent", b.axis("recent", user, keep_last(4)), 2), sum)}};
  for (const Pooling pooling : {sum, mean, sqrtn, maximum}) {
    outputs.emplace_back(std::string("pool_") + name_of_enum(pooling), b.pool(x, pooling));
    outputs.emplace_back(std::string("reduce_") + name_of_enum(pooling), b.reduce(x, pooling));
  }
  return outputs;
}

struct LookUps {
  explicit LookUps(Builder& b, Axis axis)
      : direct_id(b.ids("direct_id", axis)),
        hashed_id(b.ids("hashed_id", axis)),
        padded_id(b.ids("padded_id", axis, {.padding = 5})) {
    for (const std::string name : {"direct", "half", "brain", "bytes", "direct_default"})
      tables.emplace_back(name, b.table(name, {.dim = 6, .rows = 10}));
    for (const std::string name : {"hashed", "hashed_half", "hashed_bytes"})
      tables.emplace_back(name, b.hashed_table(name, {.dim = 6}));
  }
  Ids id(const std::string& table) const { return table.rfind("hashed", 0) == 0 ? hashed_id : direct_id; }

  Ids direct_id, hashed_id, padded_id;
  std::vector<std::pair<std::string, Table>> tables;
};

inline Outputs embed(Builder& b) {
  const auto item = item_axis(b);
  const LookUps look_ups(b, item);
  Outputs outputs = {{"optional", b.embed(b.ids("optional_id", item, {.default_id = 3}), look_ups.tables[0].second)},
                     {"padded", b.embed(look_ups.padded_id, look_ups.tables[6].second)}};
  for (const auto& [name, table] : look_ups.tables) outputs.emplace_back(name, b.embed(look_ups.id(name), table));
  return outputs;
}

inline Outputs embed_bag(Builder& b) {
  const auto tag = b.axis("tag", item_axis(b));
  const LookUps look_ups(b, tag);
  const auto weight = b.dense("weight", tag, 1);
  Outputs outputs = {{"padded", b.embed_bag(look_ups.padded_id, look_ups.tables[7].second, mean, weight)}};
  for (const auto& [name, table] : look_ups.tables)
    for (const Pooling pooling : {sum, mean, sqrtn, maximum}) {
      const std::string output = name + "_" + name_of_enum(pooling);
      outputs.emplace_back(output, b.embed_bag(look_ups.id(name), table, pooling));
      if (pooling != maximum)
        outputs.emplace_back(output + "_weighted", b.embed_bag(look_ups.id(name), table, pooling, weight));
    }
  return outputs;
}

inline Outputs structure(Builder& b) {
  const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
  const auto of_user = b.dense("of_user", user, 3);
  const auto of_session = b.dense("of_session", session, 2), of_item = b.dense("of_item", item, 4);
  const auto optional = b.dense("optional", item, 2, {.default_value = -1.5f});
  const auto x = b.concat({b.expand(of_user, item), of_item, b.expand(of_session, item), optional,
                           b.expand(b.expand(of_user, session), item)});
  return {{"everything", x},
          {"slice", b.slice(x, 2, 9)},
          {"scores", b.mlp("scores", x, {6, 1}, relu, {.output_activation = sigmoid})},
          {"of_user", b.linear("of_user", of_user, 2, {.activation = hyperbolic_tangent})}};
}

inline Outputs din_attention(Builder& b) {
  const auto user = b.axis("user");
  const auto q = b.dense("q", b.axis("item", user), 4), k = b.dense("k", b.axis("event", user), 4);
  const Activation dice_affine{ActivationKind::dice, 0, 1e-8f, true};
  const auto attend = [&](const std::string& name, const DinOptions& options) {
    return std::make_pair(name, b.din_attention(name, q, k, options));
  };
  using N = Normalization;
  return {
      attend("plain", {.hidden = {6, 5}}),
      attend("plain_scaled", {.activation = dice_affine, .scaled = true}),
      attend("softmax", {.hidden = {6, 3}, .activation = sigmoid, .normalization = N::softmax}),
      attend("softmax_scaled", {.hidden = {6}, .activation = prelu, .normalization = N::softmax, .scaled = true}),
      attend("sigmoid", {.hidden = {6, 4}, .activation = relu, .normalization = N::sigmoid}),
      attend("sigmoid_scaled", {.hidden = {7, 5, 3}, .activation = gelu, .normalization = N::sigmoid, .scaled = true})};
}

inline Outputs target_attention(Builder& b) {
  const auto user = b.axis("user");
  const auto event = b.axis("event", user);
  const auto q = b.dense("q", b.axis("item", user), 6), k = b.dense("k", event, 6);
  return {
      {"one_head", b.target_attention("one_head", q, k)},
      {"two_heads", b.target_attention("two_heads", q, k, {.heads = 2})},
      {"no_bias", b.target_attention("no_bias", q, k, {.heads = 3, .bias = false})},
      {"widths", b.target_attention("widths", q, b.dense("other_k", event, 5), {.heads = 2, .head_dim = 3, .out = 4})}};
}

/// The GRUs of DIEN, of which the second follows the shares of items' attention to the states of the first.
inline Outputs recurrent(Builder& b) {
  const auto user = b.axis("user");
  const auto x = b.dense("x", b.axis("event", user), 5), q = b.dense("q", b.axis("item", user), 6);
  const auto states = b.gru("gru", x, 6);
  return {{"states", states},
          {"augru", b.augru("augru", q, states, states, 4)},
          {"agru", b.augru("agru", q, states, x, 3, {.update_gate = false, .scale = 0})}};
}

inline Outputs self_attention(Builder& b) {
  const auto x = b.dense("x", b.axis("event", b.axis("session", b.axis("user"))), 6);
  return {
      {"post_norm", b.self_attention("post_norm", x)},
      {"pre_norm", b.self_attention("pre_norm", x, {.heads = 2, .hidden = 5, .activation = gelu, .norm_first = true})},
      {"causal", b.self_attention("causal", x, {.heads = 2, .hidden = 7, .causal = true})},
      {"causal_pre_norm",
       b.self_attention("causal_pre_norm", x,
                        {.heads = 3, .hidden = 8, .activation = gelu, .norm_first = true, .causal = true})}};
}

inline Outputs hstu(Builder& b) {
  const auto user = b.axis("user");
  const auto event = b.axis("event", user, keep_last(10)), item = b.axis("item", user);
  const auto x = b.dense("x", event, 6), y = b.dense("y", item, 6), c = b.dense("c", b.axis("context", user), 6);
  const std::vector<Tensor> times{b.dense("t", event, 1), b.dense("now", item, 1)};
  Outputs outputs;
  const auto keep = [&](const std::string& name, const std::vector<Tensor>& layer,
                        const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) outputs.emplace_back(name + "_" + names[i], layer[i]);
  };
  const std::vector<std::string> events{"events"}, two{"events", "targets"}, three{"contexts", "events", "targets"};
  keep("layer", b.hstu("layer", {x, y}, {.heads = 2, .max_length = 2, .eps = 0.5f}), two);
  keep("widths", b.hstu("widths", {x, y}, {.heads = 1, .head_dim = 4, .max_length = 9, .scale = 1.5f, .eps = 1e-2f}),
       two);
  keep("alone", b.hstu("alone", {x}, {.heads = 3, .max_length = 3, .eps = 0.5f}), events);
  keep("window", b.hstu("window", {x, y}, {.heads = 2, .max_length = 4, .eps = 0.5f, .window = 3}), two);
  keep("full", b.hstu("full", {x, y}, {.heads = 2, .max_length = 4, .eps = 0.5f, .window = 2, .full_last = 3}), two);
  keep("mtgr",
       b.hstu("mtgr", {c, x, y},
              {.heads = 2,
               .max_length = 5,
               .eps = 0.5f,
               .contexts = 1,
               .gate = HstuGate::before_norm,
               .activation = silu,
               .norm_by_part = true,
               .out_bias = true}),
       three);
  keep("prefix",
       b.hstu("prefix", {c, x, y},
              {.heads = 2, .max_length = 5, .eps = 0.5f, .contexts = 1, .contexts_see_events = true, .window = 2}),
       three);
  keep("ordered",
       b.hstu("ordered", {c, x, y},
              {.heads = 2, .max_length = 5, .eps = 0.5f, .gate = HstuGate::of_norm, .norm_by_head = true}),
       three);
  keep("relative",
       b.hstu("relative", {x, y},
              {.heads = 2,
               .max_length = 4,
               .scale = 1,
               .eps = 0.5f,
               .positions = 12,
               .time_buckets = 40,
               .times = times,
               .next_times = {b.dense("next", event, 1), times[1]}}),
       two);
  keep("by_head",
       b.hstu("by_head", {c, x, y},
              {.heads = 2,
               .max_length = 4,
               .eps = 0.5f,
               .contexts = 1,
               .contexts_see_events = true,
               .window = 5,
               .positions = 4,
               .clamp_positions = true,
               .time_buckets = 6,
               .time_bucket_width = 1.25f,
               .bias_by_head = true,
               .times = times}),
       three);
  keep("relative_alone",
       b.hstu("relative_alone", {x},
              {.heads = 3, .max_length = 3, .eps = 0.5f, .positions = 3, .clamp_positions = true}),
       events);
  return outputs;
}

inline Outputs rank_mixer(Builder& b) {
  const auto x = b.dense("x", item_axis(b), 12);
  return {{"mixed", b.mix_tokens("mix", x, 2, 0.5f)},
          {"mixer", b.rank_mixer("mixer", x, {.tokens = 3, .dim = 6, .hidden = 5, .layers = 2, .eps = 0.5f})},
          {"relu", b.rank_mixer("relu", x, {.tokens = 2, .hidden = 4, .experts = 2, .eps = 0.5f})},
          {"top", b.rank_mixer("top", x, {.tokens = 2, .hidden = 4, .experts = 5, .top_k = 2, .eps = 0.5f})},
          {"all", b.rank_mixer("all", x, {.tokens = 2, .hidden = 4, .experts = 3, .top_k = 3, .eps = 0.5f})}};
}

inline Outputs cin(Builder& b) {
  const auto x = b.dense("x", item_axis(b), 15);
  return {{"cin", b.cin("cin", x, 3, {.layers = {12, 10, 6}})},
          {"direct", b.cin("direct", x, 3, {.layers = {4, 3}, .split_half = false, .activation = identity})},
          {"linear", b.field_linear("linear", {x}, 3, 4, {.bias = false, .activation = silu})}};
}

inline Outputs auto_int(Builder& b) {
  const auto x = b.dense("x", item_axis(b), 20);
  return {{"layers", b.auto_int("layers", x, 4, {.layers = 2, .heads = 2, .head_dim = 3})},
          {"scaled", b.field_attention("scaled", x, 5, {.residual = false, .activation = silu, .scale = 0})}};
}

inline Outputs wukong(Builder& b) {
  const auto x = b.dense("x", item_axis(b), 20);
  return {{"layers", b.wukong("layers", x, 4,
                              {.layers = 2,
                               .machine_fields = 1,
                               .linear_fields = 2,
                               .rank = 3,
                               .hidden = {6, 5},
                               .activation = silu,
                               .eps = 0.5f})}};
}

inline Outputs interactions(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto of_user = b.expand(b.dense("of_user", user, 8), item), of_item = b.dense("of_item", item, 12);
  const auto x = b.concat({of_user, of_item});
  Outputs outputs = {{"fm", b.fm({of_user, of_item}, 4)},
                     {"fm_vector", b.fm({x}, 4, {.reduce = false})},
                     {"cross", b.cross("cross", x, {.layers = 3})},
                     {"cross_low_rank", b.cross("cross_low_rank", x, {.layers = 2, .rank = 3})},
                     {"wide", b.wide("wide", {of_user, of_item})}};
  for (const DotOrder order : {DotOrder::lower, DotOrder::upper, DotOrder::lower_padded})
    for (const bool self : {false, true})
      outputs.emplace_back(std::string("dot_") + name_of_enum(order) + (self ? "_self" : ""),
                           b.dot({of_user, of_item}, 4, {.order = order, .self = self}));
  outputs.emplace_back("dot_between", b.dot_between({b.slice(of_item, 0, 4), of_user}, {of_user, of_item}, 4));
  return outputs;
}

inline Outputs experts(Builder& b) {
  const auto session = b.axis("session", b.axis("user")), item = b.axis("item", session);
  const auto x = b.dense("x", item, 6);
  const auto shared = b.experts("experts", x, 4, {5, 3}, silu);
  Outputs outputs = {{"scene", b.scene_experts("scene", x, b.ids("scene", session), 3, {5, 2}, dice)}};
  for (const Normalization n : {Normalization::softmax, Normalization::sigmoid, Normalization::none}) {
    const std::string name = name_of_enum(n);
    outputs.emplace_back("mix_" + name, b.mix(shared, b.gate("gate_" + name, x, 4), n));
  }
  const auto tasks = b.ple("ple", x, {.tasks = 3, .task_experts = 2, .shared_experts = 1, .levels = {{5, 4}, {3}}});
  for (size_t t = 0; t < tasks.size(); ++t) outputs.emplace_back("ple_" + std::to_string(t), tasks[t]);
  return outputs;
}

inline Outputs keras(Builder& b) {
  const auto user = b.axis("user");
  const auto x = b.dense("x", b.axis("item", user), 6), event = b.dense("event_x", b.axis("event", user), 6);
  return {{"mlp", b.mlp("mlp", x, {5, 4, 2}, prelu)},
          {"cross", b.cross("cross", x, {.layers = 2, .rank = 3})},
          {"experts", b.experts("experts", x, 3, {5, 2})},
          {"din", b.din_attention("din", x, event, {.hidden = {4}})}};
}

}  // namespace warprank::golden
