// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// Wukong (Zhang et al. 2024) over 32 features of a user and an item, fields of 64 columns, with three layers.
inline warprank::Outputs wukong(warprank::Builder& b) {
  using namespace warprank;
  const auto user = b.axis("user"), item = b.axis("item", user);
  std::vector<Tensor> of_user, of_item;
  for (int i = 0; i < 16; ++i) {
    const std::string name = std::to_string(i);
    of_user.push_back(b.embed(b.ids("user_" + name, user), b.table("user_" + name, {.dim = 64})));
    of_item.push_back(b.embed(b.ids("item_" + name, item), b.table("item_" + name, {.dim = 64})));
  }
  const auto fields = b.concat({b.expand(b.concat(of_user), item), b.concat(of_item)});
  const auto mixed = b.wukong("wukong", fields, 64,
                              {.layers = 3, .machine_fields = 16, .linear_fields = 16, .rank = 16, .hidden = {256}});
  return {{"ctr", b.sigmoid(b.mlp("top", mixed, {256, 128, 1}))}};
}

}  // namespace models
