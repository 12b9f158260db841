// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the steps of linears look like to a Tuning, and which kernels they get. Plain C++, no device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/engine/tuning.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/ops/detail/gemm/row_major.hpp"
#include "warprank/ops/detail/linear/tiling.hpp"
#include "warprank/ops/detail/mlp/policy.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Nodes that read one another: linears, and maybe a mix of experts in front.
using NodeChain = std::vector<int>;

/// How many layers a linear is launched as: one for each group, or all groups that share their input as one.
inline int64_t num_layers_of(const LinearOp& op, bool apart) { return op.shared_input && !apart ? 1 : op.groups; }

/// Linears of a step of the plan by what is launched together.
struct LinearGroups {
  struct Group {
    std::vector<NodeChain> chains;
    bool are_stacks;
  };
  std::vector<Group> groups;
  std::vector<int> scenes;  ///< linears of which each row goes through the group that its scene names
};

/// `linears` in an order in which each comes after what it reads. Linears that read one another are chains, and mixes
/// go with the chain that reads them: they are taken from `mixes`.
inline LinearGroups group_linears(const Graph& graph, const std::vector<int>& linears, std::vector<int>& mixes) {
  LinearGroups grouped;
  std::vector<NodeChain> chains;
  for (const int n : linears) {
    if (std::get<LinearOp>(graph.node(n).op).scene >= 0) {
      grouped.scenes.push_back(n);
      continue;
    }
    const int x = graph.node(n).inputs[0];
    const auto chain = std::find_if(chains.begin(), chains.end(), [&](const auto& c) { return c.back() == x; });
    if (chain != chains.end()) {
      chain->push_back(n);
    } else if (const auto mix = std::find(mixes.begin(), mixes.end(), x); mix != mixes.end()) {
      chains.push_back({x, n});
      mixes.erase(mix);
    } else {
      chains.push_back({n});
    }
  }
  while (!chains.empty()) {  // one launch for those of each depth, be they mixed on load or not
    const auto kind_of = [&](const NodeChain& chain) {
      const bool is_mixed = std::holds_alternative<MixOp>(graph.node(chain[0]).op);
      return std::make_pair(chain.size() - is_mixed, chain.size() > 1);
    };
    const auto kind = kind_of(chains[0]);
    const auto end = std::stable_partition(chains.begin(), chains.end(),
                                           [&](const NodeChain& chain) { return kind_of(chain) == kind; });
    grouped.groups.push_back({{chains.begin(), end}, kind.second});
    chains.erase(chains.begin(), end);
  }
  return grouped;
}

/// The layers of a step at some capacity, those that are alike counted together.
struct StepShape {
  std::vector<LinearShape> layers;
  std::vector<bool> is_head;            ///< by layer: of one output, which is computed in FP32
  std::vector<bool> is_bare;            ///< by layer: cuBLASLt does all that is behind the product
  std::vector<std::vector<size_t>> of;  ///< by chain and linear: which of the layers it is
  bool is_stack = false;                ///< its chains are of several linears, or begin with a mix
  bool mixes = false;                   ///< a chain begins with a mix, which only the fused kernel computes

  /// Whether there is something to choose.
  bool is_open() const {
    return !mixes && std::any_of(layers.begin(), layers.end(), [](const LinearShape& layer) { return layer.rows > 0; });
  }
  bool may_be(size_t layer, LinearKernel kernel, bool has_cublaslt) const {
    switch (kernel) {
      case LinearKernel::fused:
        return is_stack;
      case LinearKernel::tiles:
        return !mixes;
      case LinearKernel::cublaslt:
        return !mixes && !is_head[layer] && has_cublaslt;
    }
    return false;
  }
};

/// `rows(axis)` of the capacity, `type(node)` of a value.
template <class Rows, class Type>
StepShape shape_of_step(const Graph& graph, const std::vector<NodeChain>& chains, bool is_stack, const Rows& rows,
                        const Type& type) {
  StepShape step;
  step.is_stack = is_stack;
  for (const NodeChain& chain : chains) {
    std::vector<size_t>& of = step.of.emplace_back();
    for (const int n : chain) {
      const Node& node = graph.node(n);
      const auto* op = std::get_if<LinearOp>(&node.op);
      if (op == nullptr) {
        step.mixes = true;
        continue;
      }
      const int64_t count = num_layers_of(*op, is_stack), x_width = graph.node(node.inputs[0]).width;
      const DType y = n == chain.back() ? type(n) : DType::f16;
      LinearShape shape;
      shape.depth = static_cast<int64_t>(of.size());
      shape.rows = rows(node.axis);
      shape.in = op->shared_input ? x_width : x_width / op->groups;
      shape.out = node.width / count;
      if (op->row_bias) shape.behind += "row bias, ";
      if (op->residual && op->residual_first) shape.behind += "residual, ";
      if (op->activation.kind != ActivationKind::identity)
        shape.behind += std::string(name_of_enum(op->activation.kind)) + ", ";
      if (op->multiply) shape.behind += "factor, ";
      if (op->residual && !op->residual_first) shape.behind += "residual, ";
      shape.behind += y == DType::f16 ? "f16" : "f32";
      shape.count = 0;
      const auto same = std::find_if(step.layers.begin(), step.layers.end(), [&](LinearShape other) {
        other.count = 0;
        return other == shape;
      });
      of.push_back(static_cast<size_t>(same - step.layers.begin()));
      if (same == step.layers.end()) {
        step.layers.push_back(shape);
        step.is_head.push_back(shape.out == 1);
        step.is_bare.push_back(!op->row_bias && !op->multiply && !op->residual &&
                               detail::gemm::cublaslt_fuses(op->activation.kind));
      }
      step.layers[of.back()].count += count;
    }
  }
  return step;
}

/// By layer of a step: which kernel computes it, and how (LinearChoice::variants).
struct LinearPicks {
  std::vector<LinearKernel> kernels;
  std::vector<std::string> variants;

  LinearPicks() = default;
  /// As the kernels' own rules have it.
  explicit LinearPicks(std::vector<LinearKernel> by_layer) : kernels(std::move(by_layer)), variants(kernels.size()) {}
  explicit LinearPicks(const LinearChoice& choice) : kernels(choice.kernels), variants(choice.variants) {}

  bool has(LinearKernel kernel) const { return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end(); }
  bool operator==(const LinearPicks& other) const { return kernels == other.kernels && variants == other.variants; }
};

/// The variants of fused chains, of tiles, and of cuBLASLt; none for a text that names none.
inline std::optional<ChainPolicy> chain_policy_named(const std::string& text) {
  std::vector<ChainPolicy> all{{{}, MlpTile::rows_16}, {{}, MlpTile::rows_32}};
  for (SplitPolicy split : detail::mlp::split_kernels)
    for (split.blocks = 1; split.blocks <= detail::mlp::max_split_blocks; ++split.blocks) all.push_back({split});
  for (const ChainPolicy& policy : all)
    if (policy.to_string() == text) return policy;
  return {};
}

inline std::optional<LinearTiling> tiling_named(const std::string& text) {
  for (int tile = 0; tile < detail::linear::num_tiles; ++tile)
    for (int parts = 1; parts <= detail::linear::max_parts; ++parts) {
      const LinearTiling tiling{static_cast<LinearTile>(tile), parts};
      if (parts > 1 && !detail::linear::tile_shape(tiling.tile).can_be_cut) break;
      if (tiling.to_string() == text) return tiling;
    }
  return {};
}
inline constexpr int most_algorithms = 16;  ///< of cuBLASLt, for a layer
inline std::string name_of_algorithm(int algorithm) { return "algorithm " + std::to_string(algorithm); }
inline std::optional<int> algorithm_named(const std::string& text) {
  for (int algorithm = 0; algorithm < most_algorithms; ++algorithm)
    if (name_of_algorithm(algorithm) == text) return algorithm;
  return {};
}

/// What tiles take of the layers of a depth: heads are cut in a way of their own.
inline std::vector<detail::linear::Size> tiled_sizes(const StepShape& step, int64_t depth) {
  std::vector<detail::linear::Size> sizes;
  for (size_t i = 0; i < step.layers.size(); ++i) {
    const LinearShape& layer = step.layers[i];
    if (layer.depth != depth || step.is_head[i]) continue;
    sizes.insert(sizes.end(), static_cast<size_t>(layer.count), {layer.rows, layer.in, layer.out});
  }
  return sizes;
}
inline int64_t depth_of(const StepShape& step) {
  int64_t depth = 0;
  for (const LinearShape& layer : step.layers) depth = std::max(depth, layer.depth + 1);
  return depth;
}

/// Ways to cut the layers of a depth, but for what the table says: those that it has not for much slower, best first.
inline std::vector<LinearTiling> tilings_to_try(const StepShape& step, int64_t depth, int target) {
  constexpr double much_slower = 1.5;
  constexpr size_t most = 5;
  const std::vector<detail::linear::Size> sizes = tiled_sizes(step, depth);
  std::vector<std::pair<double, LinearTiling>> all;
  for (int tile = 0; tile < detail::linear::num_tiles && !sizes.empty(); ++tile)
    for (int parts = 1; parts <= detail::linear::max_parts; ++parts) {
      const LinearTiling tiling{static_cast<LinearTile>(tile), parts};
      if (parts > 1 && !detail::linear::tile_shape(tiling.tile).can_be_cut) break;
      all.emplace_back(detail::linear::cost_of(sizes, tiling, target), tiling);
    }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<LinearTiling> tilings;
  const LinearTiling by_table = detail::linear::choose_tiling(sizes, true, target);
  for (const auto& [cost, tiling] : all)
    if (cost <= much_slower * all[0].first && tilings.size() < most && tiling.to_string() != by_table.to_string())
      tilings.push_back(tiling);
  return tilings;
}

/// Ways to compute a chain in one launch: split over about so many blocks that the card is full, half full and a
/// quarter full, and by tiles of rows.
inline std::vector<ChainPolicy> chains_to_try(const StepShape& step, int target) {
  const auto tiles = [&](int64_t rows) {
    int64_t all = 0;
    for (const LinearShape& layer : step.layers)
      if (layer.depth == 0) all += layer.count * ((layer.rows + rows - 1) / rows);
    return all;
  };
  int64_t widest = 1;
  for (const LinearShape& layer : step.layers) widest = std::max(widest, (layer.out + 15) / 16);
  std::vector<ChainPolicy> policies{{{}, MlpTile::rows_16}, {{}, MlpTile::rows_32}};
  for (SplitPolicy split : detail::mlp::split_kernels) {
    if (tiles(split.rows()) == 0) continue;
    const int64_t at_once =
        detail::mlp::multiprocessors_of(target) * detail::mlp::blocks_of_multiprocessor(target, split);
    const int64_t fit = at_once / tiles(split.rows());
    const int64_t shares = (widest + split.pairs - 1) / split.pairs;
    const int64_t most = std::min({fit, shares, int64_t{detail::mlp::max_split_blocks}});
    for (int64_t blocks = most; blocks >= std::max<int64_t>(1, most / 4); blocks /= 2) {
      split.blocks = static_cast<int>(blocks);
      policies.push_back({split});
    }
  }
  return policies;
}

/// The same way to cut a step at all capacities.
class HeldTilings {
 public:
  HeldTilings() = default;
  /// `steps` at all capacities.
  HeldTilings(const std::vector<StepShape>& steps, int target) {
    for (const StepShape& step : steps) {
      const std::vector<LinearShape> layers = without_rows(step.layers);
      if (find(layers) != nullptr) continue;
      std::vector<std::string> variants(layers.size());
      for (int64_t depth = 0; depth < depth_of(step); ++depth) {
        const std::string tiling = least_of_all(steps, layers, depth, target).to_string();
        for (size_t i = 0; i < layers.size(); ++i)
          if (layers[i].depth == depth) variants[i] = tiling;
      }
      held_.emplace_back(layers, std::move(variants));
    }
  }
  /// By layer; null for a step that is not among them at any capacity.
  const std::vector<std::string>* variants(const StepShape& step) const { return find(without_rows(step.layers)); }

 private:
  static std::vector<LinearShape> without_rows(std::vector<LinearShape> layers) {
    for (LinearShape& layer : layers) layer.rows = 0;
    return layers;
  }
  const std::vector<std::string>* find(const std::vector<LinearShape>& layers) const {
    for (const auto& [known, variants] : held_)
      if (known == layers) return &variants;
    return nullptr;
  }
  /// The tiling, of those that compute all layers, that takes least at all capacities together.
  static LinearTiling least_of_all(const std::vector<StepShape>& steps, const std::vector<LinearShape>& layers,
                                   int64_t depth, int target) {
    LinearTiling best;
    double least = std::numeric_limits<double>::infinity();
    for (int tile = 0; tile < detail::linear::num_tiles; ++tile) {
      const LinearTiling tiling{static_cast<LinearTile>(tile), 1};
      if (!detail::linear::tile_shape(tiling.tile).is_general) continue;
      double cost = 0;
      for (const StepShape& step : steps)
        if (without_rows(step.layers) == layers)
          cost += detail::linear::cost_of(tiled_sizes(step, depth), tiling, target);
      if (cost < least) least = cost, best = tiling;
    }
    return best;
  }

  std::vector<std::pair<std::vector<LinearShape>, std::vector<std::string>>> held_;
};

/// Chooses for the steps of a model: one kernel for everything that it computes, or by its tuning, and by rule what
/// that has not.
class LinearChooser {
 public:
  LinearChooser() = default;
  /// For the kernels of `target`.
  LinearChooser(std::shared_ptr<const Tuning> tuning, bool has_cublaslt, int target,
                std::optional<LinearKernel> one_kernel = {})
      : tuning_(std::move(tuning)), has_cublaslt_(has_cublaslt), target_(target), one_kernel_(one_kernel) {}
  /// By rule, and models are bound so that everything can be tried.
  static LinearChooser for_trials(bool has_cublaslt, int target) {
    LinearChooser chooser(nullptr, has_cublaslt, target);
    chooser.tries_all_ = true;
    return chooser;
  }

  /// As BindOptions::same_kernels_at_all_capacities has it.
  static LinearChooser holding(HeldTilings held, int target) {
    LinearChooser chooser(nullptr, false, target);
    chooser.held_ = std::move(held);
    return chooser;
  }

  bool has_cublaslt() const { return has_cublaslt_; }

  /// By layer of the step. Throws invalid_argument for a kernel in the tuning that does not compute its layer.
  LinearPicks choose(const StepShape& step) const {
    if (one_kernel_) return LinearPicks(by_one_kernel(step));
    if (step.mixes) return LinearPicks(by_rule(step));  // was not measured, even if layers like its own were
    if (held_) {
      LinearPicks picks(std::vector<LinearKernel>(step.layers.size(), LinearKernel::tiles));
      if (const std::vector<std::string>* const variants = held_->variants(step)) picks.variants = *variants;
      return picks;
    }
    const LinearChoice* measured = tuning_ == nullptr ? nullptr : tuning_->find(step.layers);
    if (measured == nullptr) return LinearPicks(by_rule(step));
    check(*measured, step);
    return LinearPicks(*measured);
  }
  std::vector<LinearKernel> by_one_kernel(const StepShape& step) const {
    if (step.mixes || (step.is_stack && one_kernel_ == LinearKernel::fused)) return by_rule(step);
    std::vector<LinearKernel> kernels;
    for (size_t i = 0; i < step.layers.size(); ++i)
      kernels.push_back(step.may_be(i, *one_kernel_, has_cublaslt_) ? *one_kernel_ : LinearKernel::tiles);
    return kernels;
  }
  std::vector<LinearKernel> by_rule(const StepShape& step) const {
    std::vector<LinearKernel> kernels;
    for (size_t i = 0; i < step.layers.size(); ++i)
      kernels.push_back(linear_kernel_by_rule(step.layers[i], step.is_stack, step.is_bare[i] && !step.is_head[i],
                                              has_cublaslt_, target_));
    return kernels;
  }
  /// Whether some run of a model needs a layer's weights as cuBLASLt takes them.
  bool may_choose_cublaslt(const StepShape& step, size_t layer) const {
    if (!step.may_be(layer, LinearKernel::cublaslt, has_cublaslt_)) return false;
    return tries_all_ || choose(step).kernels[layer] == LinearKernel::cublaslt;
  }

 private:
  void check(const LinearChoice& measured, const StepShape& step) const {
    for (size_t i = 0; i < step.layers.size(); ++i) {
      const LinearKernel kernel = measured.kernels[i];
      const std::string& variant = measured.variants[i];
      const std::string what = "tuning: layer " + detail::text_of_shape(step.layers[i]);
      if (!step.may_be(i, kernel, has_cublaslt_))
        throw invalid_argument(what, "a kernel that computes it", name_of_enum(kernel));
      const bool is_known = variant.empty() || (kernel == LinearKernel::fused && chain_policy_named(variant)) ||
                            (kernel == LinearKernel::tiles && tiling_named(variant)) ||
                            (kernel == LinearKernel::cublaslt && algorithm_named(variant));
      if (!is_known)
        throw invalid_argument(what, std::string("a variant of ") + name_of_enum(kernel), "\"" + variant + "\"");
      for (size_t other = 0; other < i; ++other)
        if (kernel == LinearKernel::tiles && measured.kernels[other] == kernel &&
            step.layers[other].depth == step.layers[i].depth && measured.variants[other] != variant)
          throw invalid_argument(what, "tiles as of the layers beside it, \"" + measured.variants[other] + "\"",
                                 "\"" + variant + "\"");
      if (kernel == LinearKernel::fused && measured.variants[0] != variant)
        throw invalid_argument(what, "fused as the layers before it, \"" + measured.variants[0] + "\"",
                               "\"" + variant + "\"");
    }
  }

  std::shared_ptr<const Tuning> tuning_;
  bool has_cublaslt_ = false, tries_all_ = false;
  int target_ = 0;
  std::optional<LinearKernel> one_kernel_;
  std::optional<HeldTilings> held_;
};

}}}  // namespace warprank::v0::cuda_backend
