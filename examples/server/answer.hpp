// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From the replies to the requests of a call to its output tensors.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/model.hpp"
#include "warprank/serving.hpp"

namespace kserve {

/// The outputs of a model, and what they are called.
struct ModelOutputs {
  struct Output {
    std::string name;
    int64_t width;
    std::string offsets;  ///< tensor that tells which rows are whose
  };
  std::vector<Output> list;  // in the order of Reply::scores

  /// Throws warprank::invalid_argument for outputs that are called as tensors of the server's own.
  explicit ModelOutputs(const warprank::Graph& graph) {
    warprank::Problems problems;
    for (const warprank::OutputInfo& output : graph.outputs) {
      if (is_servers_own(output.name))
        problems.add("output '" + output.name + "'", "a name that is not the server's own", "one that is");
      const warprank::Node& node = graph.node(output.node);
      list.push_back({output.name, node.width, graph.axes[static_cast<size_t>(node.axis)].name + ".offsets"});
    }
    problems.throw_if_any();
  }

  /// Numbers of the outputs that are called so; all of them for no names. Throws warprank::invalid_argument, also for
  /// one that is asked for twice.
  std::vector<size_t> find(const std::vector<std::string_view>& names) const {
    std::vector<size_t> found;
    warprank::Problems problems;
    std::vector<std::string> known;
    for (const Output& output : list) known.push_back(output.name);
    if (names.empty())
      for (size_t o = 0; o < list.size(); ++o) found.push_back(o);
    for (const std::string_view name : names) {
      const auto it = std::find(known.begin(), known.end(), name);
      const std::string shown(name.substr(0, 200));
      const auto number = static_cast<size_t>(it - known.begin());
      if (it == known.end())
        problems.add("output '" + shown + "'", "an output of the model", warprank::unknown_name(shown, known));
      else if (std::find(found.begin(), found.end(), number) != found.end())
        problems.add("output '" + shown + "'", "to be asked for once", "it twice");
      else
        found.push_back(number);
    }
    problems.throw_if_any();
    return found;
  }
};

/// The outputs of several requests, one after the other. Where there is more than one request, "<axis>.offsets" tells
/// which rows are whose, and where some were not scored, they have no rows, and "errors" says why.
inline std::vector<OutputTensor> answer(const ModelOutputs& outputs, const std::vector<size_t>& wanted,
                                        const std::vector<warprank::Reply>& replies) {
  const auto count = static_cast<int64_t>(replies.size());
  std::vector<OutputTensor> tensors;
  for (const size_t o : wanted) {
    const ModelOutputs::Output& output = outputs.list[o];
    std::vector<int64_t> offsets = {0};
    std::string bytes;
    for (const warprank::Reply& reply : replies) {
      const bool is_scored = reply.outcome == warprank::Outcome::scored;
      if (is_scored && !reply.scores[o].empty())
        bytes.append(reinterpret_cast<const char*>(reply.scores[o].data()), reply.scores[o].size() * sizeof(float));
      offsets.push_back(static_cast<int64_t>(bytes.size() / sizeof(float)) / output.width);
    }
    tensors.push_back({output.name, "FP32", {offsets.back(), output.width}, std::move(bytes)});
    const auto has_name = [&](const OutputTensor& tensor) { return tensor.name == output.offsets; };
    if (count == 1 || std::any_of(tensors.begin(), tensors.end(), has_name)) continue;
    tensors.push_back({output.offsets,
                       "INT64",
                       {count + 1},
                       std::string(reinterpret_cast<const char*>(offsets.data()), offsets.size() * sizeof(int64_t))});
  }
  const auto is_unscored = [](const warprank::Reply& reply) { return reply.outcome != warprank::Outcome::scored; };
  if (std::any_of(replies.begin(), replies.end(), is_unscored)) {
    OutputTensor& errors = tensors.emplace_back(OutputTensor{errors_name, "BYTES", {count}, {}});
    for (const warprank::Reply& reply : replies) {
      const auto size = static_cast<uint32_t>(reply.message.size());
      errors.bytes.append(reinterpret_cast<const char*>(&size), sizeof size).append(reply.message);
    }
  }
  return tensors;
}

}  // namespace kserve
