// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes from stored tensors the values that every engine packs: FP32, batch norms folded, columns selected.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/plan/plan.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// The vectors of an activation, owned.
struct OwnedActivation {
  Activation spec;
  std::vector<float> alpha, scale, shift;
};

/// weight [out, in] of all groups, after folding; bias [out] or empty.
struct FoldedLinear {
  std::vector<float> weight, bias;
};

class ParameterSource {
 public:
  ParameterSource(const Plan& plan, const Weights& weights) : graph_(plan.graph()), weights_(weights) {
    for (const Parameter& parameter : plan.parameters()) parameters_.emplace(parameter.name, parameter);
  }

  /// Of the plan; by its shapes some layers are packed.
  const Graph& graph() const { return graph_; }

  /// A tensor in FP32, row-major, in the layout of its Parameter. Throws invalid_argument for NaN and infinity, so that
  /// a diverged training is found here and not in the scores.
  std::vector<float> load(const std::string& name) const {
    const Parameter& parameter = parameters_.at(name);
    std::vector<float> values(static_cast<size_t>(num_elements(parameter.shape).value()));
    weights_.copy_to(parameter, values);
    for (size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        throw invalid_argument("weight '" + name + "', element " + std::to_string(i), "a finite number",
                               std::to_string(values[i]));
    return values;
  }

  /// The same, or nothing where the layer has no such tensor.
  std::vector<float> load_if(bool is_there, const std::string& name) const {
    return is_there ? load(name) : std::vector<float>();
  }

  /// Batch norm as scale and shift per channel, computed in double. Throws invalid_argument where the variance plus eps
  /// is not positive.
  std::pair<std::vector<float>, std::vector<float>> batch_norm(const std::string& name, float eps, bool affine) const {
    std::vector<float> scale = load(name + ".running_var"), shift = load(name + ".running_mean");
    const std::vector<float> weight = affine ? load(name + ".weight") : std::vector<float>(scale.size(), 1.0f);
    const std::vector<float> bias = affine ? load(name + ".bias") : std::vector<float>(scale.size(), 0.0f);
    for (size_t i = 0; i < scale.size(); ++i) {
      const double variance = static_cast<double>(scale[i]) + eps;
      if (!(variance > 0))
        throw invalid_argument("weight '" + name + ".running_var', element " + std::to_string(i),
                               "a variance that is positive once eps is added", std::to_string(scale[i]));
      const double s = static_cast<double>(weight[i]) / std::sqrt(variance);
      shift[i] = static_cast<float>(bias[i] - shift[i] * s);
      scale[i] = static_cast<float>(s);
    }
    return {std::move(scale), std::move(shift)};
  }

  std::vector<float> learned_vector(const LearnedVector& v) const {
    if (v.kind == LearnedVector::Kind::stored) return load(v.name);
    auto [scale, shift] = batch_norm(v.name, v.eps, v.affine);
    return v.kind == LearnedVector::Kind::batch_norm_scale ? scale : shift;
  }

  OwnedActivation activation(const Activation& spec, const std::string& layer) const {
    OwnedActivation owned{spec, {}, {}, {}};
    if (spec.kind == ActivationKind::prelu) owned.alpha = load(layer + ".prelu.alpha");
    if (spec.kind == ActivationKind::dice) {
      owned.alpha = load(layer + ".dice.alpha");
      std::tie(owned.scale, owned.shift) = batch_norm(layer + ".dice", spec.eps, spec.affine);
    }
    return owned;
  }

  /// The weights of a LinearOp, `out` rows in all. Batch norm of the input: W diag(s), b + W t over all columns of the
  /// stored weight (an outermost term answers for the constants of all terms); of the output: diag(s) W, s b + t.
  FoldedLinear linear(const LinearOp& op) const {
    if (op.ones) return sum_of_columns(op);
    const std::vector<int64_t>& shape = parameters_.at(op.name + ".weight").shape;
    const auto in = static_cast<size_t>(shape.back());
    std::vector<float> stored = load(op.name + ".weight");
    const size_t out = stored.size() / in;
    std::vector<double> constants(out, 0.0);
    const bool has_constants = !op.is_term && (op.bias || op.input_norm || op.norm);
    if (op.bias && !op.is_term) {
      const std::vector<float> bias = load(op.name + ".bias");
      std::copy(bias.begin(), bias.end(), constants.begin());
    }
    if (op.input_norm) {
      const auto [scale, shift] = batch_norm(op.input_norm->name, op.input_norm->eps, op.input_norm->affine);
      for (size_t o = 0; o < out; ++o)
        for (size_t i = 0; i < in; ++i) {
          constants[o] += static_cast<double>(stored[o * in + i]) * shift[i];
          stored[o * in + i] *= scale[i];
        }
    }
    if (op.norm) {
      const auto [scale, shift] = batch_norm(op.norm->name, op.norm->eps, op.norm->affine);
      for (size_t o = 0; o < out; ++o) {
        constants[o] = constants[o] * scale[o] + shift[o];
        for (size_t i = 0; i < in; ++i) stored[o * in + i] *= scale[o];
      }
    }
    FoldedLinear folded;
    if (has_constants) folded.bias.assign(constants.begin(), constants.end());
    folded.weight = op.columns.empty() ? std::move(stored) : select_columns(stored, in, op.columns);
    return folded;
  }

 private:
  FoldedLinear sum_of_columns(const LinearOp& op) const {
    int64_t in = op.columns.empty() ? op.stored_in : 0;
    for (const ColumnRange& range : op.columns) in += range.end - range.begin;
    FoldedLinear sum;
    sum.weight.assign(static_cast<size_t>(in), 1.0f);
    if (op.bias && !op.is_term) sum.bias = load(op.name + ".bias");
    return sum;
  }

  static std::vector<float> select_columns(const std::vector<float>& weight, size_t in,
                                           const std::vector<ColumnRange>& columns) {
    std::vector<float> selected;
    for (auto row = weight.begin(); row != weight.end(); row += static_cast<std::ptrdiff_t>(in))
      for (const ColumnRange& range : columns) selected.insert(selected.end(), row + range.begin, row + range.end);
    return selected;
  }

  const Graph& graph_;
  const Weights& weights_;
  std::map<std::string, Parameter> parameters_;
};

}}}  // namespace warprank::v0::detail
