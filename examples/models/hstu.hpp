// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// HSTU (Zhai et al. 2024) that ranks: three layers over a user's last 512 actions and the candidates behind them, each
/// of which is scored as if it were the next action. What an action was is added to the item that it was with; its
/// place is counted from the last one.
inline warprank::Outputs hstu(warprank::Builder& b) {
  using namespace warprank;
  const int64_t dim = 256;
  const auto user = b.axis("user"), candidate = b.axis("candidate", user),
             action = b.axis("action", user, keep_last(512));
  const auto item = b.hashed_table("item", {.dim = dim});
  const auto events = b.embed(b.ids("action_item", action), item) +
                      b.embed(b.ids("action_kind", action), b.table("kind", {.dim = dim})) +
                      b.embed(b.ids("action_place", action), b.table("place", {.dim = dim}));
  std::vector<Tensor> sequence = {events, b.embed(b.ids("item", candidate), item)};
  for (int i = 0; i < 3; ++i) sequence = b.hstu("layer" + std::to_string(i), sequence, {.heads = 4, .max_length = 512});
  const auto seen = b.layer_norm("norm", sequence[1]);
  return {{"click_like_share", b.mlp("tasks", seen, {256, 3}, silu, {.output_activation = sigmoid})}};
}

}  // namespace models
