// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The operations of the model language, as plain data. A node of a Graph holds one of these; its inputs are nodes.
/// Formulas are stated here once; shapes are checked in model/infer.hpp, learned tensors listed in
/// model/parameters.hpp.
///
/// "ancestor" marks inputs that may live on an ancestor of the node's axis: row s serves all rows of segment s. The
/// Builder never creates such nodes (it asks for `expand`); the planner does, that is what late broadcast means.

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "warprank/core/fields.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/model/types.hpp"

namespace warprank {

/// Columns [begin, end).
struct ColumnRange {
  int64_t begin = 0;
  int64_t end = 0;
};
constexpr auto fields_of(const ColumnRange*) {
  return std::make_tuple(field("begin", &ColumnRange::begin), field("end", &ColumnRange::end));
}

/// y = (x - running_mean) / sqrt(running_var + eps) [* weight + bias]: a scale and a shift per channel once bound.
/// Reads "<name>.running_mean", ".running_var" and with `affine` ".weight", ".bias", all [width].
struct BatchNorm {
  std::string name;
  float eps = 1e-5f;
  bool affine = true;
};
constexpr auto fields_of(const BatchNorm*) {
  return std::make_tuple(field("name", &BatchNorm::name), field("eps", &BatchNorm::eps),
                         field("affine", &BatchNorm::affine));
}

/// A learned vector with one value per column, as an operand of an elementwise program.
struct LearnedVector {
  enum class Kind {
    stored,            ///< the tensor `name` as it is
    batch_norm_scale,  ///< weight / sqrt(running_var + eps) of the batch norm `name`
    batch_norm_shift   ///< bias - running_mean * scale
  };
  Kind kind = Kind::stored;
  std::string name;
  float eps = 0;
  bool affine = false;
};
constexpr auto names_of(LearnedVector::Kind) {
  return std::array<std::pair<LearnedVector::Kind, const char*>, 3>{
      {{LearnedVector::Kind::stored, "stored"},
       {LearnedVector::Kind::batch_norm_scale, "batch_norm_scale"},
       {LearnedVector::Kind::batch_norm_shift, "batch_norm_shift"}}};
}
constexpr auto fields_of(const LearnedVector*) {
  return std::make_tuple(field("kind", &LearnedVector::kind), field("name", &LearnedVector::name),
                         field("eps", &LearnedVector::eps), field("affine", &LearnedVector::affine));
}

/// A dense input: the rows of Graph::dense[input].
struct DenseOp {
  static constexpr const char* kind = "dense";
  int input = 0;
};
constexpr auto fields_of(const DenseOp*) { return std::make_tuple(field("input", &DenseOp::input)); }

/// Rows of a table by id. Pooling::none: one id per row, on the ids' axis; otherwise the ids' axis is pooled onto its
/// parent. Inputs: [weights: one column on the ids' axis].
struct EmbedOp {
  static constexpr const char* kind = "embed";
  int ids = 0;
  int table = 0;
  Pooling pooling = Pooling::none;
};
constexpr auto fields_of(const EmbedOp*) {
  return std::make_tuple(field("ids", &EmbedOp::ids), field("table", &EmbedOp::table),
                         field("pooling", &EmbedOp::pooling));
}

/// Columns of all inputs side by side.
struct ConcatOp {
  static constexpr const char* kind = "concat";
};
constexpr auto fields_of(const ConcatOp*) { return std::make_tuple(); }

/// Row s of the input (on an ancestor axis) repeated for every row of segment s.
struct ExpandOp {
  static constexpr const char* kind = "expand";
};
constexpr auto fields_of(const ExpandOp*) { return std::make_tuple(); }

/// Columns [begin, begin + width) of the input.
struct SliceOp {
  static constexpr const char* kind = "slice";
  int64_t begin = 0;
};
constexpr auto fields_of(const SliceOp*) { return std::make_tuple(field("begin", &SliceOp::begin)); }

/// y = act(x W^T + b [+ row_bias]) [* multiply] [+ residual], or with `residual_first`
/// y = act(x W^T + b [+ row_bias] + residual) [* multiply].
/// Inputs in this order, those that are there: x, row_bias (ancestor), multiply, residual.
/// "<name>.weight" is [out, in], or [groups, out, in] when stacked; "<name>.bias" [out] or [groups, out].
struct LinearOp {
  static constexpr const char* kind = "linear";
  std::string name;
  int64_t groups = 1;        ///< experts, or scenes
  bool stacked = false;      ///< the stored weight has a leading [groups] dimension
  bool shared_input = true;  ///< every group reads all of x; else x is [groups * in] and group g reads its own part
  int scene = -1;            ///< ids input that names each row's group (ancestor); only that group is computed
  bool bias = true;
  Activation activation;
  std::vector<ColumnRange> columns;     ///< columns of the stored weight that meet x, in x's order; empty: all
  int64_t stored_in = 0;                ///< columns of the stored weight, where `columns` or `ones` is given
  std::optional<BatchNorm> input_norm;  ///< batch norm of x, folded into weight and bias at bind
  std::optional<BatchNorm> norm;        ///< batch norm between the matrix product and the activation, folded likewise
  bool is_term = false;  ///< one term of a split linear: another term adds the constants (bias, folded shifts)
  bool ones = false;     ///< the one output is the sum over the columns of x: no weight is stored
  bool row_bias = false;
  bool multiply = false;
  bool residual = false;
  bool residual_first = false;  ///< the residual is added before the activation
};
constexpr auto fields_of(const LinearOp*) {
  return std::make_tuple(
      field("name", &LinearOp::name), field("groups", &LinearOp::groups), field("stacked", &LinearOp::stacked),
      field("shared_input", &LinearOp::shared_input), field("scene", &LinearOp::scene), field("bias", &LinearOp::bias),
      field("activation", &LinearOp::activation), field("columns", &LinearOp::columns),
      field("stored_in", &LinearOp::stored_in), field("input_norm", &LinearOp::input_norm),
      field("norm", &LinearOp::norm), field("is_term", &LinearOp::is_term), field("ones", &LinearOp::ones),
      field("row_bias", &LinearOp::row_bias), field("multiply", &LinearOp::multiply),
      field("residual", &LinearOp::residual), field("residual_first", &LinearOp::residual_first));
}

/// DIN attention pooling. Inputs q [rows of the node, D], k [events, D], or two whose sum k is; both axes nest in one
/// parent.
/// s_t = MLP([q, k_t, q - k_t, q * k_t]), layers `hidden` with `activation`, then one score with a bias;
/// w = normalization(s [/ sqrt(D)]); y = sum_t w_t k_t; zeros for an empty history.
/// (Zhou et al. 2018, Deep Interest Network. DeepCTR-Torch, FuxiCTR: no normalisation; the paper's code: softmax.)
/// "<name>.<i>.weight" [hidden_i, 4 D or hidden_{i-1}], the last [1, hidden_last]; "<name>.<i>.bias".
struct DinAttentionOp {
  static constexpr const char* kind = "din_attention";
  std::string name;
  std::vector<int64_t> hidden;
  Activation activation;
  Normalization normalization = Normalization::none;
  bool scaled = false;
};
constexpr auto fields_of(const DinAttentionOp*) {
  return std::make_tuple(field("name", &DinAttentionOp::name), field("hidden", &DinAttentionOp::hidden),
                         field("activation", &DinAttentionOp::activation),
                         field("normalization", &DinAttentionOp::normalization),
                         field("scaled", &DinAttentionOp::scaled));
}

/// softmax(q k^T * scale) v per head. Inputs q [rows of the node, heads * d], k, v [events, heads * d]; both axes nest
/// in one parent, or are the same. No learned tensors: projections are linears. Zeros where there are no keys.
struct AttentionOp {
  static constexpr const char* kind = "attention";
  int64_t heads = 1;
  float scale = 0;      ///< 0: 1 / sqrt(d)
  bool causal = false;  ///< self-attention only: an event sees itself and what came before
};
constexpr auto fields_of(const AttentionOp*) {
  return std::make_tuple(field("heads", &AttentionOp::heads), field("scale", &AttentionOp::scale),
                         field("causal", &AttentionOp::causal));
}

/// Factorisation machine, second order: 1/2 [(sum_f e_f)^2 - sum_f e_f^2], summed over the dim when `reduce`
/// (Rendle 2010), else left as a vector (bi-interaction). Inputs (ancestor): fields of `dim` columns each.
struct FmOp {
  static constexpr const char* kind = "fm";
  int64_t dim = 0;
  bool reduce = true;
};
constexpr auto fields_of(const FmOp*) {
  return std::make_tuple(field("dim", &FmOp::dim), field("reduce", &FmOp::reduce));
}

/// Dot products of all pairs of fields (Naumov et al. 2019, DLRM). Inputs (ancestor): fields of `dim` columns each.
struct DotOp {
  static constexpr const char* kind = "dot";
  int64_t dim = 0;
  DotOrder order = DotOrder::lower;
  bool self = false;  ///< also each field with itself
};
constexpr auto fields_of(const DotOp*) {
  return std::make_tuple(field("dim", &DotOp::dim), field("order", &DotOp::order), field("self", &DotOp::self));
}

/// y = sum_e normalization(gate)_e x_e. Inputs (ancestor): experts [E * D], gate logits [E].
struct MixOp {
  static constexpr const char* kind = "mix";
  Normalization normalization = Normalization::softmax;
};
constexpr auto fields_of(const MixOp*) { return std::make_tuple(field("normalization", &MixOp::normalization)); }

/// A program of elementwise functions over the inputs (ancestor; one column or all) and learned vectors.
struct ElementwiseOp {
  static constexpr const char* kind = "elementwise";
  ElementwiseProgram program;
  std::vector<LearnedVector> vectors;
};
constexpr auto fields_of(const ElementwiseOp*) {
  return std::make_tuple(field("program", &ElementwiseOp::program), field("vectors", &ElementwiseOp::vectors));
}

/// y = (x - mean(x)) / sqrt(var(x) + eps) [* weight + bias], over the columns of a row.
struct LayerNormOp {
  static constexpr const char* kind = "layer_norm";
  std::string name;
  float eps = 1e-5f;
  bool affine = true;
};
constexpr auto fields_of(const LayerNormOp*) {
  return std::make_tuple(field("name", &LayerNormOp::name), field("eps", &LayerNormOp::eps),
                         field("affine", &LayerNormOp::affine));
}

/// Softmax over the columns of a row.
struct SoftmaxOp {
  static constexpr const char* kind = "softmax";
};
constexpr auto fields_of(const SoftmaxOp*) { return std::make_tuple(); }

/// The columns of a row pooled to one.
struct ReduceOp {
  static constexpr const char* kind = "reduce";
  Pooling pooling = Pooling::sum;
};
constexpr auto fields_of(const ReduceOp*) { return std::make_tuple(field("pooling", &ReduceOp::pooling)); }

/// The rows of a nested axis pooled onto its parent; zeros where there are none.
struct PoolOp {
  static constexpr const char* kind = "pool";
  Pooling pooling = Pooling::sum;
};
constexpr auto fields_of(const PoolOp*) { return std::make_tuple(field("pooling", &PoolOp::pooling)); }

/// A user's own function, looked up by name at bind; the graph holds only its shape and settings.
struct CustomOp {
  static constexpr const char* kind = "custom";
  std::string function;
  std::string settings;  ///< handed to the function as it is
};
constexpr auto fields_of(const CustomOp*) {
  return std::make_tuple(field("function", &CustomOp::function), field("settings", &CustomOp::settings));
}

using Op = std::variant<DenseOp, EmbedOp, ConcatOp, ExpandOp, SliceOp, LinearOp, DinAttentionOp, AttentionOp, FmOp,
                        DotOp, MixOp, ElementwiseOp, LayerNormOp, SoftmaxOp, ReduceOp, PoolOp, CustomOp>;

inline const char* kind_of(const Op& op) {
  return std::visit([](const auto& o) { return o.kind; }, op);
}

}  // namespace warprank
