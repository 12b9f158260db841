// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// DLRM (Naumov et al. 2019) in MLPerf's shape: 13 dense values through 512-256-128, 26 tables of 128 columns, dots of
/// all pairs, 1024-1024-512-256-1.
inline warprank::Outputs dlrm(warprank::Builder& b) {
  using namespace warprank;
  const auto request = b.axis("request"), sample = b.axis("sample", request);
  const auto bottom = b.mlp("bottom", b.dense("dense", sample, 13), {512, 256, 128}, relu, {.output_activation = relu});
  std::vector<Tensor> fields = {bottom};
  for (int i = 0; i < 26; ++i) {
    const std::string name = "category_" + std::to_string(i);
    fields.push_back(b.embed(b.ids(name, sample), b.table(name, {.dim = 128})));
  }
  const auto top = b.concat({bottom, b.dot(fields, 128)});
  return {{"ctr", b.sigmoid(b.mlp("top", top, {1024, 1024, 512, 256, 1}, relu))}};
}

}  // namespace models
