// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The model with its weights, ready to score requests.

#include <cstdint>
#include <string>
#include <vector>

#include "features.hpp"
#include "inputs.hpp"
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
  /// From the folder with dense.safetensors and tables.safetensors. Batches above the capacity are scored, too.
  explicit Ranker(const std::string& folder, warprank::Device device = warprank::host(),
                  const warprank::plan::Capacity& capacity = {.requests = 1, .items = 2000},
                  const warprank::BindOptions& options = {})
      : device_(device),
        plan_(warprank::compile(din_mmoe, {.capacities = {capacity}})),
        model_(warprank::Model::bind(plan_, warprank::Weights::open(folder + "/dense.safetensors"),
                                     warprank::Tables::load(plan_, folder + "/tables.safetensors", device), options)),
        context_(model_.context()),
        batch_(model_.batch()),
        inputs_(plan_) {}

  const warprank::Plan& plan() const { return plan_; }
  const char* engine() const { return device_.engine->name(); }

  /// Scores several requests in one run. Throws invalid_argument when one of them is not what the model asks for.
  std::vector<Probabilities> score(const std::vector<RequestFeatures>& requests) {
    batch_.clear();
    for (const RequestFeatures& features : requests) inputs_.fill(batch_.add_request(), features);
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
  warprank::Device device_;
  warprank::Plan plan_;
  warprank::Model model_;
  warprank::Context context_;
  warprank::Batch batch_;
  Inputs inputs_;
};

}  // namespace movielens
