// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// xDeepFM (Lian et al. 2018) with the sizes of its authors for Criteo: 26 categories as fields of 10 columns, half of
/// them the user's, a compressed interaction network of three layers of 200 maps, two layers of 400, and linear terms.
inline warprank::Outputs xdeepfm(warprank::Builder& b) {
  using namespace warprank;
  const auto user = b.axis("user"), item = b.axis("item", user);
  std::vector<Tensor> fields[2], terms[2];
  for (const bool of_item : {false, true})
    for (int i = 0; i < 13; ++i) {
      const std::string name = (of_item ? "item_" : "user_") + std::to_string(i);
      const auto id = b.ids(name, of_item ? item : user);
      fields[of_item].push_back(b.embed(id, b.table(name, {.dim = 10})));
      terms[of_item].push_back(b.embed(id, b.table("linear_" + name, {.dim = 1})));
    }
  const auto x = b.concat({b.expand(b.concat(fields[0]), item), b.concat(fields[1])});
  const auto linear = b.wide("linear", {b.expand(b.concat(terms[0]), item), b.concat(terms[1])});
  const auto maps = b.cin("cin", x, 10, {.layers = {200, 200, 200}, .split_half = false, .activation = identity});
  const auto deep = b.mlp("deep", x, {400, 400, 1}, relu);
  return {{"ctr", b.sigmoid(linear + b.linear("of_maps", maps, 1) + deep)}};
}

}  // namespace models
