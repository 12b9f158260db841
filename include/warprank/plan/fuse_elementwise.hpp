// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// Results that a program may have alive at once: kernels keep 16 values, and up to 3 of them are operands.
inline constexpr int64_t max_values_alive = 13;

/// The most results of a program that are alive at once, the one being computed included.
inline int64_t values_alive(const ElementwiseProgram& program) {
  const auto num_results = static_cast<int>(program.instructions.size());
  std::vector<int> last_read(program.instructions.size());
  for (int i = 0; i < num_results; ++i) {
    const Instruction& instruction = program.instructions[static_cast<size_t>(i)];
    last_read[static_cast<size_t>(i)] = i;
    for (const int operand : {instruction.a, instruction.b, instruction.c})
      if (operand >= program.first_result()) last_read[static_cast<size_t>(operand - program.first_result())] = i;
  }
  int64_t most = 0;
  for (int i = 0; i < num_results; ++i) {
    int64_t alive = 0;
    for (int r = 0; r <= i; ++r) alive += last_read[static_cast<size_t>(r)] >= i;
    most = std::max(most, alive);
  }
  return most;
}

namespace detail {

/// Pulls into each elementwise program the programs before it, and products into the layer norms that they multiply.
class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(const Graph& graph)
      : graph_(graph),
        rewriter_(graph),
        consumers_(consumers_of(graph)),
        is_output_(output_nodes_of(graph)),
        members_(graph.nodes.size()) {}

  Graph run() {
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      Node node = rewriter_.renewed(n);
      if (std::holds_alternative<LayerNormOp>(node.op)) pull_into_norm(n, node);
      if (std::holds_alternative<ElementwiseOp>(node.op) && !join_norm(n, node)) pull_in_producers(n, node);
      rewriter_.replace(n, rewriter_.emit(std::move(node)));
    }
    return rewriter_.finish();
  }

 private:
  /// Whether old node `input` is read here and nowhere else, so that it need not exist by itself.
  bool only_read_here(int input) const {
    return consumers_[static_cast<size_t>(input)].size() == 1 && !is_output_[static_cast<size_t>(input)];
  }

  /// Sums and products of tensors of one shape that only a layer norm reads become a part of it.
  void pull_into_norm(int n, Node& node) {
    auto& norm = std::get<LayerNormOp>(node.op);
    const int old_input = graph_.node(n).inputs[0];
    const Node& producer = rewriter_.node(node.inputs[0]);
    const auto* source = std::get_if<ElementwiseOp>(&producer.op);
    if (source == nullptr || !norm.folds.empty() || !only_read_here(old_input) || producer.axis != node.axis) return;
    std::vector<int> inputs;
    std::vector<ElementwiseFunction> folds;
    if (!as_folds(*source, producer.inputs, inputs, folds)) return;
    for (const int input : inputs)
      if (rewriter_.node(input).axis != node.axis || rewriter_.node(input).width != node.width) return;
    norm.folds = std::move(folds);
    node.inputs.erase(node.inputs.begin());
    node.inputs.insert(node.inputs.begin(), inputs.begin(), inputs.end());
  }
  /// Whether each instruction of a program is a sum or a product of the one before and an input, each read once.
  static bool as_folds(const ElementwiseOp& op, const std::vector<int>& from, std::vector<int>& inputs,
                       std::vector<ElementwiseFunction>& folds) {
    const ElementwiseProgram& program = op.program;
    if (program.num_vectors > 0 || !program.constants.empty() || program.instructions.empty() ||
        program.instructions.size() > LayerNormOp::max_folds ||
        program.num_inputs != static_cast<int>(program.instructions.size()) + 1)
      return false;
    std::vector<bool> is_read(static_cast<size_t>(program.num_inputs), false);
    const auto take = [&](int input) {
      if (input < 0 || input >= program.num_inputs || is_read[static_cast<size_t>(input)]) return false;
      is_read[static_cast<size_t>(input)] = true;
      inputs.push_back(from[static_cast<size_t>(input)]);
      return true;
    };
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const int before = program.first_result() + static_cast<int>(i) - 1;
      if (instruction.function != ElementwiseFunction::add && instruction.function != ElementwiseFunction::mul)
        return false;
      if (i == 0
              ? !take(instruction.a) || !take(instruction.b)
              : !(instruction.a == before && take(instruction.b)) && !(instruction.b == before && take(instruction.a)))
        return false;
      folds.push_back(instruction.function);
    }
    return true;
  }

  /// A product of a layer norm's result and another tensor of its shape becomes that layer norm, with a factor. Not one
  /// that a program behind it may pull in.
  bool join_norm(int n, Node& node) {
    if (!is_product(std::get<ElementwiseOp>(node.op).program)) return false;
    const auto is_elementwise = [&](int reader) {
      return std::holds_alternative<ElementwiseOp>(graph_.node(reader).op);
    };
    const std::vector<int>& readers = consumers_[static_cast<size_t>(n)];
    if (only_read_here(n) && is_elementwise(readers[0])) return false;
    for (size_t i = 0; i < 2; ++i) {
      const int old_norm = graph_.node(n).inputs[i];
      const Node &norm = rewriter_.node(node.inputs[i]), &factor = rewriter_.node(node.inputs[1 - i]);
      const auto* op = std::get_if<LayerNormOp>(&norm.op);
      if (op == nullptr || norm.inputs.size() > op->num_folded() || !only_read_here(old_norm)) continue;
      if (factor.axis != norm.axis || factor.width != norm.width) continue;
      std::vector<int> inputs = norm.inputs;
      inputs.push_back(node.inputs[1 - i]);
      node.inputs = std::move(inputs);
      node.op = norm.op;
      return true;
    }
    return false;
  }
  static bool is_product(const ElementwiseProgram& program) {
    if (program.num_inputs != 2 || program.num_registers() != 3 || program.instructions.size() != 1) return false;
    const Instruction& only = program.instructions[0];
    return only.function == ElementwiseFunction::mul && only.a != only.b;
  }

  /// Programs become one with those that read them alone, also where several programs do that have become one. A
  /// producer of one column with learned vectors stays outside a wider consumer, since the vectors are of one column,
  /// and one that several read, since it would run for each of its columns. A producer above the consumer's axis always
  /// stays outside, since it runs once per parent row.
  void pull_in_producers(int n, Node& node) {
    std::vector<int>& members = members_[static_cast<size_t>(n)];  // old ids of nodes that are this program
    members.push_back(n);
    std::vector<int> candidates = graph_.node(n).inputs;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const int old_input = candidates[i], input = rewriter_.replacement(old_input);
      const Node& producer = rewriter_.node(input);
      const auto* source = std::get_if<ElementwiseOp>(&producer.op);
      if (source == nullptr || !only_read_by(old_input, members) || producer.axis != node.axis) continue;
      if (producer.width != node.width && (!source->vectors.empty() || !only_read_here(old_input))) continue;
      const auto place = std::find(node.inputs.begin(), node.inputs.end(), input);
      auto& op = std::get<ElementwiseOp>(node.op);
      if (place == node.inputs.end() ||
          op.program.num_registers() + source->program.num_registers() > max_elementwise_registers)
        continue;
      InlinedProgram inlined = inline_program(op.program, node.inputs, static_cast<int>(place - node.inputs.begin()),
                                              source->program, producer.inputs);
      if (values_alive(inlined.program) > max_values_alive) continue;
      op.program = std::move(inlined.program);
      op.vectors.insert(op.vectors.end(), source->vectors.begin(), source->vectors.end());
      node.inputs = std::move(inlined.inputs);
      for (const int member : members_[static_cast<size_t>(old_input)]) {
        members.push_back(member);
        const std::vector<int>& inputs = graph_.node(member).inputs;
        candidates.insert(candidates.end(), inputs.begin(), inputs.end());
      }
    }
  }
  bool only_read_by(int input, const std::vector<int>& members) const {
    const std::vector<int>& readers = consumers_[static_cast<size_t>(input)];
    return !is_output_[static_cast<size_t>(input)] && std::all_of(readers.begin(), readers.end(), [&](int reader) {
      return std::find(members.begin(), members.end(), reader) != members.end();
    });
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> is_output_;
  std::vector<std::vector<int>> members_;  // by old node the old nodes whose programs it has become
};

}  // namespace detail

/// A chain of elementwise ops becomes one program that reads its inputs once, and a layer norm multiplies its result by
/// the factor that a product behind it has, and makes what it norms of sums and products before it. Nodes that were
/// pulled in stay behind, unread; remove_dead drops them.
inline Graph fuse_elementwise(const Graph& graph) { return detail::ElementwiseFuser(graph).run(); }

}}}  // namespace warprank::v0::plan
