// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "warprank/batch/batch.hpp"

namespace rank_client {

/// Sets the inputs of a request from JSON: arrays by input, ids [rows], dense values [rows][width], and
/// "<axis>.offsets" of axes that are nested in another than the outermost. Throws warprank::invalid_argument for
/// unknown names, and nlohmann::json::exception for values that are no numbers.
inline void fill(warprank::Request request, const warprank::BatchLayout& layout, const nlohmann::json& values) {
  const std::string suffix = ".offsets";
  const auto is_dense = [&](const std::string& name) {
    const std::vector<warprank::DenseInfo>& dense = layout.dense();
    return std::any_of(dense.begin(), dense.end(), [&](const warprank::DenseInfo& info) { return info.name == name; });
  };
  for (const auto& [name, given] : values.items()) {
    const bool is_offsets = name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
    if (is_offsets) {
      const auto offsets = given.get<std::vector<int64_t>>();
      request.offsets(layout.axis(name.substr(0, name.size() - suffix.size())), warprank::Offsets(offsets));
    } else if (is_dense(name)) {
      std::vector<float> dense;
      for (const nlohmann::json& row : given) {
        if (!row.is_array()) dense.push_back(row.get<float>());  // of a width of 1
        for (const nlohmann::json& value : row.is_array() ? row : nlohmann::json::array())
          dense.push_back(value.get<float>());
      }
      request.dense(layout.dense(name), dense);
    } else {
      request.ids(layout.ids(name), given.get<std::vector<int64_t>>());
    }
  }
}

}  // namespace rank_client
