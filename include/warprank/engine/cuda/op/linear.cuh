// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Linears, stacks of them, and those that scenes choose, as launches.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/cuda/bindings.hpp"
#include "warprank/engine/cuda/launch.cuh"
#include "warprank/engine/cuda/linear_choice.hpp"
#include "warprank/engine/cuda/linear_levels.cuh"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/op/rows.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/ops/detail/gemm/cublaslt.cuh"
#include "warprank/ops/experts.cuh"
#include "warprank/ops/linear.cuh"
#include "warprank/ops/mlp.cuh"
#include "warprank/ops/pack_int8_linear.hpp"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Where the packed weights of a layer and the vectors of its activation begin.
struct LayerWeights {
  int64_t in = 0, out = 0;
  DType type = DType::f16;  ///< or i8
  int64_t packed = -1;
  int64_t row_major = -1;   ///< once more, as cuBLASLt takes them, among those that contexts copy
  int64_t float_bias = -1;  ///< there as well
  Activation activation;
  int64_t alphas = -1, scales = -1, shifts = -1;

  DeviceActivation device_activation(const Bindings& bindings) const {
    const auto at = [&](int64_t offset) { return offset < 0 ? nullptr : bindings.weights<float>(offset); };
    return {activation.kind, activation.alpha, at(alphas), at(scales), at(shifts)};
  }
  ProductWeights product_weights(const Bindings& bindings) const {
    if (row_major < 0) return {};
    return {{bindings.copied_weights<float16>(row_major), RowMajorWeights::stride_of(in)},
            bindings.copied_weights<float>(float_bias)};
  }
};

/// A linear of the plan, as one layer or as one for each group.
struct PackedLinearNode {
  int node = -1;
  LinearOp op;
  std::vector<LayerWeights> layers;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  /// Columns of x that a layer reads, and of everything as wide as y that it touches.
  int64_t x_column(int64_t layer) const { return op.shared_input ? 0 : layer * layers[0].in; }
  int64_t y_column(int64_t layer) const { return layer * layers[0].out; }
};

/// How a linear is packed.
struct LinearPacking {
  bool is_stack = false;      ///< groups that share their input are a layer each, not one tall layer
  bool for_cublaslt = false;  ///< for cuBLASLt, too; not where weights are in INT8
  bool is_int8 = false;
};

/// Packs a linear.
inline PackedLinearNode pack(const Graph& graph, int n, const LinearPacking& packing,
                             const detail::ParameterSource& source, WeightsMemory& memory) {
  const Node& node = graph.node(n);
  PackedLinearNode packed{n, std::get<LinearOp>(node.op), {}};
  const LinearOp& op = packed.op;
  const detail::FoldedLinear folded = source.linear(op);
  const detail::OwnedActivation activation = source.activation(op.activation, op.name);
  const int64_t x_width = graph.node(node.inputs[0]).width;
  const int64_t num_layers = num_layers_of(op, packing.is_stack);
  const int64_t in = op.shared_input ? x_width : x_width / op.groups, out = node.width / num_layers;
  const auto part = [&](const std::vector<float>& values, int64_t layer, int64_t size) {
    return values.empty() ? Span<const float>() : Span<const float>(values).subspan(layer * size, size);
  };
  const auto add = [&](Span<const float> values) { return memory.add(values.data(), 4 * values.size()); };
  for (int64_t l = 0; l < num_layers; ++l) {
    LayerWeights layer;
    layer.in = in;
    layer.out = out;
    const Span<const float> weight = part(folded.weight, l, out * in), bias = part(folded.bias, l, out);
    layer.type = packing.is_int8 ? DType::i8 : DType::f16;
    const Buffer<unsigned char> bytes = naming(op.name, [&] { return pack_linear(layer.type, weight, bias, in, out); });
    layer.packed = memory.add(bytes.data(), bytes.size());
    if (packing.for_cublaslt && !packing.is_int8) {
      const std::vector<float16> row_major = detail::gemm::pack_row_major(weight, bias, in, out);
      layer.row_major = memory.add_copied(row_major.data(), 2 * static_cast<int64_t>(row_major.size()));
      std::vector<float> float_bias(bias.begin(), bias.end());
      float_bias.resize(static_cast<size_t>(out));
      if (layer.row_major >= 0) layer.float_bias = memory.add_copied(float_bias.data(), 4 * out);
    }
    layer.activation = activation.spec;
    layer.alphas = add(part(activation.alpha, l, out));
    layer.scales = add(part(activation.scale, l, out));
    layer.shifts = add(part(activation.shift, l, out));
    packed.layers.push_back(layer);
  }
  return packed;
}

/// What a linear reads beside x.
struct LinearOperands {
  AxisInput<void> row_bias;
  FloatMatrix<const void> multiply, residual;
};

inline LinearOperands operands_of(const Bindings& bindings, const PackedLinearNode& packed) {
  const Node& node = bindings.graph().node(packed.node);
  LinearOperands operands;
  size_t next = 1;
  if (packed.op.row_bias) operands.row_bias = bindings.input_on(node.inputs[next++], node.axis);
  if (packed.op.multiply) operands.multiply = bindings.input(node.inputs[next++]);
  if (packed.op.residual) operands.residual = bindings.input(node.inputs[next++]);
  return operands;
}

/// Linears of which each reads the one before it; the first may read a mix of experts.
struct LinearChain {
  int mix = -1;  ///< node
  std::vector<PackedLinearNode> linears;
};

/// Linears that do not depend on one another: one launch, but for those that are cuBLASLt's. `picks` by chain.
inline PreparedStep prepare_linears(const std::vector<LinearChain>& chains, const LinearPicks& picks,
                                    const Bindings& bindings, StepMemory& memory) {
  std::vector<ChosenLayer> layers;
  for (size_t c = 0; c < chains.size(); ++c) {
    const PackedLinearNode& packed = chains[c].linears[0];
    const Node& node = bindings.graph().node(packed.node);
    const LinearOperands operands = operands_of(bindings, packed);
    for (int64_t l = 0; l < packed.num_layers(); ++l) {
      const LayerWeights& weights = packed.layers[static_cast<size_t>(l)];
      const int64_t column = packed.y_column(l);
      ChosenLayer& chosen = layers.emplace_back();
      chosen.choose(picks.kernels[c], picks.variants[c], weights.product_weights(bindings));
      LinearLayer& layer = chosen.layer;
      layer.weights = bindings.weights(weights.packed);
      layer.weight_type = weights.type;
      layer.x = bindings.halves(node.inputs[0]).columns(packed.x_column(l), weights.in);
      layer.num_rows = bindings.num_rows(node.axis);
      layer.row_bias = operands.row_bias.columns(column, weights.out);
      layer.activation = weights.device_activation(bindings);
      layer.multiply = operands.multiply.columns(column, weights.out);
      layer.residual = operands.residual.columns(column, weights.out);
      layer.residual_first = packed.op.residual_first;
      layer.y = bindings.value(packed.node).columns(column, weights.out);
    }
  }
  return prepare_levels({layers}, memory);
}

/// Chains of like length, as ops/mlp.cuh takes them. They refer to `layers`.
inline std::vector<Mlp> stacks_of(const std::vector<LinearChain>& chains, const Bindings& bindings,
                                  std::vector<std::vector<MlpLayer>>& layers) {
  const Graph& graph = bindings.graph();
  size_t num_stacks = 0;
  for (const LinearChain& chain : chains) num_stacks += chain.linears[0].layers.size();
  std::vector<Mlp> stacks;
  layers.resize(num_stacks);
  for (const LinearChain& chain : chains) {
    const PackedLinearNode &first = chain.linears.front(), &last = chain.linears.back();
    const Node& first_node = graph.node(first.node);
    const LinearOperands begin = operands_of(bindings, first), end = operands_of(bindings, last);
    for (int64_t g = 0; g < first.num_layers(); ++g) {
      std::vector<MlpLayer>& stack_layers = layers[stacks.size()];
      for (const PackedLinearNode& packed : chain.linears) {
        const LayerWeights& weights = packed.layers[static_cast<size_t>(g)];
        stack_layers.push_back({bindings.weights(weights.packed), weights.out, weights.device_activation(bindings)});
      }
      const LayerWeights& in = first.layers[static_cast<size_t>(g)];
      const int64_t out = last.layers[static_cast<size_t>(g)].out;
      Mlp& stack = stacks.emplace_back();
      if (chain.mix >= 0) {
        const Node& mix = graph.node(chain.mix);
        stack.x = bindings.input(mix.inputs[0]);
        stack.mix.gate = bindings.input_on(mix.inputs[1], mix.axis);
        stack.mix.normalization = std::get<MixOp>(mix.op).normalization;
        stack.in = in.in;
      } else {
        stack.x = bindings.input(first_node.inputs[0]).columns(first.x_column(g), in.in);
      }
      stack.num_rows = bindings.num_rows(first_node.axis);
      stack.row_bias = begin.row_bias.columns(first.y_column(g), in.out);
      if (chain.linears.size() > 1) stack.last_row_bias = end.row_bias.columns(last.y_column(g), out);
      stack.layers = stack_layers;
      stack.multiply = end.multiply.columns(last.y_column(g), out);
      stack.residual = end.residual.columns(last.y_column(g), out);
      stack.residual_first = last.op.residual_first;
      stack.y = bindings.value(last.node).columns(last.y_column(g), out);
    }
  }
  return stacks;
}

/// A product of the heads of chains.
struct ProductNode {
  RowNode row;                   ///< for where it gets a launch of its own
  std::vector<int64_t> factors;  ///< chains, by number, in the order in which they are multiplied
};

/// All layers in one launch. `products` are of chains that are a stack each. `variant`: LinearChoice::variants.
inline PreparedStep prepare_fused(const std::vector<LinearChain>& chains, const std::vector<Mlp>& stacks,
                                  const std::vector<ProductNode>& products, const std::string& variant,
                                  const Bindings& bindings, StepMemory& memory) {
  std::vector<int64_t> stack_of(1, 0);  // by chain, the first
  for (const LinearChain& chain : chains) stack_of.push_back(stack_of.back() + chain.linears[0].num_layers());
  std::vector<std::vector<int64_t>> factors;
  for (const ProductNode& product : products) {
    factors.emplace_back();
    for (const int64_t chain : product.factors) factors.back().push_back(stack_of[static_cast<size_t>(chain)]);
  }
  std::vector<HeadProduct> of_heads;
  for (size_t p = 0; p < products.size(); ++p) of_heads.push_back({factors[p], bindings.value(products[p].row.node)});
  constexpr bool spread_first = false;  // the plan has decided what is one launch
  const std::optional<ChainPolicy> named = chain_policy_named(variant);
  // Elsewhere layers like these had rows of whole vectors, and have not in this model.
  const bool fits = named && detail::mlp::fits_chain(Span<const Mlp>(stacks), *named);
  const ChainPolicy* const policy = fits ? &*named : nullptr;
  return prepare_launch("mlp", MlpLaunch(stacks, device::target(), spread_first, of_heads, policy), memory);
}

/// One step, then another.
inline PreparedStep in_turn(PreparedStep first, PreparedStep second) {
  first.kernel += ", " + second.kernel;
  first.num_launches += second.num_launches;
  first.captures_weights |= second.captures_weights;
  first.reads_unused_rows |= second.reads_unused_rows;
  first.queue = [one = std::move(first.queue), other = std::move(second.queue)](device::Stream to) {
    one(to);
    other(to);
  };
  return first;
}

/// Chains of like length. `picks` by chain, of its linears: all fused, or none; then products are a launch behind them.
inline PreparedStep prepare_chains(const std::vector<LinearChain>& chains, const std::vector<ProductNode>& products,
                                   const std::vector<LinearPicks>& picks, const Bindings& bindings,
                                   StepMemory& memory) {
  std::vector<std::vector<MlpLayer>> layers;
  const std::vector<Mlp> stacks = stacks_of(chains, bindings, layers);
  if (picks[0].kernels[0] == LinearKernel::fused)
    return prepare_fused(chains, stacks, products, picks[0].variants[0], bindings, memory);
  const size_t depth = chains[0].linears.size();
  std::vector<FloatMatrix<const void>> x;
  for (const Mlp& stack : stacks) x.push_back(stack.x);
  std::vector<std::vector<ChosenLayer>> levels(depth);
  for (size_t l = 0; l < depth; ++l) {
    size_t s = 0;  // stack
    for (size_t c = 0; c < chains.size(); ++c)
      for (const LayerWeights& weights : chains[c].linears[l].layers) {
        const int64_t rows = stacks[s].x.rows, stride = round_up(weights.out, 8);
        FloatMatrix<void> y = stacks[s].y;
        if (l + 1 < depth)  // zeroed, as cuBLASLt reads rows that nobody has written
          y = Matrix<float16>(static_cast<float16*>(memory.zeroed(rows * stride * 2)), rows, weights.out, stride);
        ChosenLayer& chosen = levels[l].emplace_back();
        chosen.layer = detail::mlp::layer_of(stacks[s], static_cast<int64_t>(l), x[s], y);
        chosen.choose(picks[c].kernels[l], picks[c].variants[l], weights.product_weights(bindings));
        x[s++] = Bindings::as_const(y);
      }
  }
  PreparedStep step = prepare_levels(levels, memory);
  if (products.empty()) return step;
  std::vector<RowNode> rows;
  for (const ProductNode& product : products) rows.push_back(product.row);
  return in_turn(std::move(step), prepare_rows(rows, bindings, memory));
}

/// Linears of the plan that are launched together: chains, or such that do not depend on one another.
struct LinearStep {
  std::vector<NodeChain> nodes;
  std::vector<LinearChain> chains;
  std::vector<ProductNode> products;  ///< of their heads
  bool is_stack = false;

  StepShape shape(const Bindings& bindings) const {
    return shape_of_step(
        bindings.graph(), nodes, is_stack, [&](int axis) { return bindings.max_rows(axis); },
        [&](int n) { return bindings.value(n).type; });
  }
  /// `picks` by layer of the shape.
  PreparedStep prepare(const StepShape& shape, const LinearPicks& picks, const Bindings& bindings,
                       StepMemory& memory) const {
    std::vector<LinearPicks> of_chains;
    LinearPicks of_firsts;  // all there are, unless they are stacks
    for (const std::vector<size_t>& chain : shape.of) {
      LinearPicks& of = of_chains.emplace_back();
      for (const size_t layer : chain) {
        of.kernels.push_back(picks.kernels[layer]);
        of.variants.push_back(picks.variants[layer]);
      }
      of_firsts.kernels.push_back(of.kernels[0]);
      of_firsts.variants.push_back(of.variants[0]);
    }
    if (is_stack) return prepare_chains(chains, products, of_chains, bindings, memory);
    return prepare_linears(chains, of_firsts, bindings, memory);
  }
  /// The same; where cuBLASLt has no algorithm for a layer, tiles take all that were to be cuBLASLt's.
  PreparedStep prepare_all_the_same(const StepShape& shape, LinearPicks picks, const Bindings& bindings,
                                    StepMemory& memory) const {
    if (!picks.has(LinearKernel::cublaslt)) return prepare(shape, picks, bindings, memory);
    const StepMemory before = memory;
    try {
      return prepare(shape, picks, bindings, memory);
    } catch (const no_cublaslt_algorithm&) {
      memory = before;
      std::vector<LinearKernel>& kernels = picks.kernels;
      std::replace(kernels.begin(), kernels.end(), LinearKernel::cublaslt, LinearKernel::tiles);
      return prepare(shape, LinearPicks(kernels), bindings, memory);
    }
  }
};

/// A linear of which each row goes through the group that its scene names.
struct PackedScenes {
  int node = -1;
  int64_t num_scenes = 0;
  LayerWeights weights;  ///< of all groups
};

inline PackedScenes pack_scenes(const Graph& graph, int n, bool is_int8, const detail::ParameterSource& source,
                                WeightsMemory& memory) {
  const Node& node = graph.node(n);
  const auto& op = std::get<LinearOp>(node.op);
  const detail::FoldedLinear folded = source.linear(op);
  const detail::OwnedActivation activation = source.activation(op.activation, op.name);
  PackedScenes made{n, op.groups, {}};
  LayerWeights& to = made.weights;
  to.in = graph.node(node.inputs[0]).width;
  to.out = node.width;
  to.type = is_int8 ? DType::i8 : DType::f16;
  const Span<const float> weight(folded.weight), bias(folded.bias);
  const Buffer<unsigned char> bytes = naming(op.name, [&] {
    return is_int8 ? pack_int8_experts(weight, bias, to.in, to.out, op.groups)
                   : pack_experts(weight, bias, to.in, to.out, op.groups);
  });
  to.packed = memory.add(bytes.data(), bytes.size());
  to.activation = activation.spec;
  to.alphas = memory.add(activation.alpha);
  to.scales = memory.add(activation.scale);
  to.shifts = memory.add(activation.shift);
  return made;
}

inline PreparedStep prepare_scenes(const PackedScenes& packed, const Bindings& bindings, StepMemory& memory) {
  const Graph& graph = bindings.graph();
  const Node& node = graph.node(packed.node);
  const auto& op = std::get<LinearOp>(node.op);
  const IdsInfo& info = graph.ids[static_cast<size_t>(op.scene)];
  SceneIds scenes;
  BlobIds ids;
  ids.requests = bindings.requests();
  ids.input = op.scene;
  ids.axis = info.axis;
  ids.num_ids.capacity = bindings.max_rows(info.axis);
  ids.default_id = info.default_id;
  ids.wire = info.wire;
  scenes.ids = ids;
  scenes.num_ids.capacity = bindings.max_rows(info.axis);
  if (info.axis != node.axis) scenes.offsets = bindings.offsets({node.axis, info.axis});
  scenes.counters = bindings.counters(packed.node);

  const DeviceCount num_rows{bindings.max_rows(node.axis), bindings.num_rows(node.axis)};
  void* const groups = memory.unwritten(SceneRows::bytes(packed.num_scenes, num_rows.capacity));
  const SceneRows rows(scenes, packed.num_scenes, num_rows, groups);
  LinearLayer layer;
  layer.weights = bindings.weights(packed.weights.packed);
  layer.weight_type = packed.weights.type;
  layer.x = bindings.halves(node.inputs[0]);
  layer.num_rows = num_rows.actual;
  layer.activation = packed.weights.device_activation(bindings);
  layer.y = bindings.value(packed.node);
  layer.groups = rows.groups();
  return in_turn(prepare_launch("scene_rows", rows, memory),
                 prepare_launch("linear", LinearLaunch(Span<const LinearLayer>(&layer, 1)), memory));
}

}}}  // namespace warprank::v0::cuda_backend
