// SPDX-License-Identifier: Apache-2.0
#pragma once

/// BindOptions::cuda_int8: which linears have weights in INT8. Plain C++, no device.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 { namespace detail {

inline std::vector<std::string> names_of_linears(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes)
    if (const auto* const op = std::get_if<LinearOp>(&node.op)) names.push_back(op->name);
  return names;
}

/// The names for one side of a divided plan: without those that only the other side has. A name that neither has stays,
/// and is refused there.
inline std::vector<std::string> int8_names_for(const Graph& side, const Graph& other,
                                               const std::vector<std::string>& names) {
  const std::vector<std::string> own = names_of_linears(side), others = names_of_linears(other);
  const auto has = [](const std::vector<std::string>& all, const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  std::vector<std::string> kept;
  for (const std::string& name : names)
    if (has(own, name) || !has(others, name)) kept.push_back(name);
  return kept;
}

class Int8Linears {
 public:
  /// Layers of so few outputs keep FP16, as they keep FP32 on the host: they are scores and gates, and few bytes.
  static constexpr int64_t most_exact_outputs = 8;

  /// None.
  Int8Linears() = default;
  /// Throws invalid_argument with every name that no linear of the graph has.
  Int8Linears(const std::vector<std::string>& names, const Graph& graph) : names_(names.begin(), names.end()) {
    const std::vector<std::string> known = names_of_linears(graph);
    Problems problems;
    for (const std::string& name : names) {
      is_all_ |= name == "*";
      if (name != "*" && std::find(known.begin(), known.end(), name) == known.end())
        problems.add("BindOptions::cuda_int8", "names of linears, or *", unknown_name(name, known));
    }
    problems.throw_if_any();
  }

  /// Whether the weights of a linear, of so many outputs in each of its layers, become INT8. Notes it.
  bool take(const std::string& name, int64_t outputs, bool is_chained) {
    if (!is_all_ && names_.count(name) == 0) return false;
    const bool can_be = outputs > most_exact_outputs && !is_chained;
    (can_be ? taken_ : left_).insert(name);
    return can_be;
  }

  /// Lines of a description: what was taken, and what was not; none if nothing was asked for.
  std::string text() const {
    if (names_.empty()) return "";
    const auto list = [](const std::set<std::string>& names) {
      std::string text;
      for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
      return text;
    };
    std::string text = "weights in INT8: " + (taken_.empty() ? "none" : list(taken_)) + "\n";
    if (!left_.empty())
      text += "not of linears of up to " + std::to_string(most_exact_outputs) +
              " outputs or in chains: " + list(left_) + "\n";
    return text;
  }

 private:
  bool is_all_ = false;
  std::set<std::string> names_, taken_, left_;
};

}}}  // namespace warprank::v0::detail
