// SPDX-License-Identifier: Apache-2.0
#pragma once

/// din_mmoe: which films a user will like, from what the user has rated. DIN attention (Zhou et al. 2018) over the
/// history, experts shared by two tasks (MMoE, Ma et al. 2018), the second task conditional on the first (ESMM, Ma et
/// al. 2018). README.md describes the inputs.

#include "warprank/model.hpp"

namespace movielens {

/// "ctr": P(rating >= 4) of each film; "ctcvr": P(rating = 5), the product of it and P(rating = 5 | rating >= 4).
inline warprank::Outputs din_mmoe(warprank::Builder& b) {
  using namespace warprank;
  auto user = b.axis("user");
  auto item = b.axis("item", user), genres = b.axis("genres", item);
  auto history = b.axis("history", user, keep_last(100)), hist_genres = b.axis("hist_genres", history);

  auto users = b.hashed_table("user", {.dim = 16}), films = b.table("film", {.dim = 16});
  auto genre_table = b.table("genre", {.dim = 8});
  auto film = [&](Ids id, Ids genre) { return b.concat({b.embed(id, films), b.embed_bag(genre, genre_table, mean)}); };
  auto small = [&](const char* name, Axis axis) { return b.embed(b.ids(name, axis), b.table(name, {.dim = 4})); };

  // The user, once per request.
  auto u = b.concat({b.embed(b.ids("user_id", user), users), small("age", user), small("gender", user),
                     small("occupation", user), b.dense("user_context", user, 3)});
  // The films to rank, and those that the user has rated.
  auto q = film(b.ids("film_id", item), b.ids("genre", genres));
  auto k = film(b.ids("hist_film_id", history), b.ids("hist_genre", hist_genres)) +
           b.embed(b.ids("hist_rating", history), b.table("rating", {.dim = 24}));
  auto attended = b.din_attention("attention", q, k, {.hidden = {64, 32}, .activation = dice});

  auto x = b.concat({b.expand(u, item), attended, q, small("year", item), b.dense("film_context", item, 1)});
  auto experts = b.experts("mmoe", x, 4, {128, 64}, relu);
  auto head = [&](const std::string& task) {
    return b.sigmoid(b.mlp("tower_" + task, b.mix(experts, b.gate("gate_" + task, x, 4)), {32, 1}, relu));
  };
  auto liked = head("ctr"), loved = head("cvr");
  return {{"ctr", liked}, {"ctcvr", liked * loved}};
}

}  // namespace movielens
