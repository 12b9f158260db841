// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/chain_cost.hpp"
#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The limits of a kernel whose layers keep their activations on chip (ops/mlp.cuh).
inline constexpr int64_t max_chain_layers = 8;
inline constexpr int64_t max_chain_width = 256;   ///< of every narrow layer, and of a mix
inline constexpr int64_t max_chain_experts = 64;  ///< of a mix in front
/// The inputs of the first narrow layer, which a block may have to read whole.
inline constexpr int64_t max_chain_inputs = 512;
/// The outputs of a first layer with few inputs, such as the dense inputs of a model.
inline constexpr int64_t max_first_chain_width = 512, max_inputs_of_wide_first = 64;
/// The inputs and outputs of any layer whose outputs blocks share.
inline constexpr int64_t max_wide_chain_width = 4096;

namespace detail {

class TailFuser {
 public:
  explicit TailFuser(const Graph& graph)
      : graph_(graph),
        consumers_(consumers_of(graph)),
        is_output_(output_nodes_of(graph)),
        chain_of_(graph.nodes.size(), -1) {}

  Graph run() {
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) extend_or_begin(n);
    for (std::vector<int>& chain : chains_) finish(chain);
    return rewrite();
  }

 private:
  const LinearOp* linear(int n) const {
    const auto* op = std::get_if<LinearOp>(&graph_.node(n).op);
    return op != nullptr && op->scene < 0 ? op : nullptr;
  }
  int64_t groups(int n) const { return linear(n)->groups; }
  /// Columns of one group.
  int64_t inputs(int n) const {
    const int64_t width = graph_.node(graph_.node(n).inputs[0]).width;
    return linear(n)->shared_input ? width : width / groups(n);
  }
  int64_t outputs(int n) const { return graph_.node(n).width / groups(n); }

  /// Whether the value of `n` is needed only as the x of one node.
  bool only_x_of_next(int n) const {
    const std::vector<int>& readers = consumers_[static_cast<size_t>(n)];
    return readers.size() == 1 && graph_.node(readers[0]).inputs[0] == n && !is_output_[static_cast<size_t>(n)];
  }

  bool is_narrow(int n, bool is_first) const {
    const bool has_few_inputs = is_first && inputs(n) <= max_inputs_of_wide_first;
    return outputs(n) <= (has_few_inputs ? max_first_chain_width : max_chain_width);
  }
  /// Layers of one group, without a mix in front, may be wide.
  bool may_be_wide(int n) const {
    return groups(n) == 1 && !can_mix(n) && inputs(n) <= max_wide_chain_width && outputs(n) <= max_wide_chain_width;
  }

  void extend_or_begin(int n) {
    if (linear(n) == nullptr || !(is_narrow(n, true) || may_be_wide(n))) return;
    const int x = graph_.node(n).inputs[0];
    int& chain = chain_of_[static_cast<size_t>(n)];
    chain = chain_of_[static_cast<size_t>(x)];
    if (chain != -1 && continues(chains_[static_cast<size_t>(chain)], n)) {
      chains_[static_cast<size_t>(chain)].push_back(n);
    } else {
      chain = static_cast<int>(chains_.size());
      chains_.push_back({n});
    }
  }

  bool continues(const std::vector<int>& chain, int n) const {
    const int x = chain.back();
    const LinearOp &before = *linear(x), &op = *linear(n);
    // Only the last layer has an epilogue beyond its activation; only it and the first have row biases, by one axis.
    const bool ends_here = before.multiply || before.residual || (before.row_bias && chain.size() > 1);
    if (ends_here || !only_x_of_next(x) || static_cast<int64_t>(chain.size()) == max_chain_layers) return false;
    if (!is_narrow(n, false) && !(may_be_wide(n) && may_be_wide(chain[0]))) return false;
    if (outputs(x) == 1 || before.groups != op.groups || (op.groups > 1 && op.shared_input)) return false;
    return !op.row_bias || !linear(chain[0])->row_bias || bias_axis(n) == bias_axis(chain[0]);
  }
  int bias_axis(int n) const { return graph_.node(graph_.node(n).inputs[1]).axis; }

  /// For a chain with wide layers or many inputs: the number of layers before those that become one launch.
  size_t num_before(const std::vector<int>& chain) const {
    bool all_narrow = inputs(chain[0]) <= max_chain_inputs, may_be_shared = true;
    std::vector<ChainLayer> layers;
    for (const int n : chain) {
      all_narrow = all_narrow && is_narrow(n, n == chain[0]);
      may_be_shared = may_be_shared && may_be_wide(n);
      layers.push_back({inputs(n), outputs(n)});
    }
    if (all_narrow) return 0;
    return may_be_shared ? first_of_chain(layers) : 1;
  }

  /// Drops first layers that are launched by themselves, takes in a mix, and forgets chains of one node.
  void finish(std::vector<int>& chain) {
    const size_t before = num_before(chain);
    for (size_t l = 0; l < before; ++l) chain_of_[static_cast<size_t>(chain[l])] = -1;
    chain.erase(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(before));
    if (!chain.empty() && can_mix(chain[0]) && (chain.size() > 1 || outputs(chain[0]) > 1)) {
      const int mix = graph_.node(chain[0]).inputs[0];
      chain_of_[static_cast<size_t>(mix)] = chain_of_[static_cast<size_t>(chain[0])];
      chain.insert(chain.begin(), mix);
    }
    if (chain.size() > 1) return;
    for (int n : chain) chain_of_[static_cast<size_t>(n)] = -1;
    chain.clear();
  }

  /// Whether x of `n` is a mix of experts that a kernel can compute as it loads x. The gate may be on an ancestor's
  /// axis.
  bool can_mix(int n) const {
    const int x = graph_.node(n).inputs[0];
    const auto* op = std::get_if<MixOp>(&graph_.node(x).op);
    if (op == nullptr || op->multiply || op->residual || !only_x_of_next(x)) return false;
    const Node &mix = graph_.node(x), &experts = graph_.node(mix.inputs[0]), &gate = graph_.node(mix.inputs[1]);
    return groups(n) == 1 && !linear(n)->row_bias && mix.width <= max_chain_width && gate.width <= max_chain_experts &&
           experts.axis == mix.axis;
  }

  /// A chain takes the place of its last node: by then all its inputs are there.
  Graph rewrite() const {
    Rewriter rewriter(graph_);
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      const int chain = chain_of_[static_cast<size_t>(n)];
      if (chain == -1) {
        rewriter.replace(n, rewriter.emit(rewriter.renewed(n)));
        continue;
      }
      const std::vector<int>& nodes = chains_[static_cast<size_t>(chain)];
      if (n != nodes.back()) continue;
      for (int member : nodes) {
        Node node = rewriter.renewed(member);
        node.group = chain;
        rewriter.replace(member, rewriter.emit(std::move(node)));
      }
    }
    return rewriter.finish();
  }

  const Graph& graph_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> is_output_;
  std::vector<int> chain_of_;  // by node
  std::vector<std::vector<int>> chains_;
};

}  // namespace detail

/// Whether a chain, maybe with a mix in front, has layers that one block cannot keep.
inline bool is_wide_chain(const Graph& graph, const std::vector<int>& nodes) {
  bool is_first = true;
  for (const int n : nodes) {
    const auto* op = std::get_if<LinearOp>(&graph.node(n).op);
    if (op == nullptr) continue;
    const int64_t x_width = graph.node(graph.node(n).inputs[0]).width;
    const int64_t in = op->shared_input ? x_width : x_width / op->groups, out = graph.node(n).width / op->groups;
    const bool has_few_inputs = is_first && in <= max_inputs_of_wide_first;
    if (out > (has_few_inputs ? max_first_chain_width : max_chain_width)) return true;
    is_first = false;
  }
  return false;
}

/// Vertical fusion: a chain of linears, each of which is read only by the next one (towers, the narrow end of an MLP),
/// is one step, with a mix of experts in front of it. The inner values need not exist in memory. Each layer has up to
/// 256 outputs per group, and the first has up to 512 inputs; or up to 512 outputs, if it has up to 64 inputs. Wider
/// layers belong to the step if this is no slower for few rows (chain_cost.hpp); for many rows, the engine launches
/// them one by one.
inline Graph fuse_tails(const Graph& graph) { return detail::TailFuser(graph).run(); }

}}}  // namespace warprank::v0::plan
