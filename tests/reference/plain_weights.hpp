// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Weights and tables as plain numbers.

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/cell.hpp"
#include "reference/embedding_bag.hpp"
#include "warprank/plan/plan.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank::reference {

using PlainWeights = std::map<std::string, std::vector<float>>;

inline PlainWeights plain_weights(const Plan& plan, const Weights& weights) {
  PlainWeights plain;
  for (const Parameter& parameter : plan.parameters()) {
    std::vector<float> values(static_cast<size_t>(num_elements(parameter.shape).value()));
    weights.copy_to(parameter, values);
    plain.emplace(parameter.name, std::move(values));
  }
  return plain;
}

struct PlainTable {
  bool hashed = false;
  std::map<int64_t, Row> rows;  ///< by row number, or by key
  Row unknown;                  ///< the row of ids that are not in the table
};

inline std::map<std::string, PlainTable> plain_tables(const Graph& graph, const Weights& weights) {
  const auto element = [](const TensorView& tensor, int64_t i) -> double {
    switch (*tensor.dtype) {
      case DType::f32:
        return load_element<float>(tensor.data, i);
      case DType::f16:
        return value_of_half(load_element<uint16_t>(tensor.data, i));
      case DType::bf16:
        return value_of_bfloat16(load_element<uint16_t>(tensor.data, i));
      default:
        return load_element<int8_t>(tensor.data, i);
    }
  };
  std::map<std::string, PlainTable> plain;
  for (const TableInfo& info : graph.tables) {
    PlainTable table{info.hashed, {}, Row(static_cast<size_t>(info.dim))};
    const TensorView& rows = *weights.find(info.hashed ? info.name + ".rows" : info.name);
    const TensorView *keys = weights.find(info.name + ".keys"), *scale = weights.find(info.name + ".scale"),
                     *offset = weights.find(info.name + ".offset"), *unknown = weights.find(info.name + ".default");
    for (int64_t r = 0; r < rows.shape[0]; ++r) {
      Row row;
      for (int64_t c = 0; c < info.dim; ++c) {
        Cell x = exact(element(rows, r * info.dim + c));
        if (scale != nullptr) {
          const double product = element(*scale, r) * x.value, sum = product + element(*offset, r);
          x = cell(sum, std::fabs(product) + std::fabs(sum));
        }
        row.push_back(x);
      }
      table.rows.emplace(info.hashed ? load_element<int64_t>(keys->data, r) : r, std::move(row));
    }
    if (unknown != nullptr)
      for (int64_t c = 0; c < info.dim; ++c) table.unknown[static_cast<size_t>(c)] = exact(element(*unknown, c));
    plain.emplace(info.name, std::move(table));
  }
  return plain;
}

}  // namespace warprank::reference
