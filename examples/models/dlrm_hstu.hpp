// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/model.hpp"

namespace models {

struct DlrmHstuSizes {
  int64_t item_dim = 512;  ///< columns of embedded items and users
  int64_t dim = 512, heads = 4, head_dim = 128, layers = 5;
  int64_t hidden = 256, top = 512;  ///< columns inside the networks before the layers, and behind them
  int64_t max_length = 2048;        ///< of a sequence
  int64_t actions = 5, tasks = 1;
};

/// DLRM-HSTU (Zhai et al. 2024), which MLPerf runs as DLRMv3, as generative-recommenders has it: the user, events with
/// what the user did, and candidates are one sequence; what the layers make of a candidate is multiplied with its
/// embedding. `place` is an event's distance from the sequence's end, `age` the bucket of its age: square root of
/// minutes. The public code takes no bucket beyond `dim` - 1, whatever the number of the table's rows.
inline warprank::Outputs dlrm_hstu_of(warprank::Builder& b, const DlrmHstuSizes& sizes) {
  using namespace warprank;
  const auto network = [&](const std::string& name, Tensor x, int64_t hidden, int64_t out) {
    const auto inner = b.linear(name + ".0", x, hidden);
    const auto swish = inner * b.sigmoid(b.layer_norm(name + ".norm", inner));  // of the norm, times what was normed
    return b.linear(name + ".1", swish, out);
  };
  const auto token = [&](const std::string& name, Tensor x, int64_t hidden) {
    return b.layer_norm(name + ".out_norm", network(name, x, hidden, sizes.dim));
  };
  const auto user = b.axis("user"), candidate = b.axis("candidate", user), context = b.axis("context", user),
             event = b.axis("event", user, keep_last(sizes.max_length));
  const auto item = b.table("item", {.dim = sizes.item_dim}), person = b.table("person", {.dim = sizes.item_dim});
  const auto place = b.table("place", {.dim = sizes.dim}), age = b.table("age", {.dim = sizes.dim});
  const auto placed = [&](const std::string& name, Tensor x, Axis axis) {
    return x * std::sqrt(static_cast<float>(sizes.dim)) + b.embed(b.ids(name + "_place", axis), place) +
           b.embed(b.ids(name + "_age", axis), age);
  };
  const auto person_token = b.linear("person", b.embed(b.ids("context_user", context), person), sizes.dim);
  const auto did =
      b.linear("action.embedding", b.dense("event_actions", event, sizes.actions), 8 * sizes.actions, {false});
  const auto events =
      token("content", b.embed(b.ids("event_item", event), item), sizes.hidden) + token("action", did, sizes.hidden);
  const auto shown = b.embed(b.ids("candidate_item", candidate), item);
  const auto to_do =
      b.embed(b.ids("candidate_action", candidate, {.default_id = 0}), b.table("to_do", {.dim = sizes.dim}));

  std::vector<Tensor> sequence{placed("context", person_token, context), placed("event", events, event),
                               placed("candidate", token("content", shown, sizes.hidden) + to_do, candidate)};
  for (int64_t i = 0; i < sizes.layers; ++i)
    sequence = b.hstu("layer" + std::to_string(i), sequence,
                      {.heads = sizes.heads, .head_dim = sizes.head_dim, .max_length = sizes.max_length});
  const auto seen = b.layer_norm("norm", sequence.back()) * token("item", shown, sizes.top);
  return {{"tasks", b.sigmoid(network("tasks", seen, sizes.top, sizes.tasks))}};
}

inline warprank::Outputs dlrm_hstu(warprank::Builder& b) { return dlrm_hstu_of(b, {}); }

}  // namespace models
