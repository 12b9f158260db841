// SPDX-License-Identifier: Apache-2.0
#pragma once

/// BindOptions::cuda_int8: which linears have weights in INT8. Plain C++, no device.

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

class Int8Linears {
 public:
  /// Throws invalid_argument with every name that no linear has.
  Int8Linears(const std::vector<std::string>& names, const Graph& graph) {
    std::vector<std::string> known;
    for (const Node& node : graph.nodes)
      if (const auto* const op = std::get_if<LinearOp>(&node.op)) known.push_back(op->name);
    Problems problems;
    for (const std::string& name : names) {
      is_all_ |= name == "*";
      if (name != "*" && std::find(known.begin(), known.end(), name) == known.end())
        problems.add("BindOptions::cuda_int8", "names of linears, or *", unknown_name(name, known));
    }
    problems.throw_if_any();
    names_.insert(names.begin(), names.end());
  }

  /// Whether a linear's weights become INT8: if it is named, and can be. Notes it.
  bool take(const LinearOp& op, bool can_be) {
    if (!is_all_ && names_.count(op.name) == 0) return false;
    (can_be ? taken_ : left_).insert(op.name);
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
    if (!left_.empty()) text += "not of linears of one output or in chains: " + list(left_) + "\n";
    return text;
  }

 private:
  bool is_all_ = false;
  std::set<std::string> names_, taken_, left_;
};

}}}  // namespace warprank::v0::cuda_backend
