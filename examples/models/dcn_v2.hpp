// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// DCN-v2 (Wang et al. 2021): as DLRM, with three low-rank cross layers in the place of the dots.
inline warprank::Outputs dcn_v2(warprank::Builder& b) {
  using namespace warprank;
  const auto request = b.axis("request"), sample = b.axis("sample", request);
  const auto bottom = b.mlp("bottom", b.dense("dense", sample, 13), {512, 256, 128}, relu, {.output_activation = relu});
  std::vector<Tensor> fields = {bottom};
  for (int i = 0; i < 26; ++i) {
    const std::string name = "category_" + std::to_string(i);
    fields.push_back(b.embed(b.ids(name, sample), b.table(name, {.dim = 128})));
  }
  const auto crossed = b.cross("cross", b.concat(fields), {.layers = 3, .rank = 512});
  return {{"ctr", b.sigmoid(b.mlp("top", crossed, {1024, 1024, 512, 256, 1}, relu))}};
}

}  // namespace models
