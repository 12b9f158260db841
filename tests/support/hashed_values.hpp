// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Weights and tables that are made up alike here and in Python: tools/golden/hashed_values.py has the formulas.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/random_data.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/plan/plan.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank::test_support {

/// The first outputs of splitmix64 seeded with the FNV-1a hash of `name`.
inline std::vector<uint64_t> hashed_bits(const std::string& name, size_t count) {
  uint64_t state = 0xCBF29CE484222325;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  std::vector<uint64_t> bits(count);
  for (uint64_t& z : bits) {
    state += 0x9E3779B97F4A7C15;
    z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
  }
  return bits;
}

/// Multiples of 2^-15 in [-1, 1), times `scale`, plus `shift`.
inline StoredTensor hashed_floats(const std::string& name, const Shape& shape, float scale = 1, float shift = 0) {
  std::vector<float> values;
  for (const uint64_t bits : hashed_bits(name, static_cast<size_t>(num_elements(shape).value())))
    values.push_back((static_cast<float>(bits >> 48) / 32768 - 1) * scale + shift);
  return make_tensor(shape, values);
}

inline Weights hashed_weights(const Plan& plan) {
  std::map<std::string, StoredTensor> tensors;
  for (const Parameter& parameter : plan.parameters()) {
    float scale = 0.125f, shift = 0;
    if (parameter.is_matrix)
      for (scale = 1; 3 / (scale * scale) < static_cast<float>(parameter.shape.back());) scale /= 2;
    if (ends_with(parameter.name, ".running_var")) scale = 0.5f, shift = 1;
    tensors.emplace(parameter.name, hashed_floats(parameter.name, parameter.shape, scale, shift));
  }
  return Weights::from_tensors(std::move(tensors));
}

inline Weights hashed_tables(const Graph& graph, int64_t rows) {
  std::map<std::string, StoredTensor> tensors;
  for (const TableInfo& table : graph.tables) {
    const std::string name = table.hashed ? table.name + ".rows" : table.name;
    tensors.emplace(name, hashed_floats(name, {rows, table.dim}));
    if (!table.hashed) continue;
    std::vector<int64_t> keys;
    for (const uint64_t bits : hashed_bits(table.name + ".keys", static_cast<size_t>(rows)))
      keys.push_back(static_cast<int64_t>(bits));
    tensors.emplace(table.name + ".keys", make_tensor({rows}, keys));
  }
  return Weights::from_tensors(std::move(tensors));
}

}  // namespace warprank::test_support
