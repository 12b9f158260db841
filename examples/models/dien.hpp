// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/model.hpp"

namespace models {

/// DIEN (Zhou et al. 2019) with the sizes of its authors' code: ids of 18 columns, an item and its category side by
/// side; a GRU over the last 100 of a user's items, whose states are the user's interests; and an AUGRU that follows
/// the candidate's attention to them.
inline warprank::Outputs dien(warprank::Builder& b) {
  using namespace warprank;
  const auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user, keep_last(100));
  const auto items = b.hashed_table("item", {.dim = 18}), categories = b.hashed_table("category", {.dim = 18});
  const auto embedded = [&](const char* id, const char* category, Axis axis) {
    return b.concat({b.embed(b.ids(id, axis), items), b.embed(b.ids(category, axis), categories)});
  };
  const auto candidate = embedded("item_id", "item_category", item);
  const auto events = embedded("past_items", "past_categories", history);
  const auto interests = b.gru("interests", events, 36);
  const auto query = b.linear("query", candidate, 36, {.bias = false});
  const auto evolved = b.augru("evolution", query, interests, interests, 36);
  const auto past = b.expand(b.pool(events, sum), item);
  const auto who = b.expand(b.embed(b.ids("user_id", user), b.hashed_table("user", {.dim = 18})), item);
  const auto x = b.concat({who, candidate, past, candidate * past, evolved});
  return {{"ctr", b.sigmoid(b.mlp("tower", x, {200, 80, 1}, dice))}};
}

}  // namespace models
