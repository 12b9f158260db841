// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Seeded weights, tables and requests for any plan, for tests and benchmarks.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/plain_request.hpp"
#include "support/zipf.hpp"
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

/// The values as a tensor of `type`; as I8 with the scale and offset of each row, which go into `tensors` under `name`.
inline StoredTensor make_rows(const std::string& name, Shape shape, const std::vector<float>& values, DType type,
                              std::map<std::string, StoredTensor>& tensors) {
  return dispatch_dtype(type, [&](auto tag) {
    using Value = typename decltype(tag)::type;
    std::vector<Value> stored;
    for (const float value : values) {
      if constexpr (std::is_same_v<Value, float>) stored.push_back(value);
      if constexpr (std::is_same_v<Value, float16>) stored.push_back(to_float16(value));
      if constexpr (std::is_same_v<Value, bfloat16>) stored.push_back(to_bfloat16(value));
      if constexpr (std::is_same_v<Value, int8_t>)
        stored.push_back(static_cast<int8_t>(std::clamp(value * 64, -128.0f, 127.0f)));
    }
    if constexpr (std::is_same_v<Value, int8_t>) {
      std::vector<float> scale, offset;
      for (int64_t r = 0; r < shape[0]; ++r) {
        scale.push_back(0.01f + 0.001f * static_cast<float>(r % 7));
        offset.push_back(0.1f * static_cast<float>(r % 5 - 2));
      }
      tensors.emplace(name + ".scale", make_tensor({shape[0]}, scale));
      tensors.emplace(name + ".offset", make_tensor({shape[0]}, offset));
    }
    return make_tensor(std::move(shape), stored);
  });
}

/// Every table with `rows` rows, table t of types[t % their number]; hashed ones with keys 7 * row - 3 and a row for
/// unknown ids.
inline Weights random_tables(const Plan& plan, int64_t rows, uint32_t seed,
                             const std::vector<DType>& types = {DType::f32}) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.5f);
  std::map<std::string, StoredTensor> tensors;
  size_t t = 0;
  for (const TableInfo& table : plan.source().tables) {
    std::vector<float> values(static_cast<size_t>(rows * table.dim));
    for (float& value : values) value = normal(random);
    tensors.emplace(table.hashed ? table.name + ".rows" : table.name,
                    make_rows(table.name, {rows, table.dim}, values, types[t++ % types.size()], tensors));
    if (!table.hashed) continue;
    std::vector<float> unknown(static_cast<size_t>(table.dim));
    for (float& value : unknown) value = normal(random);
    tensors.emplace(table.name + ".default", make_tensor({table.dim}, unknown));
    std::vector<int64_t> keys;
    for (int64_t r = 0; r < rows; ++r) keys.push_back(7 * r - 3);
    tensors.emplace(table.name + ".keys", make_tensor({rows}, keys));
  }
  return Weights::from_tensors(std::move(tensors));
}

/// How requests are made: rows of a nested axis per parent row are uniform in [0, most_rows] (or exactly `items` for
/// the axis of that name), also where keep_last keeps fewer; ids uniform over the tables' rows with a few unknown and
/// padding ones. Half of the inputs that have a default are not set; their axis needs one that has none.
struct RequestShape {
  int64_t table_rows = 50;
  int64_t most_rows = 6;
  std::map<std::string, int64_t> rows = {};  ///< exact numbers per parent row, by axis
  bool odd_ids = true;                       ///< some unknown, out of range, or padding
  double alpha = 0;                          ///< of the ids' Zipf distribution; 0: uniform
};

inline PlainRequest random_request(const BatchLayout& layout, const RequestShape& shape, std::mt19937& random) {
  const auto uniform = [&](int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random);
  };
  PlainRequest request;
  std::vector<int64_t> rows(layout.axes().size(), 1);
  for (size_t a = 1; a < rows.size(); ++a) {
    const AxisInfo& axis = layout.axes()[a];
    const auto exact = shape.rows.find(axis.name);
    std::vector<int64_t>& lengths = request.lengths[axis.name];
    lengths.resize(static_cast<size_t>(rows[static_cast<size_t>(axis.parent)]));
    rows[a] = 0;
    for (int64_t& length : lengths) {
      length = exact != shape.rows.end() ? exact->second : uniform(0, shape.most_rows);
      rows[a] += length;
    }
  }
  const Zipf zipf(shape.table_rows, shape.alpha);
  for (const IdsInfo& info : layout.ids()) {
    if (info.default_id && uniform(0, 1) == 0) continue;
    std::vector<int64_t>& ids = request.ids[info.name];
    ids.resize(static_cast<size_t>(rows[static_cast<size_t>(info.axis)]));
    for (int64_t& id : ids) {
      id = shape.alpha == 0 ? uniform(0, shape.table_rows - 1) : zipf(random);
      const int64_t kind = shape.odd_ids ? uniform(0, 9) : 9;
      if (kind == 0) id = -1;
      if (kind == 1) id = shape.table_rows + 5;
      if (kind > 5) id = 7 * (id % std::max<int64_t>(1, shape.table_rows / 7)) - 3;  // a key of hashed tables
    }
  }
  std::normal_distribution<float> normal;
  for (const DenseInfo& info : layout.dense()) {
    if (info.default_value && uniform(0, 1) == 0) continue;
    std::vector<float>& values = request.dense[info.name];
    values.resize(static_cast<size_t>(rows[static_cast<size_t>(info.axis)] * info.width));
    for (float& value : values) value = normal(random);
  }
  return request;
}

inline Batch random_batch(const Plan& plan, int64_t requests, const RequestShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  Batch batch = plan.batch();
  for (int64_t r = 0; r < requests; ++r) add_to(batch, random_request(batch.layout(), shape, random));
  batch.close();
  return batch;
}

}  // namespace warprank::test_support
