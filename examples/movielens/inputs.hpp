// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From features to a request of the model.

#include "features.hpp"
#include "warprank/model.hpp"

namespace movielens {

/// The inputs of model.hpp, looked up by name once.
class Inputs {
 public:
  explicit Inputs(const warprank::Plan& plan)
      : user_id_(plan.ids("user_id")),
        age_(plan.ids("age")),
        gender_(plan.ids("gender")),
        occupation_(plan.ids("occupation")),
        hist_film_id_(plan.ids("hist_film_id")),
        hist_rating_(plan.ids("hist_rating")),
        hist_genre_(plan.ids("hist_genre")),
        film_id_(plan.ids("film_id")),
        year_(plan.ids("year")),
        genre_(plan.ids("genre")),
        user_context_(plan.dense("user_context")),
        film_context_(plan.dense("film_context")) {}

  void fill(warprank::Request request, const RequestFeatures& from) const {
    request.ids(user_id_, {from.user_id}).ids(age_, {from.age}).ids(gender_, {from.gender});
    request.ids(occupation_, {from.occupation}).dense(user_context_, from.user_context);
    request.ids(hist_film_id_, from.hist_film_id).ids(hist_rating_, from.hist_rating);
    request.ids(hist_genre_, from.hist_genre.values, warprank::Offsets(from.hist_genre.offsets));
    request.ids(film_id_, from.film_id).ids(year_, from.year).dense(film_context_, from.film_context);
    request.ids(genre_, from.genre.values, warprank::Offsets(from.genre.offsets)).finish();
  }

 private:
  warprank::IdsSlot user_id_, age_, gender_, occupation_, hist_film_id_, hist_rating_, hist_genre_, film_id_, year_,
      genre_;
  warprank::DenseSlot user_context_, film_context_;
};

}  // namespace movielens
