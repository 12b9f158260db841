// SPDX-License-Identifier: Apache-2.0
#pragma once

/// tests/ids/vectors.json, which TensorFlow has made (tools/ids_vectors.py): what host, kernels and Python are held to.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "warprank/ids/fingerprint.hpp"

namespace id_vectors {

inline const nlohmann::json& document() {
  static const nlohmann::json parsed =
      nlohmann::json::parse(std::ifstream(WARPRANK_TEST_DATA "/ids/vectors.json", std::ios::binary));
  return parsed;
}

/// The text that stands in hexadecimal digits.
inline std::string bytes(const nlohmann::json& hex) {
  const std::string digits = hex.get<std::string>();
  std::string text;
  for (size_t i = 0; i < digits.size(); i += 2)
    text += static_cast<char>(std::strtol(digits.substr(i, 2).c_str(), nullptr, 16));
  return text;
}
inline uint64_t fingerprint(const nlohmann::json& hex) {
  return std::strtoull(hex.get<std::string>().c_str(), nullptr, 16);
}
/// Numbers, among them "nan", "inf" and "-inf".
inline std::vector<float> numbers(const nlohmann::json& values) {
  std::vector<float> result;
  for (const nlohmann::json& value : values)
    result.push_back(value.is_string() ? std::strtof(value.get<std::string>().c_str(), nullptr) : value.get<float>());
  return result;
}
inline std::vector<warprank::ids::Fingerprint> parts(const nlohmann::json& values) {
  std::vector<warprank::ids::Fingerprint> result;
  for (const nlohmann::json& part : values) {
    if (part.contains("bytes"))
      result.push_back(bytes(part["bytes"]));
    else
      result.push_back(warprank::ids::Fingerprint::from_value(fingerprint(part["fingerprint"])));
  }
  return result;
}

}  // namespace id_vectors
