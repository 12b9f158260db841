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
  explicit RandomModel(uint32_t seed) : random_(seed) {}

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
    scene_ = b.ids("scene", session_);

    add_inputs("u", user_, of_user_);
    add_inputs("s", session_, of_session_);
    add_inputs("i", item_, of_item_);
    add_inputs("h", history_, of_history_);
    const auto weight = b.dense("tag_weight", tags_, 1);
    of_item_.push_back(b.embed_bag(b.ids("tag", tags_), direct_, mean));
    of_item_.push_back(b.embed_bag(b.ids("weighted_tag", tags_), hashed_, sqrtn, weight));
    of_history_.push_back(b.embed_bag(b.ids("history_tag", history_tags_), direct_, maximum));

    const int steps = 6 + pick(8);
    for (int i = 0; i < steps; ++i) add_operation();
    Outputs outputs;
    const auto score = b.mlp(name("tower"), wide_concat(item_), {8, 1}, any_activation());
    outputs.emplace_back("score", b.sigmoid(score));
    outputs.emplace_back("raw", any(of_item_));
    outputs.emplace_back("of_user", any(of_user_));
    return outputs;
  }

 private:
  static constexpr int64_t dim = 4;

  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  Tensor any(const std::vector<Tensor>& list) { return list[static_cast<size_t>(pick(static_cast<int>(list.size())))]; }
  std::string name(const std::string& prefix) { return prefix + std::to_string(counter_++); }
  Activation any_activation() {
    const Activation all[] = {relu,  dice,         prelu,   sigmoid, gelu, silu, hyperbolic_tangent,
                              elu(), leaky_relu(), identity};
    return all[pick(10)];
  }

  void add_inputs(const std::string& prefix, Axis axis, std::vector<Tensor>& list) {
    list.push_back(b_->embed(b_->ids(prefix + "_direct", axis), direct_));
    list.push_back(b_->embed(b_->ids(prefix + "_hashed", axis), hashed_));
    list.push_back(b_->dense(prefix + "_dense", axis, dim));
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
    Builder& b = *b_;
    const Axis axes[] = {user_, session_, item_, item_, item_};
    const Axis axis = axes[pick(5)];
    Tensor y;
    switch (pick(16)) {
      case 0:
        y = b.linear(name("linear"), wide_concat(axis), dim, {pick(2) == 0, any_activation()});
        break;
      case 1:
        y = b.mlp(name("mlp"), wide_concat(axis), {6, dim}, any_activation(), {.batch_norm = pick(2) == 0});
        break;
      case 2: {
        const auto x = wide_concat(axis);
        y = b.mix(b.experts(name("experts"), x, 3, {5, dim}), b.gate(name("gate"), pick(2) == 0 ? x : on(axis), 3),
                  pick(2) == 0 ? Normalization::softmax : Normalization::sigmoid);
        break;
      }
      case 3:
        y = b.slice(b.cross(name("cross"), wide_concat(axis), {.layers = 2, .rank = pick(2) * 3}), 1, 1 + dim);
        break;
      case 4:
        y = b.fm({on(axis), b.concat({on(axis), on(axis)})}, dim, {.reduce = false});
        break;
      case 5:
        y = b.linear(name("dot"), b.dot({on(axis), on(axis), on(axis), on(axis)}, dim, {any_order(), pick(2) == 0}),
                     dim);
        break;
      case 6:
        y = on(axis) * on(axis) + 0.5f;
        break;
      case 7:
        y = b.select(b.apply(ElementwiseFunction::less, {on(axis), on(axis)}), on(axis), -on(axis));
        break;
      case 8:
        y = b.layer_norm(name("layer_norm"), on(axis));
        break;
      case 9:
        y = b.softmax(on(axis)) * b.reduce(on(axis), mean);
        break;
      case 10:
        y = on(axis) + b.wide(name("wide"), {on(axis), on(axis)});
        break;
      case 11:
        y = b.slice(wide_concat(axis), 2, 2 + dim);
        break;
      case 12:
        y = b.din_attention(name("din"), on(item_), any(of_history_),
                            {{6, 3}, any_activation(), any_normalization(), pick(2) == 0});
        of_item_.push_back(y);
        return;
      case 13:
        y = b.target_attention(name("target"), on(item_), any(of_history_), {.heads = 2});
        of_item_.push_back(y);
        return;
      case 14:
        y = b.self_attention(name("self"), any(of_history_),
                             {.heads = 2, .hidden = 6, .norm_first = pick(2) == 0, .causal = pick(2) == 0});
        of_history_.push_back(y);
        of_session_.push_back(b.pool(y, pick(2) == 0 ? mean : maximum));
        return;
      default: {
        const Axis below = axis.index == user_.index ? session_ : axis;  // scenes are the session's
        list_of(below).push_back(b.scene_experts(name("scene"), on(below), scene_, 4, {5, dim}));
        return;
      }
    }
    list_of(axis).push_back(y);
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
  int counter_ = 0;
  Builder* b_ = nullptr;
  Axis user_, session_, item_, history_, tags_, history_tags_;
  Table direct_, hashed_;
  Ids scene_;
  std::vector<Tensor> of_user_, of_session_, of_item_, of_history_;
};

}  // namespace warprank::test_support
