// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random models that use every op of the language, on three axes of items and two histories.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace warprank::test_support {

class RandomModel {
 public:
  /// `with_custom`: also Builder::custom operations "fold", twice the sum of their two inputs' columns.
  explicit RandomModel(uint32_t seed, bool with_custom = false) : random_(seed), with_custom_(with_custom) {}

  Outputs operator()(Builder& b) {
    b_ = &b;
    user_ = b.axis("user");
    session_ = b.axis("session", user_);
    item_ = b.axis("item", session_);
    history_ = b.axis("history", session_, keep_last(5));
    tags_ = b.axis("tags", item_);
    history_tags_ = b.axis("history_tags", history_);
    direct_ = b.table("direct", {.dim = dim});
    hashed_ = b.hashed_table("hashed", {.dim = dim});
    scenes_ = {b.ids("scene", session_, {.wire = IdsWire::i32}), b.ids("user_scene", user_),
               b.ids("item_scene", item_, {.wire = IdsWire::i32})};

    add_inputs("u", user_, of_user_);
    add_inputs("s", session_, of_session_, IdsWire::i32, DenseWire::bf16);
    add_inputs("i", item_, of_item_, IdsWire::i32, DenseWire::f16, DenseWire::f16);
    add_inputs("h", history_, of_history_, IdsWire::i64, DenseWire::f32, DenseWire::bf16);
    const auto weight = b.dense("tag_weight", tags_, 1, {.wire = DenseWire::f16, .out_of_range = OutOfRange::saturate});
    of_item_.push_back(b.embed_bag(b.ids("tag", tags_, {.wire = IdsWire::i32}), direct_, mean));
    of_item_.push_back(b.embed_bag(b.ids("weighted_tag", tags_), hashed_, sqrtn, weight));
    of_history_.push_back(b.embed_bag(b.ids("history_tag", history_tags_, {.wire = IdsWire::i32}), direct_, maximum));

    of_session_.push_back(b.pool(b.embed_bag(b.ids("summed_tag", tags_, {.padding = 4}), hashed_, sum), sum));

    const int steps = 6 + pick(8);
    for (int i = 0; i < steps; ++i) add_operation();
    Outputs outputs;
    const auto score = b.mlp(name("tower"), wide_concat(item_), {8, 1}, any_activation());
    const auto linear_terms = b.wide(name("wide"), {on(item_), on(item_)});
    outputs.emplace_back("score", b.sigmoid(pick(2) == 0 ? score + linear_terms : linear_terms + score));
    for (const std::vector<Tensor>* list : {&of_user_, &of_session_, &of_item_, &of_history_}) {
      outputs.emplace_back(name("raw"), list->back());
      outputs.emplace_back(name("raw"), any(*list));
    }
    return outputs;
  }

 private:
  static constexpr int64_t dim = 4;

  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  Tensor any(const std::vector<Tensor>& list) { return list[static_cast<size_t>(pick(static_cast<int>(list.size())))]; }
  std::string name(const std::string& prefix) { return prefix + std::to_string(counter_++); }
  Activation any_activation() {
    const Activation all[] = {relu,
                              dice,
                              prelu,
                              sigmoid,
                              gelu,
                              silu,
                              hyperbolic_tangent,
                              elu(),
                              leaky_relu(),
                              identity,
                              gelu_tanh,
                              {ActivationKind::dice, 0, 1e-8f, true}};
    return all[pick(12)];
  }
  Activation activation_without_tensors() {
    for (;;) {
      const Activation activation = any_activation();
      if (activation.kind != ActivationKind::prelu && activation.kind != ActivationKind::dice) return activation;
    }
  }
  Pooling any_pooling() {
    const Pooling all[] = {sum, mean, sqrtn, maximum};
    return all[pick(4)];
  }

  /// The types are how requests hold some of the inputs.
  void add_inputs(const std::string& prefix, Axis axis, std::vector<Tensor>& list, IdsWire ids = IdsWire::i64,
                  DenseWire values = DenseWire::f32, DenseWire optional_values = DenseWire::f32) {
    list.push_back(b_->embed(b_->ids(prefix + "_direct", axis, {.wire = ids}), direct_));
    list.push_back(b_->embed(b_->ids(prefix + "_hashed", axis), hashed_));
    list.push_back(
        b_->embed(b_->ids(prefix + "_optional", axis, {.default_id = 11, .padding = 4, .wire = ids}), hashed_));
    list.push_back(b_->dense(prefix + "_dense", axis, dim, {.wire = values, .out_of_range = OutOfRange::saturate}));
    list.push_back(b_->dense(prefix + "_optional_dense", axis, dim,
                             {.default_value = 0.75f, .wire = optional_values, .out_of_range = OutOfRange::saturate}));
  }

  std::vector<Tensor>& list_of(Axis axis) {
    return axis.index == user_.index ? of_user_ : axis.index == session_.index ? of_session_ : of_item_;
  }
  /// A tensor of `dim` columns on `axis`, often expanded from above.
  Tensor on(Axis axis) {
    if (axis.index == item_.index && pick(2) == 0)
      return b_->expand(pick(2) == 0 ? any(of_user_) : any(of_session_), axis);
    if (axis.index == session_.index && pick(2) == 0) return b_->expand(any(of_user_), axis);
    return any(list_of(axis));
  }
  Tensor wide_concat(Axis axis) {
    std::vector<Tensor> parts;
    const int count = 2 + pick(4);
    for (int i = 0; i < count; ++i) parts.push_back(on(axis));
    Tensor x = b_->concat(parts);
    if (pick(4) == 0) x = b_->concat({x, on(axis)});
    if (pick(4) == 0) x = b_->batch_norm(name("norm"), x);
    return x;
  }

  /// Adds one tensor of `dim` columns to an axis.
  void add_operation() {
    if (pick(4) == 0) return add_over_events();
    const Axis axes[] = {user_, session_, item_, item_, item_};
    const Axis axis = axes[pick(5)];
    Tensor y = pick(2) == 0 ? learned(axis) : pick(2) == 0 ? interaction(axis) : elementwise(axis);
    if (pick(8) == 0) y = b_->label(name("label"), y);
    list_of(axis).push_back(y);
  }

  Tensor learned(Axis axis) {
    Builder& b = *b_;
    switch (pick(21)) {
      case 0:
        return b.linear(name("linear"), wide_concat(axis), dim, {pick(2) == 0, any_activation()});
      case 1:
        return b.mlp(name("mlp"), wide_concat(axis), {6, dim}, any_activation(),
                     {.bias = pick(2) == 0, .output_activation = any_activation(), .batch_norm = pick(2) == 0});
      case 2: {
        const auto x = wide_concat(axis), x0 = on(axis);
        const auto mixed = b.mix(b.experts(name("experts"), x, 3, {5, dim}, any_activation()),
                                 b.gate(name("gate"), pick(2) == 0 ? x : on(axis), 3), any_normalization());
        if (pick(3) == 0) return x0 * mixed + on(axis);
        return pick(2) == 0 ? mixed : b.mlp(name("tower"), mixed, {6, dim}, any_activation());
      }
      case 3: {
        const auto tasks = b.ple(name("ple"), wide_concat(axis),
                                 {.tasks = 2, .task_experts = 2, .shared_experts = 1, .levels = {{5}, {dim}}});
        return tasks[0] - tasks[1];
      }
      case 4: {
        const Ids scene = axis.index == user_.index      ? scenes_[1]
                          : axis.index == session_.index ? scenes_[static_cast<size_t>(pick(2))]
                                                         : scenes_[static_cast<size_t>(pick(3))];
        return b.scene_experts(name("scene"), on(axis), scene, 4, {5, dim}, any_activation());
      }
      case 5:
        return b.layer_norm(name("layer_norm"), on(axis),
                            {.affine = pick(2) == 0, .groups = 1 + pick(2), .stacked = pick(2) == 0});
      case 6:
        return b.batch_norm(name("norm"), on(axis), {.affine = pick(2) == 0});
      case 7:
        return b.activate(on(axis), any_activation(), name("activation"));
      case 8:
        return b.linear("shared", on(axis), dim, {.activation = silu});
      case 9: {
        const std::string block = name("residual");
        const auto product = b.linear(block, wide_concat(axis), dim);
        return b.activate(pick(2) == 0 ? product + on(axis) : on(axis) + product, any_activation(), block);
      }
      case 10:
        return on(axis) * b.sigmoid(b.linear(name("head"), wide_concat(axis), 1) + b.reduce(on(axis), mean));
      case 11:
      case 12:
      case 13:
      case 14:
      case 15:
      case 16: {
        const auto head = [&] {
          return b.mlp(name("head"), wide_concat(axis), {6, 1}, any_activation(), {.output_activation = sigmoid});
        };
        const Tensor first = head(), second = head();
        const Tensor product = pick(2) == 0 ? first * second : first * second * head();
        return b.linear(name("linear"), b.concat({product, second, on(axis)}), dim);
      }
      case 17: {
        const Tensor x = b.concat({on(axis), on(axis)});
        if (pick(2) == 0) return b.slice(b.mix_tokens(name("mix_tokens"), x, 2), 1, 1 + dim);
        return b.rank_mixer(
            name("rank_mixer"), x,
            {.tokens = 2, .hidden = 3, .layers = 1 + pick(2), .experts = pick(4), .activation = any_activation()});
      }
      case 18: {
        const int64_t field = int64_t{1} << pick(3), kept = pick(static_cast<int>(dim / field) + 1);
        const int64_t summed = dim - kept * field;
        std::vector<Tensor> x = {pick(2) == 0 ? on(axis) : wide_concat(axis)};
        if (pick(3) == 0) {
          const bool split_half = pick(2) == 0;
          const int64_t first = split_half ? 4 : 2;  // of both layers together 4 results
          return b.cin(name("cin"), x[0], field,
                       {.layers = {first, 2}, .split_half = split_half, .activation = activation_without_tensors()});
        }
        if (pick(2) == 0) x.push_back(on(axis));
        return b.field_linear(name("field_linear"), x, field, std::max(kept, summed) + pick(3),
                              {pick(2) == 0, activation_without_tensors(), kept, summed});
      }
      case 19: {
        const int64_t field = int64_t{1} << pick(3);
        const AutoIntOptions options{
            1 + pick(2), 1, field, pick(2) == 0, activation_without_tensors(), pick(2) == 0 ? 0.0f : 0.5f};
        return b.auto_int(name("auto_int"), on(axis), field, options);
      }
      default:
        return on(axis) + b.wide(name("wide"), {on(axis), on(axis)});
    }
  }

  Tensor interaction(Axis axis) {
    Builder& b = *b_;
    switch (pick(with_custom_ ? 7 : 6)) {
      case 0:
        return b.slice(b.cross(name("cross"), wide_concat(axis), {.layers = 1 + pick(3), .rank = pick(2) * 3}), 1,
                       1 + dim);
      case 1:
        return b.fm({on(axis), b.concat({on(axis), on(axis)})}, dim, {.reduce = false});
      case 2:
        return b.fm({wide_concat(axis), on(axis)}, dim) * on(axis);
      case 3:
        return b.linear(name("dot"), dots(axis), dim);
      case 4:
        return b.slice(wide_concat(axis), 2, 2 + dim);
      case 5:
        return on(axis) - b.reduce(wide_concat(axis), any_pooling());
      default:
        return b.custom("fold", {on(axis), any(of_user_)}, axis, dim);
    }
  }

  Tensor dots(Axis axis) {
    if (pick(4) == 0) {
      const int64_t field = int64_t{1} << pick(3);
      return b_->wukong(name("wukong"), wide_concat(axis), field,
                        {.layers = 1 + pick(2),
                         .machine_fields = 1 + pick(3),
                         .linear_fields = 1 + pick(3),
                         .rank = 1 + pick(3),
                         .hidden = {5},
                         .activation = any_activation()});
    }
    if (pick(3) == 0) return b_->dot_between({on(axis), on(axis)}, {b_->concat({on(axis), on(axis)}), on(axis)}, dim);
    return b_->dot({on(axis), on(axis), on(axis), on(axis)}, dim, {any_order(), pick(2) == 0});
  }

  Tensor elementwise(Axis axis) {
    using Function = ElementwiseFunction;
    Builder& b = *b_;
    const Tensor x = on(axis), y = on(axis);
    const auto binary = static_cast<Function>(pick(static_cast<int>(Function::select)));
    switch (pick(7)) {
      case 0:
        return x * y + 0.5f;
      case 1:
        return b.select(b.apply(Function::less, {x, y}), on(axis), -on(axis));
      case 2:
        return b.softmax(x) * b.reduce(y, mean);
      case 3:
        return binary == Function::div ? x / (1 + b.apply(Function::abs, {y})) : b.apply(binary, {x, y});
      case 4:
        return b.apply(Function::log, {1.5 + b.apply(Function::square, {x})});
      case 5:
        return b.apply(Function::cos, {x}) * b.apply(Function::sin, {y});
      default:
        return b.apply(Function::exp, {b.tanh(x)}) - b.apply(Function::sqrt, {0.25 + b.apply(Function::abs, {y})});
    }
  }

  void add_over_events() {
    Builder& b = *b_;
    const bool of_items = pick(3) != 0;
    const Tensor q = on(of_items ? item_ : session_);
    std::vector<Tensor>& list = of_items ? of_item_ : of_session_;
    switch (pick(6)) {
      case 0:
        list.push_back(b.din_attention(name("din"), q,
                                       pick(2) == 0 ? any(of_history_) + any(of_history_) : any(of_history_),
                                       {pick(2) == 0 ? std::vector<int64_t>{6, 3} : std::vector<int64_t>{5},
                                        any_activation(), any_normalization(), pick(2) == 0}));
        return;
      case 1:
        list.push_back(b.target_attention(name("target"), q, any(of_history_),
                                          {.heads = 2, .head_dim = 3 * pick(2), .out = dim, .bias = pick(2) == 0}));
        return;
      case 2: {
        const Tensor y = b.self_attention(name("self"), any(of_history_),
                                          {.heads = 2,
                                           .hidden = 6,
                                           .activation = any_activation(),
                                           .norm_first = pick(2) == 0,
                                           .causal = pick(2) == 0});
        of_history_.push_back(y);
        of_session_.push_back(b.pool(y, any_pooling()));
        return;
      }
      case 3: {
        const bool has_context = pick(3) == 0;
        std::vector<Tensor> sequence{any(of_history_), q};
        if (has_context) sequence.insert(sequence.begin(), any(of_history_));
        HstuOptions options{.heads = 1 + pick(2),
                            .head_dim = 3 * pick(2),
                            .max_length = 1 + pick(9),
                            .scale = 0.5f * pick(2),
                            .eps = 0.1f,
                            .contexts = has_context ? 1 : 0,
                            .contexts_see_events = pick(2) == 0,
                            .window = pick(2) * (1 + pick(4)),
                            .gate = static_cast<HstuGate>(pick(3)),
                            .norm_by_part = pick(2) == 0};
        add_biases(of_items ? item_ : session_, options);
        const std::vector<Tensor> y = b.hstu(name("hstu"), sequence, options);
        of_history_.push_back(y[y.size() - 2]);
        list.push_back(y.back());
        return;
      }
      case 4: {
        const Tensor states = b.gru(name("gru"), any(of_history_), dim);
        of_history_.push_back(states);
        list.push_back(b.augru(name("augru"), q, any(of_history_), states, dim,
                               {.update_gate = pick(2) == 0, .scale = pick(2) == 0 ? 0.0f : 0.5f}));
        return;
      }
      default:
        of_session_.push_back(b.pool(on(item_), any_pooling()));
    }
  }

  /// Of the history and of targets on an axis.
  void add_biases(Axis targets, HstuOptions& options) {
    const int which = pick(4);  // none, by position, by time, both
    options.bias_by_head = which > 0 && pick(2) == 0;
    options.clamp_positions = which % 2 == 1 && pick(2) == 0;
    if (which % 2 == 1) options.positions = options.clamp_positions ? 1 + pick(3) : 6;
    if (which < 2) return;
    Builder& b = *b_;
    options.time_buckets = 1 + pick(9);
    options.time_bucket_width = 0.0625f * static_cast<float>(1 + pick(4));  // times are of about 1
    const auto time = [&](Axis axis) { return b.dense(name("time"), axis, 1); };
    const Tensor now = pick(2) == 0 ? time(targets) : b.expand(time(user_), targets);
    options.times = {time(history_), now};
    if (pick(2) == 0) options.next_times = {time(history_), now};
  }

  DotOrder any_order() {
    return std::vector<DotOrder>{DotOrder::lower, DotOrder::upper,
                                 DotOrder::lower_padded}[static_cast<size_t>(pick(3))];
  }
  Normalization any_normalization() {
    return std::vector<Normalization>{Normalization::none, Normalization::softmax,
                                      Normalization::sigmoid}[static_cast<size_t>(pick(3))];
  }

  std::mt19937 random_;
  bool with_custom_;
  int counter_ = 0;
  Builder* b_ = nullptr;
  Axis user_, session_, item_, history_, tags_, history_tags_;
  Table direct_, hashed_;
  std::vector<Ids> scenes_;
  std::vector<Tensor> of_user_, of_session_, of_item_, of_history_;
};

}  // namespace warprank::test_support
