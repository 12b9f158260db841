// SPDX-License-Identifier: Apache-2.0
#pragma once

/// bind on a GPU: a plan's steps become launches with packed weights.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/engine/cuda/op/attention.cuh"
#include "warprank/engine/cuda/op/custom.cuh"
#include "warprank/engine/cuda/op/din_attention.cuh"
#include "warprank/engine/cuda/op/dot.cuh"
#include "warprank/engine/cuda/op/embed.cuh"
#include "warprank/engine/cuda/op/field_attention.cuh"
#include "warprank/engine/cuda/op/field_linear.cuh"
#include "warprank/engine/cuda/op/fm.cuh"
#include "warprank/engine/cuda/op/linear.cuh"
#include "warprank/engine/cuda/op/mix.cuh"
#include "warprank/engine/cuda/op/mix_tokens.cuh"
#include "warprank/engine/cuda/op/pool.cuh"
#include "warprank/engine/cuda/op/recurrent.cuh"
#include "warprank/engine/cuda/op/rows.cuh"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/int8_linears.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// One launch of a model: what to prepare for each capacity of each context.
struct ModelStep {
  std::vector<int> nodes;
  Prepare prepare;
  std::shared_ptr<const LinearStep> linears = nullptr;  ///< where there is a choice of kernels
};

/// All launches of a model, in order. They refer to the graph, the tables, and the weights by where these begin.
struct ModelSteps {
  std::vector<ModelStep> steps;
  std::vector<AxisPair> pairs;  ///< whose segments are read and not in a batch's index
  std::string int8_linears;     ///< lines: which weights are in INT8
};

/// All that choices of kernels for a plan depend on: its steps of linears, at one capacity after the other.
inline std::vector<StepShape> linear_shapes(const Plan& plan, const ValueLayout& layout) {
  const Graph& graph = plan.graph();
  std::vector<StepShape> shapes;
  for (const Capacity& capacity : plan.options().capacities) {
    const std::vector<int64_t> rows = plan::rows_at(plan.source(), capacity);
    for (const std::vector<int>& step : plan.storage().steps) {
      std::vector<int> linears, mixes;
      for (const int n : step) {
        if (std::holds_alternative<LinearOp>(graph.node(n).op)) linears.push_back(n);
        if (std::holds_alternative<MixOp>(graph.node(n).op)) mixes.push_back(n);
      }
      for (const LinearGroups::Group& group : group_linears(graph, linears, mixes).groups)
        shapes.push_back(shape_of_step(
            graph, group.chains, group.are_stacks, [&](int axis) { return rows[static_cast<size_t>(axis)]; },
            [&](int n) { return layout.place(n).type; }));
    }
  }
  return shapes;
}

class StepMaker {
 public:
  StepMaker(const Plan& plan, const ValueLayout& layout, const Weights& weights, const CudaTableStore& tables,
            const BindOptions& options, detail::Int8Linears int8, LinearChooser chooser, WeightsMemory& memory)
      : plan_(plan),
        graph_(plan.graph()),
        storage_(plan.storage()),
        layout_(layout),
        source_(plan, weights),
        tables_(tables),
        options_(options),
        chooser_(std::move(chooser)),
        int8_(std::move(int8)),
        memory_(memory) {}

  ModelSteps make() {
    std::vector<int> dense;
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n)
      if (is<DenseOp>(n)) dense.push_back(n);
    std::vector<std::vector<int>> steps = storage_.steps;
    if (!dense.empty()) {  // dense inputs come with the first look-ups
      if (steps.empty() || !is<EmbedOp>(steps[0][0])) steps.insert(steps.begin(), std::vector<int>());
      steps[0].insert(steps[0].end(), dense.begin(), dense.end());
    }
    for (const std::vector<int>& step : steps) add_step(step);
    expect_all_bound(steps);
    add_output_copies();
    made_.int8_linears = int8_.text();
    return std::move(made_);
  }

 private:
  const Node& node(int n) const { return graph_.node(n); }
  const LinearOp& linear(int n) const { return std::get<LinearOp>(node(n).op); }
  template <class Wanted>
  bool is(int n) const {
    return std::holds_alternative<Wanted>(node(n).op);
  }
  template <class Prepare>
  void add(std::vector<int> nodes, Prepare prepare) {
    made_.steps.push_back({std::move(nodes), std::move(prepare)});
  }

  /// Notes that the segments of an axis under another, or of its rows one by one, are read.
  void need_segments(AxisPair pair) {
    const bool is_known = std::find(made_.pairs.begin(), made_.pairs.end(), pair) != made_.pairs.end();
    if (pair.second != 0 && !is_known) made_.pairs.push_back(pair);
  }
  void need_segments_of(int n) {
    const int axis = node(n).axis;
    const auto need_above = [&](int ancestor) {
      if (ancestor != axis && graph_.is_ancestor(ancestor, axis)) need_segments({axis, ancestor});
    };
    for (const int input : node(n).inputs) {
      need_above(node(input).axis);
      if (is<PoolOp>(n)) need_segments({node(input).axis, axis});
    }
    if (is<DinAttentionOp>(n) || is<AttentionOp>(n)) {
      const AttentionSegments segments = attention_segments(graph_, n);
      need_segments(segments.queries);
      need_segments(segments.events);
    }
    if (const auto* recurrent = std::get_if<RecurrentOp>(&node(n).op)) {
      const int events = node(node(n).inputs[static_cast<size_t>(recurrent->gates())]).axis;
      const int parent = graph_.axis(events).parent;
      need_segments({events, parent});
      if (recurrent->attends()) need_segments({axis, parent});
    }
    if (const auto* linear = std::get_if<LinearOp>(&node(n).op); linear != nullptr && linear->scene >= 0)
      need_above(graph_.ids[static_cast<size_t>(linear->scene)].axis);
  }

  /// Nodes of one kind share a launch. Linears that read one another are chains, and their mixes go with them.
  void add_step(const std::vector<int>& nodes) {
    std::vector<int> look_ups, dins, attentions, mixes, linears, pools, rows, alone;
    for (const int n : nodes) {
      need_segments_of(n);
      switch (plan::step_kind(node(n).op)) {
        case StepKind::none:  // dense inputs, and concats that copy
          (is<DenseOp>(n) ? look_ups : rows).push_back(n);
          break;
        case StepKind::look_up:
          look_ups.push_back(n);
          break;
        case StepKind::din_attention:
          dins.push_back(n);
          break;
        case StepKind::attention:
          attentions.push_back(n);
          break;
        case StepKind::mix:
          mixes.push_back(n);
          break;
        case StepKind::linear:
        case StepKind::scene_linear:
        case StepKind::chain:
          linears.push_back(n);
          break;
        case StepKind::pool:
          pools.push_back(n);
          break;
        case StepKind::rows:
          rows.push_back(n);
          break;
        case StepKind::alone:
          alone.push_back(n);
          break;
      }
    }
    add_look_ups(look_ups);
    add_dins(dins);
    add_attentions(attentions);
    add_linears(linears, mixes, linears.empty() ? std::vector<int>() : std::exchange(rows, {}));
    add_pools(pools);
    for (const int n : alone) add_alone(n);
    add_rows(rows);
  }

  void add_look_ups(const std::vector<int>& nodes) {
    if (nodes.empty()) return;
    std::vector<LookUp> look_ups;
    for (const int n : nodes) look_ups.push_back(make_look_up(graph_, n, tables_));
    add(nodes, [look_ups](const Bindings& bindings, StepMemory& memory) {
      return prepare_look_ups(look_ups, bindings, memory);
    });
  }

  void add_dins(const std::vector<int>& nodes) {
    if (nodes.empty()) return;
    std::vector<DinNode> made;
    for (const int n : nodes) made.push_back(make_din_node(graph_, n, source_, memory_));
    add(nodes, [made](const Bindings& bindings, StepMemory& memory) { return prepare_din(made, bindings, memory); });
  }
  void add_attentions(const std::vector<int>& nodes) {
    if (nodes.empty()) return;
    std::vector<AttentionNode> made;
    for (const int n : nodes) made.push_back(make_attention_node(graph_, n, layout_, source_, memory_));
    add(nodes,
        [made](const Bindings& bindings, StepMemory& memory) { return prepare_attentions(made, bindings, memory); });
  }
  void add_pools(const std::vector<int>& nodes) {
    if (nodes.empty()) return;
    add(nodes,
        [nodes](const Bindings& bindings, StepMemory& memory) { return prepare_pools(nodes, bindings, memory); });
  }
  void add_rows(const std::vector<int>& nodes) {
    if (nodes.empty()) return;
    std::vector<RowNode> made;
    for (const int n : nodes) made.push_back(make_row_node(graph_, storage_, n, source_, memory_));
    add(nodes, [made](const Bindings& bindings, StepMemory& memory) { return prepare_rows(made, bindings, memory); });
  }

  /// `linears` in an order in which each comes after what it reads. `products` are of heads of their chains.
  void add_linears(const std::vector<int>& linears, std::vector<int> mixes, const std::vector<int>& products) {
    const LinearGroups grouped = group_linears(graph_, linears, mixes);
    add_mixes(mixes);
    for (const int n : grouped.scenes) {
      const PackedScenes packed =
          pack_scenes(graph_, n, int8_.take(linear(n).name, node(n).width, false), source_, memory_);
      add({n},
          [packed](const Bindings& bindings, StepMemory& memory) { return prepare_scenes(packed, bindings, memory); });
    }
    for (const LinearGroups::Group& group : grouped.groups) add_chains(group.chains, group.are_stacks, products);
  }
  void add_chains(const std::vector<std::vector<int>>& chains, bool are_stacks, const std::vector<int>& products) {
    std::vector<int> nodes;
    auto made = std::make_shared<LinearStep>();
    made->nodes = chains;
    made->is_stack = are_stacks;
    const std::vector<std::vector<bool>> for_cublaslt = cublaslt_layers(*made);
    for (size_t c = 0; c < chains.size(); ++c) {
      LinearChain& to = made->chains.emplace_back();
      for (const int n : chains[c]) {
        if (is<MixOp>(n)) {
          to.mix = n;
        } else {
          const int64_t outputs = node(n).width / num_layers_of(linear(n), are_stacks);
          const bool is_int8 = int8_.take(linear(n).name, outputs, are_stacks);
          const LinearPacking packing{are_stacks, for_cublaslt[c][to.linears.size()], is_int8};
          to.linears.push_back(pack(graph_, n, packing, source_, memory_));
        }
      }
      nodes.insert(nodes.end(), chains[c].begin(), chains[c].end());
    }
    for (const int n : products) {
      ProductNode& product = made->products.emplace_back();
      product.row = make_row_node(graph_, storage_, n, source_, memory_);
      for (const int factor : node(n).inputs) {
        const auto of = std::find_if(chains.begin(), chains.end(), [&](const auto& c) { return c.back() == factor; });
        product.factors.push_back(of - chains.begin());
      }
      nodes.push_back(n);
    }
    add(std::move(nodes), [made, chooser = chooser_](const Bindings& bindings, StepMemory& memory) {
      const StepShape shape = made->shape(bindings);
      return made->prepare_all_the_same(shape, chooser.choose(shape), bindings, memory);
    });
    made_.steps.back().linears = std::move(made);
  }

  /// By chain and linear: whether cuBLASLt may be chosen at one of the capacities.
  std::vector<std::vector<bool>> cublaslt_layers(const LinearStep& step) const {
    std::vector<std::vector<bool>> may_be;
    for (const Capacity& capacity : plan_.options().capacities) {
      const std::vector<int64_t> rows = plan::rows_at(plan_.source(), capacity);
      const StepShape shape = shape_of_step(
          graph_, step.nodes, step.is_stack, [&](int axis) { return rows[static_cast<size_t>(axis)]; },
          [&](int n) { return layout_.place(n).type; });
      may_be.resize(shape.of.size());
      for (size_t c = 0; c < shape.of.size(); ++c) {
        may_be[c].resize(shape.of[c].size());
        for (size_t l = 0; l < shape.of[c].size(); ++l)
          may_be[c][l] = may_be[c][l] || chooser_.may_choose_cublaslt(shape, shape.of[c][l]);
      }
    }
    return may_be;
  }

  /// Mixes that are launched together are on one axis and of one type.
  void add_mixes(std::vector<int> nodes) {
    while (!nodes.empty()) {
      const int first = nodes[0];
      const auto end = std::stable_partition(nodes.begin(), nodes.end(), [&](int n) {
        return node(n).axis == node(first).axis && layout_.place(n).type == layout_.place(first).type;
      });
      const auto count = std::min<std::ptrdiff_t>(end - nodes.begin(), Mix<float16, float16>::max_tasks);
      const std::vector<int> launch(nodes.begin(), nodes.begin() + count);
      add(launch,
          [launch](const Bindings& bindings, StepMemory& memory) { return prepare_mixes(launch, bindings, memory); });
      nodes.erase(nodes.begin(), nodes.begin() + count);
    }
  }

  void add_alone(int n) {
    visit_traits(node(n).op, [&](const auto& op, auto traits) {
      if constexpr (decltype(traits)::step == StepKind::alone) add({n}, bind_alone(op, n, options_, source_, memory_));
    });
  }

  /// What no step computes would be read as it lies in memory.
  void expect_all_bound(const std::vector<std::vector<int>>& steps) const {
    std::vector<bool> is_bound(graph_.nodes.size());
    for (const ModelStep& step : made_.steps)
      for (const int n : step.nodes) is_bound[static_cast<size_t>(n)] = true;
    for (const std::vector<int>& step : steps)
      for (const int n : step)
        if (!is_bound[static_cast<size_t>(n)])
          throw internal_error("CUDA engine: expected a launch that computes " + std::string(kind_of(node(n).op)) +
                               " '" + node(n).name + "', got none");
  }

  /// The last step: outputs whose values others read as FP16, or that are parts of others.
  void add_output_copies() {
    std::vector<OutputPlace> copies;
    for (const OutputPlace& output : layout_.outputs())
      if (output.is_copy) copies.push_back(output);
    if (copies.empty()) return;
    add({}, [copies](const Bindings& bindings, StepMemory& memory) {
      return prepare_output_copies(copies, bindings, memory);
    });
  }

  const Plan& plan_;
  const Graph& graph_;
  const plan::Storage& storage_;
  const ValueLayout& layout_;
  const detail::ParameterSource source_;
  const CudaTableStore& tables_;
  const BindOptions& options_;
  const LinearChooser chooser_;
  detail::Int8Linears int8_;
  WeightsMemory& memory_;
  ModelSteps made_;
};

}}}  // namespace warprank::v0::cuda_backend
