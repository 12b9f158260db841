// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The MovieLens model, another one of the same plan, and what both give for some requests, so that an answer that is
/// of neither is found.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../movielens/inputs.hpp"
#include "warprank/serving.hpp"

namespace serving {

namespace detail {

using Tensors = std::map<std::string, warprank::StoredTensor>;

inline Tensors copy(const warprank::Weights& weights) {
  Tensors tensors;
  for (const std::string& name : weights.names()) {
    const warprank::TensorView& view = *weights.find(name);
    tensors[name] = {*view.dtype, view.shape, {view.data, view.data + view.bytes}};
  }
  return tensors;
}

/// The rows of a tensor in the other order.
inline void reverse_rows(warprank::StoredTensor& tensor) {
  const auto rows = static_cast<size_t>(tensor.shape[0]), bytes = tensor.bytes.size() / rows;
  for (size_t row = 0; row < rows / 2; ++row)
    std::swap_ranges(tensor.bytes.begin() + static_cast<ptrdiff_t>(row * bytes),
                     tensor.bytes.begin() + static_cast<ptrdiff_t>((row + 1) * bytes),
                     tensor.bytes.begin() + static_cast<ptrdiff_t>((rows - 1 - row) * bytes));
}

}  // namespace detail

/// The files of a folder; "film" has at least so many rows: zeros behind its own. `other`: other weights and rows.
inline warprank::NextModel load_model(const std::string& folder, int64_t film_rows, bool other) {
  warprank::NextModel model{.dense = warprank::Weights::open(folder + "/dense.safetensors"),
                            .tables = warprank::Weights::open(folder + "/tables.safetensors")};
  if (film_rows == 0 && !other) return model;
  detail::Tensors tables = detail::copy(model.tables);
  warprank::StoredTensor& films = tables.at("film");
  if (other) {
    detail::Tensors dense = detail::copy(model.dense);
    dense.at("tower_ctr.1.bias") = warprank::make_tensor<float>({1}, {1.0f});
    model.dense = warprank::Weights::from_tensors(std::move(dense));
    detail::reverse_rows(films);
  }
  if (const int64_t rows = films.shape[0]; rows < film_rows) {
    films.bytes.resize(films.bytes.size() / static_cast<size_t>(rows) * static_cast<size_t>(film_rows));
    films.shape[0] = film_rows;
  }
  model.tables = warprank::Weights::from_tensors(std::move(tables));
  return model;
}

/// What models give for the first requests, each alone.
class ExpectedScores {
 public:
  /// For the next version. The context's model is that one.
  void add(warprank::Context& context, const movielens::Inputs& inputs,
           const std::vector<movielens::RequestFeatures>& requests, warprank::Batch batch) {
    std::vector<std::vector<float>>& scores = versions_.emplace_back();
    for (size_t r = 0; r < std::min(requests.size(), most); ++r) {
      batch.clear();
      inputs.fill(batch.add_request(), requests[r]);
      const warprank::Scores got = context.run(batch);
      const warprank::Span<const float> values = got["ctr"].of(0);
      scores.emplace_back(values.begin(), values.end());
    }
  }

  /// Whether a scored reply to a request is what its version gives, versions taking turns. True where nobody knows.
  bool fits(size_t request, const warprank::Reply& reply) const {
    if (versions_.empty() || request >= most) return true;
    const std::vector<float>& expected = versions_[static_cast<size_t>(reply.version - 1) % versions_.size()][request];
    const std::vector<float>& got = reply.scores[0];
    return std::equal(got.begin(), got.end(), expected.begin(), expected.end(),
                      [](float x, float y) { return std::abs(x - y) <= 1e-3f; });  // other capacities round otherwise
  }

 private:
  static constexpr size_t most = 100;

  std::vector<std::vector<std::vector<float>>> versions_;  // [models][requests][rows]
};

}  // namespace serving
