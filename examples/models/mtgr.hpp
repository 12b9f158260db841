// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

/// MTGR (Han et al. 2025), Meituan's generative ranking: a user's profile and long history are seen by all, events of
/// today by what follows them, and candidates, which keep their cross features, by themselves alone. Each kind has
/// layer norms of its own. The masks are those of the parts: events of today are in the order of their time, and all
/// are before the request.
inline warprank::Outputs mtgr(warprank::Builder& b) {
  using namespace warprank;
  const int64_t dim = 512;
  const auto user = b.axis("user"), candidate = b.axis("candidate", user),
             profile = b.axis("profile", user, keep_last(16)), past = b.axis("past", user, keep_last(512)),
             today = b.axis("today", user, keep_last(64));
  const auto poi = b.hashed_table("poi", {.dim = 64}), feature = b.hashed_table("feature", {.dim = 64}),
             action = b.table("action", {.dim = 16});
  const auto token = [&](const std::string& kind, std::vector<Tensor> parts) {
    return b.mlp(kind, b.concat(parts), {dim, dim}, relu);
  };
  const auto event = [&](const std::string& kind, Axis axis) {
    return token(kind, {b.embed(b.ids(kind + "_poi", axis), poi), b.embed(b.ids(kind + "_action", axis), action),
                        b.dense(kind + "_context", axis, 8)});
  };
  std::vector<Tensor> sequence{
      token("profile", {b.embed(b.ids("profile_feature", profile), feature)}), event("past", past),
      event("today", today),
      token("candidate", {b.embed(b.ids("poi", candidate), poi), b.embed(b.ids("crossed", candidate), feature),
                          b.dense("cross_features", candidate, 48)})};
  for (int i = 0; i < 3; ++i)
    sequence = b.hstu("layer" + std::to_string(i), sequence,
                      {.heads = 4,
                       .max_length = 1024,
                       .contexts = 2,
                       .gate = HstuGate::before_norm,
                       .activation = silu,
                       .norm_by_part = true,
                       .out_bias = true});
  return {{"click_and_order", b.mlp("tasks", sequence.back(), {256, 2}, relu, {.output_activation = sigmoid})}};
}

}  // namespace models
