// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// Wide & Deep (Cheng et al. 2016) as an ads bidder runs it: 80 wide ids, 60 deep ones (24 of the user with 360
/// columns, 36 of the item with 240), three layers of 256, the sum through a sigmoid.
inline warprank::Outputs wide_deep(warprank::Builder& b) {
  using namespace warprank;
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto features = [&](const std::string& prefix, Axis axis, int count, auto dim_of) {
    std::vector<Tensor> rows;
    for (int i = 0; i < count; ++i) {
      const std::string name = prefix + std::to_string(i);
      rows.push_back(b.embed(b.ids(name, axis), b.table(name, {.dim = dim_of(i)})));
    }
    return b.concat(rows);
  };
  const auto one = [](int) { return 1; };
  const auto wide =
      b.wide("wide", {b.expand(features("wide_user_", user, 40, one), item), features("wide_item_", item, 40, one)});
  const auto deep_user =
      features("user_", user, 24, [](int i) { return i % 3 == 0 ? 29 : 8; });  // 8 x 29 + 16 x 8 = 360
  const auto deep_item =
      features("item_", item, 36, [](int i) { return i % 3 == 0 ? 12 : 4; });  // 12 x 12 + 24 x 4 = 240
  const auto deep = b.mlp("deep", b.concat({b.expand(deep_user, item), deep_item}), {256, 256, 256, 1}, relu);
  return {{"ctr", b.sigmoid(deep + wide)}};
}

}  // namespace models
