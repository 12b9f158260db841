// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learned tensors of a graph: names and shapes, as PyTorch stores them.

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/model/parameter.hpp"

namespace warprank {

namespace detail {

/// Lists the learned tensors of one node, in the order in which they are used.
class ParameterLister {
 public:
  ParameterLister(const Graph& graph, const Node& node, std::vector<Parameter>& list)
      : graph_(graph), node_(node), list_(list) {}

  void run() {
    std::visit([this](const auto& op) { add(op); }, node_.op);
  }

 private:
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

  void add(const LinearOp& op) {
    const int64_t x = graph_.node(node_.inputs[0]).width;
    const int64_t in = op.stored_in > 0 ? op.stored_in : op.shared_input ? x : x / op.groups;
    const int64_t out = op.scene >= 0 ? node_.width : node_.width / op.groups;
    const Shape shape = op.stacked ? Shape{op.groups, out} : Shape{out};
    Shape weight_shape = shape;
    weight_shape.push_back(in);
    if (!op.ones) matrix(op.name + ".weight", std::move(weight_shape));
    if (op.bias && !op.is_term) vector(op.name + ".bias", shape);
    if (op.input_norm) batch_norm(op.input_norm->name, op.input_norm->affine, {op.shared_input ? in : x});
    if (op.norm) batch_norm(op.norm->name, op.norm->affine, shape);
    activation(op.name, op.activation, shape);
  }
  void add(const DinAttentionOp& op) {
    int64_t in = 4 * node_.width;
    for (size_t i = 0; i <= op.hidden.size(); ++i) {
      const std::string layer = op.name + "." + std::to_string(i);
      const bool last = i == op.hidden.size();
      const int64_t out = last ? 1 : op.hidden[i];
      matrix(layer + ".weight", {out, in});
      vector(layer + ".bias", {out});
      if (!last) activation(layer, op.activation, {out});
      in = out;
    }
  }
  void add(const ElementwiseOp& op) {
    for (const LearnedVector& v : op.vectors) {
      if (v.kind == LearnedVector::Kind::stored) {
        vector(v.name, {node_.width});
      } else {
        batch_norm(v.name, v.affine, {node_.width});
      }
    }
  }
  void add(const LayerNormOp& op) {
    if (!op.affine) return;
    vector(op.name + ".weight", {node_.width});
    vector(op.name + ".bias", {node_.width});
  }
  template <class Other>
  void add(const Other&) {}

  const Graph& graph_;
  const Node& node_;
  std::vector<Parameter>& list_;
};

}  // namespace detail

/// Every learned tensor once. Two layers may share a name and so their weights; if their shapes differ, that is a
/// problem.
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

}  // namespace warprank
