// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/model.hpp"

namespace models {

/// What late broadcast is for: 1,200 columns that belong to the user, 200 to the item, 256-128-1 on both. Computed once
/// per user, the user's share takes a 1/4.6 of the multiply-adds with 500 items. Requests hold the columns as FP16, as
/// which a GPU multiplies them anyway: 64 users with 500 items send 13 MB, for 26 in FP32.
inline warprank::Outputs user_heavy(warprank::Builder& b) {
  using namespace warprank;
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto of_user = b.dense("user_columns", user, 1200, {.wire = DenseWire::f16});
  const auto of_item = b.dense("item_columns", item, 200, {.wire = DenseWire::f16});
  const auto x = b.concat({b.expand(of_user, item), of_item});
  return {{"ctr", b.sigmoid(b.mlp("tower", x, {256, 128, 1}, relu))}};
}

}  // namespace models
