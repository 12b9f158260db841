// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The model with its weights, ready to score requests on the host.

#include <cstdint>
#include <string>
#include <vector>

#include "features.hpp"
#include "model.hpp"
#include "warprank/host.hpp"

namespace movielens {

/// For each film of a request, in its order.
struct Probabilities {
  std::vector<float> liked;  ///< P(rating >= 4)
  std::vector<float> loved;  ///< P(rating = 5)
};

class Ranker {
 public:
  /// From the folder with dense.safetensors and tables.safetensors.
  explicit Ranker(const std::string& folder)
      : plan_(warprank::compile(din_mmoe, {.capacities = {{.requests = 1, .items = 2000}}})),
        model_(warprank::bind(plan_, warprank::Weights::open(folder + "/dense.safetensors"),
                              warprank::Tables::load(plan_, folder + "/tables.safetensors", warprank::host()))),
        context_(model_.context()),
        batch_(plan_.batch()) {}

  const warprank::Plan& plan() const { return plan_; }
  const char* engine() const { return warprank::host().engine->name(); }

  /// Scores several requests in one run. Throws invalid_argument when one of them is not what the model asks for.
  std::vector<Probabilities> score(const std::vector<RequestFeatures>& requests) {
    batch_.clear();
    for (const RequestFeatures& features : requests) fill(batch_.add_request(), features);
    const warprank::Scores scores = context_.run(batch_);
    const warprank::OutputScores liked = scores["ctr"], loved = scores["ctcvr"];
    std::vector<Probabilities> probabilities;
    for (int64_t r = 0; r < batch_.size(); ++r) {
      if (!batch_.status(r).ok())
        throw warprank::invalid_argument("request " + std::to_string(r), "a valid one", batch_.status(r).message);
      probabilities.push_back({{liked.of(r).begin(), liked.of(r).end()}, {loved.of(r).begin(), loved.of(r).end()}});
    }
    return probabilities;
  }

 private:
  void fill(warprank::Request request, const RequestFeatures& from) const {
    request.ids(user_id_, {from.user_id}).ids(age_, {from.age}).ids(gender_, {from.gender});
    request.ids(occupation_, {from.occupation}).dense(user_context_, from.user_context);
    request.ids(hist_film_id_, from.hist_film_id).ids(hist_rating_, from.hist_rating);
    request.ids(hist_genre_, from.hist_genre.values, warprank::Offsets(from.hist_genre.offsets));
    request.ids(film_id_, from.film_id).ids(year_, from.year).dense(film_context_, from.film_context);
    request.ids(genre_, from.genre.values, warprank::Offsets(from.genre.offsets)).finish();
  }

  warprank::Plan plan_;
  warprank::Model model_;
  warprank::Context context_;
  warprank::Batch batch_;

  // Inputs are looked up by name once.
  warprank::IdsSlot user_id_ = plan_.ids("user_id"), age_ = plan_.ids("age"), gender_ = plan_.ids("gender"),
                    occupation_ = plan_.ids("occupation"), hist_film_id_ = plan_.ids("hist_film_id"),
                    hist_rating_ = plan_.ids("hist_rating"), hist_genre_ = plan_.ids("hist_genre"),
                    film_id_ = plan_.ids("film_id"), year_ = plan_.ids("year"), genre_ = plan_.ids("genre");
  warprank::DenseSlot user_context_ = plan_.dense("user_context"), film_context_ = plan_.dense("film_context");
};

}  // namespace movielens
