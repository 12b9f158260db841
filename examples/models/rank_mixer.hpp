// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// RankMixer (Zhu et al. 2025) of 100 million parameters: the features of a user and an item as 16 tokens of 768
/// columns, and two layers.
inline warprank::Outputs rank_mixer(warprank::Builder& b) {
  using namespace warprank;
  const auto user = b.axis("user"), item = b.axis("item", user);
  std::vector<Tensor> of_user, of_item;
  for (int i = 0; i < 24; ++i) {
    const std::string name = std::to_string(i);
    of_user.push_back(b.embed(b.ids("user_" + name, user), b.table("user_" + name, {.dim = 32})));
    of_item.push_back(b.embed(b.ids("item_" + name, item), b.table("item_" + name, {.dim = 32})));
  }
  const auto fields = b.concat({b.expand(b.concat(of_user), item), b.concat(of_item)});
  const auto mixed = b.rank_mixer("mixer", fields, {.tokens = 16, .dim = 768, .hidden = 2048, .layers = 2});
  return {{"ctr", b.sigmoid(b.linear("ctr", mixed, 1))}};
}

}  // namespace models
