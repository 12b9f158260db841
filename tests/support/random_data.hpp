// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Seeded weights, tables and requests for any plan, for tests and benchmarks.

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/plan/plan.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank::test_support {

inline bool ends_with(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

/// Weights of the size that keeps activations near 1, variances positive.
inline Weights random_weights(const Plan& plan, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> positive(0.5f, 1.5f);
  std::map<std::string, StoredTensor> tensors;
  for (const Parameter& parameter : plan.parameters()) {
    std::vector<float> values(static_cast<size_t>(num_elements(parameter.shape).value()));
    const float scale = parameter.is_matrix ? 1 / std::sqrt(static_cast<float>(parameter.shape.back())) : 0.2f;
    for (float& value : values)
      value = ends_with(parameter.name, ".running_var") ? positive(random) : scale * normal(random);
    tensors.emplace(parameter.name, make_tensor(parameter.shape, values));
  }
  return Weights::from_tensors(std::move(tensors));
}

/// Every table with `rows` rows, keys of hashed ones 7 * row - 3.
inline Weights random_tables(const Plan& plan, int64_t rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.5f);
  std::map<std::string, StoredTensor> tensors;
  for (const TableInfo& table : plan.source().tables) {
    std::vector<float> values(static_cast<size_t>(rows * table.dim));
    for (float& value : values) value = normal(random);
    tensors.emplace(table.hashed ? table.name + ".rows" : table.name, make_tensor({rows, table.dim}, values));
    if (!table.hashed) continue;
    std::vector<int64_t> keys;
    for (int64_t r = 0; r < rows; ++r) keys.push_back(7 * r - 3);
    tensors.emplace(table.name + ".keys", make_tensor({rows}, keys));
  }
  return Weights::from_tensors(std::move(tensors));
}

/// How requests are made: rows of a nested axis per parent row are uniform in [0, most_rows] (or exactly `items` for the
/// axis of that name); ids uniform over the tables' rows with a few unknown and padding ones.
struct RequestShape {
  int64_t table_rows = 50;
  int64_t most_rows = 6;
  std::map<std::string, int64_t> rows = {};  ///< exact numbers per parent row, by axis
  bool odd_ids = true;                       ///< some unknown, out of range, or padding
};

inline void add_random_request(Batch& batch, const RequestShape& shape, std::mt19937& random) {
  const BatchLayout& layout = batch.layout();
  Request request = batch.add_request();
  std::vector<int64_t> rows(layout.axes().size(), 1);
  for (size_t a = 1; a < rows.size(); ++a) {
    const AxisInfo& axis = layout.axes()[a];
    const auto exact = shape.rows.find(axis.name);
    std::vector<int64_t> lengths(static_cast<size_t>(rows[static_cast<size_t>(axis.parent)]));
    const int64_t most = axis.keep_last > 0 ? std::min(shape.most_rows, axis.keep_last) : shape.most_rows;
    rows[a] = 0;
    for (int64_t& length : lengths) {
      length = exact != shape.rows.end() ? exact->second : std::uniform_int_distribution<int64_t>(0, most)(random);
      rows[a] += length;
    }
    request.lengths({static_cast<int>(a)}, Lengths(lengths));
  }
  for (size_t i = 0; i < layout.ids().size(); ++i) {
    std::vector<int64_t> ids(static_cast<size_t>(rows[static_cast<size_t>(layout.ids()[i].axis)]));
    for (int64_t& id : ids) {
      id = std::uniform_int_distribution<int64_t>(0, shape.table_rows - 1)(random);
      const int64_t kind = shape.odd_ids ? std::uniform_int_distribution<int64_t>(0, 9)(random) : 9;
      if (kind == 0) id = -1;
      if (kind == 1) id = shape.table_rows + 5;
      if (kind > 5) id = 7 * (id % std::max<int64_t>(1, shape.table_rows / 7)) - 3;  // a key of hashed tables
    }
    request.ids(IdsSlot{static_cast<int>(i)}, ids);
  }
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < layout.dense().size(); ++i) {
    const DenseInfo& info = layout.dense()[i];
    std::vector<float> values(static_cast<size_t>(rows[static_cast<size_t>(info.axis)] * info.width));
    for (float& value : values) value = normal(random);
    request.dense(DenseSlot{static_cast<int>(i)}, values);
  }
  request.finish();
}

inline Batch random_batch(const Plan& plan, int64_t requests, const RequestShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  Batch batch = plan.batch();
  for (int64_t r = 0; r < requests; ++r) add_random_request(batch, shape, random);
  batch.close();
  return batch;
}

}  // namespace warprank::test_support
