// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// A food-delivery ranking model of the size that Meituan reports (2022), about 26 MFLOP per item as a framework would
/// compute it: 90 user features (1,600 columns), 50 item features (800), two histories of 100 x 64 with DIN attention,
/// four experts and a shared tower on the 2,528 columns, two gates over the five outputs, two targets with CXR = CTR x
/// CVR.
inline warprank::Outputs meituan_like(warprank::Builder& b) {
  using namespace warprank;
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto features = [&](const std::string& prefix, Axis axis, int count, auto dim_of) {
    std::vector<Tensor> rows;
    for (int i = 0; i < count; ++i) {
      const std::string name = prefix + std::to_string(i);
      rows.push_back(b.embed(b.ids(name, axis), b.hashed_table(name, {.dim = dim_of(i)})));
    }
    return b.concat(rows);
  };
  const auto of_user = features("user_", user, 90, [](int i) { return i < 70 ? 16 : 24; });  // 70 x 16 + 20 x 24 = 1600
  const auto of_item = features("item_", item, 50, [](int) { return 16; });
  const auto shops = b.hashed_table("shop", {.dim = 64});
  const auto shop = b.embed(b.ids("shop_id", item), shops);
  std::vector<Tensor> interests;
  for (const std::string name : {"clicked", "ordered"}) {
    const auto events = b.embed(b.ids(name, b.axis(name, user, keep_last(100))), shops);
    interests.push_back(b.din_attention("attention_" + name, shop, events, {.hidden = {64, 32}, .activation = dice}));
  }
  const auto x = b.concat({b.expand(of_user, item), of_item, interests[0], interests[1]});
  const auto experts = b.concat({b.experts("experts", x, 4, {512, 256}),
                                 b.mlp("shared", x, {1024, 512, 256}, relu, {.output_activation = relu})});
  const auto tower = [&](const std::string& name) {
    return b.sigmoid(b.mlp("tower_" + name, b.mix(experts, b.gate("gate_" + name, x, 5)), {128, 1}, relu));
  };
  const auto ctr = tower("ctr"), cvr = tower("cvr");
  return {{"ctr", ctr}, {"cvr", cvr}, {"cxr", ctr * cvr}};
}

}  // namespace models
