// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "warprank/weights/safetensors.hpp"

namespace warprank::test_support {

/// The tensor `request/<r>/<name>` of every request of tests/golden/<file>.safetensors, one behind the other, and how
/// many rows of it each request has.
template <class Value>
struct GoldenTensor {
  std::vector<Value> values;
  std::vector<int64_t> rows;
};
template <class Value>
GoldenTensor<Value> golden_tensor(const std::string& file, const std::string& name) {
  const SafetensorsFile content(std::string(WARPRANK_TEST_DATA) + "/golden/" + file + ".safetensors");
  GoldenTensor<Value> all;
  for (int r = 0; r < std::stoi(content.metadata().at("requests")); ++r) {
    const TensorView& tensor = content.tensors().at("request/" + std::to_string(r) + "/" + name);
    for (int64_t i = 0; i < tensor.size(); ++i) all.values.push_back(load_element<Value>(tensor.data, i));
    all.rows.push_back(tensor.shape[0]);
  }
  return all;
}

}  // namespace warprank::test_support
