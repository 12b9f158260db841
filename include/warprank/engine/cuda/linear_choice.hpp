// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the steps of linears look like to a Tuning, and which kernels they get. Plain C++, no device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

namespace warprank::cuda_backend {

/// Nodes that read one another: linears, and maybe a mix of experts in front.
using NodeChain = std::vector<int>;

/// How many layers a linear is launched as: one for each group, or all groups that share their input as one.
inline int64_t num_layers_of(const LinearOp& op, bool apart) { return op.shared_input && !apart ? 1 : op.groups; }

/// The layers of a step at some capacity, those that are alike counted together.
struct StepShape {
  std::vector<LinearShape> layers;
  std::vector<bool> is_head;            ///< by layer: of one output, which is computed in FP32
  std::vector<bool> is_bare;            ///< by layer: cuBLASLt does all that is behind the product
  std::vector<std::vector<size_t>> of;  ///< by chain and linear: which of the layers it is
  bool is_stack = false;                ///< its chains are of several linears, or begin with a mix
  bool mixes = false;                   ///< a chain begins with a mix, which only the fused kernel computes

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
                               detail::cublaslt_fuses(op->activation.kind));
      }
      step.layers[of.back()].count += count;
    }
  }
  return step;
}

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

  bool has_cublaslt() const { return has_cublaslt_; }

  /// By layer of the step. Throws invalid_argument for a kernel in the tuning that does not compute its layer.
  std::vector<LinearKernel> choose(const StepShape& step) const {
    if (one_kernel_) return by_one_kernel(step);
    if (step.mixes) return by_rule(step);  // was not measured, even if layers like its own were
    const LinearChoice* measured = tuning_ == nullptr ? nullptr : tuning_->find(step.layers);
    if (measured == nullptr) return by_rule(step);
    for (size_t i = 0; i < step.layers.size(); ++i)
      if (!step.may_be(i, measured->kernels[i], has_cublaslt_))
        throw invalid_argument("tuning: layer " + detail::text_of_shape(step.layers[i]), "a kernel that computes it",
                               name_of_enum(measured->kernels[i]));
    return measured->kernels;
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
    return tries_all_ || choose(step)[layer] == LinearKernel::cublaslt;
  }

 private:
  std::shared_ptr<const Tuning> tuning_;
  bool has_cublaslt_ = false, tries_all_ = false;
  int target_ = 0;
  std::optional<LinearKernel> one_kernel_;
};

}  // namespace warprank::cuda_backend
