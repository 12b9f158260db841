// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// AutoInt (Song et al. 2019) with the sizes of its authors for Criteo: 39 fields of 16 columns, 26 of them categories
/// and 13 numbers times a learned vector, half of them the user's; three interacting layers of two heads of 32, and one
/// output over all fields.
inline warprank::Outputs auto_int(warprank::Builder& b) {
  using namespace warprank;
  const auto user = b.axis("user"), item = b.axis("item", user);
  std::vector<Tensor> fields[2];
  for (const bool of_item : {false, true}) {
    const std::string whose = of_item ? "item_" : "user_";
    const auto axis = of_item ? item : user;
    for (int i = 0; i < 13; ++i) {
      const std::string name = whose + std::to_string(i);
      fields[of_item].push_back(b.embed(b.ids(name, axis), b.table(name, {.dim = 16})));
    }
    for (int i = 0; i < (of_item ? 6 : 7); ++i) {
      const std::string name = whose + "number_" + std::to_string(i);
      fields[of_item].push_back(b.linear(name, b.dense(name, axis, 1), 16, {.bias = false}));
    }
  }
  const auto x = b.concat({b.expand(b.concat(fields[0]), item), b.concat(fields[1])});
  const auto y = b.auto_int("interacting", x, 16, {.layers = 3, .heads = 2, .head_dim = 32});
  return {{"ctr", b.linear("head", y, 1, {.activation = sigmoid})}};
}

}  // namespace models
