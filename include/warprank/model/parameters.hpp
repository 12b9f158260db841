// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learned tensors of a graph: names and shapes, as PyTorch stores them.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/model/parameter.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

/// Lists the learned tensors of one node, in the order in which they are used, by the traits of its op.
class ParameterLister {
 public:
  ParameterLister(const Graph& graph, const Node& node, std::vector<Parameter>& list)
      : graph_(graph), node_(node), list_(list) {}

  void run() {
    visit_traits(node_.op, [this](const auto& op, auto traits) { traits.parameters(op, *this); });
  }

  // --- for traits

  size_t num_inputs() const { return node_.inputs.size(); }
  const Node& input(size_t i) const { return graph_.node(node_.inputs[i]); }
  int64_t width() const { return node_.width; }

  void vector(const std::string& name, Shape shape) { list_.push_back({name, std::move(shape), false}); }
  void matrix(const std::string& name, Shape shape) { list_.push_back({name, std::move(shape), true}); }
  void batch_norm(const std::string& name, bool affine, const Shape& shape) {
    vector(name + ".running_mean", shape);
    vector(name + ".running_var", shape);
    if (affine) {
      vector(name + ".weight", shape);
      vector(name + ".bias", shape);
    }
  }
  void activation(const std::string& layer, const Activation& a, const Shape& shape) {
    if (a.kind == ActivationKind::prelu) vector(layer + ".prelu.alpha", shape);
    if (a.kind == ActivationKind::dice) {
      vector(layer + ".dice.alpha", shape);
      batch_norm(layer + ".dice", a.affine, shape);
    }
  }

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<Parameter>& list_;
};

}  // namespace detail

/// Every learned tensor once. Two layers may share a name and so their weights; adds a problem if their shapes differ.
inline std::vector<Parameter> parameters_of(const Graph& graph, Problems& problems) {
  std::vector<Parameter> unique;
  std::map<std::string, std::pair<size_t, const Node*>> seen;
  for (const Node& node : graph.nodes) {
    std::vector<Parameter> list;
    detail::ParameterLister(graph, node, list).run();
    for (Parameter& parameter : list) {
      const auto [it, inserted] = seen.emplace(parameter.name, std::make_pair(unique.size(), &node));
      if (inserted) {
        unique.push_back(std::move(parameter));
      } else if (unique[it->second.first].shape != parameter.shape) {
        problems.add(
            {node.where, "parameter '" + parameter.name + "'",
             "one shape, " + to_string(unique[it->second.first].shape) + " as in '" + it->second.second->name + "'",
             to_string(parameter.shape) + " in '" + node.name + "'"});
      }
    }
  }
  return unique;
}

}}  // namespace warprank::v0
