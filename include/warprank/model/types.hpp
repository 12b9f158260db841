// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The small closed vocabularies of the model language.

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "warprank/core/fields.hpp"

namespace warprank { inline namespace v0 {

/// How the rows of a bag (or the columns of a row) become one.
enum class Pooling {
  none,   ///< one id per row: its table row unchanged
  sum,    ///< sum_i w_i x_i
  mean,   ///< sum_i w_i x_i / sum_i w_i; without weights, w_i = 1; padding is not counted
  sqrtn,  ///< sum_i w_i x_i / sqrt(sum_i w_i^2)
  max     ///< elementwise maximum; takes no weights
};
inline constexpr Pooling sum = Pooling::sum, mean = Pooling::mean, sqrtn = Pooling::sqrtn, maximum = Pooling::max;

enum class ActivationKind {
  identity,
  relu,        ///< max(x, 0)
  leaky_relu,  ///< x > 0 ? x : alpha x
  elu,         ///< x > 0 ? x : alpha (exp(x) - 1)
  prelu,       ///< x > 0 ? x : a_c x, a_c learned per channel ("<layer>.prelu.alpha", [width])
  dice,        ///< x (p + a_c (1 - p)), p = sigmoid(s_c x + t_c): batch norm of x folded into s and t
  sigmoid,     ///< 1 / (1 + exp(-x))
  tanh,
  gelu,       ///< x Phi(x), exact (erf)
  gelu_tanh,  ///< its tanh approximation
  silu        ///< x sigmoid(x), also called swish
};

/// An activation with its settings. PReLU and Dice read learned vectors of the layer they belong to:
/// `<layer>.prelu.alpha`; `<layer>.dice.alpha`, `.running_mean`, `.running_var`, and with `affine` `.weight`, `.bias`.
struct Activation {
  ActivationKind kind = ActivationKind::identity;
  float alpha = 0;      ///< leaky_relu, elu
  float eps = 1e-9f;    ///< Dice's batch norm (FuxiCTR, DeepCTR: 1e-9 without affine; DeepCTR-Torch: 1e-8 with affine)
  bool affine = false;  ///< Dice's batch norm has a learned scale and shift
};
constexpr auto fields_of(const Activation*) {
  return std::make_tuple(field("kind", &Activation::kind), field("alpha", &Activation::alpha),
                         field("eps", &Activation::eps), field("affine", &Activation::affine));
}
inline constexpr Activation identity{}, relu{ActivationKind::relu}, prelu{ActivationKind::prelu},
    dice{ActivationKind::dice}, sigmoid{ActivationKind::sigmoid}, hyperbolic_tangent{ActivationKind::tanh},
    gelu{ActivationKind::gelu}, gelu_tanh{ActivationKind::gelu_tanh}, silu{ActivationKind::silu};
constexpr Activation leaky_relu(float alpha = 0.01f) { return {ActivationKind::leaky_relu, alpha}; }
constexpr Activation elu(float alpha = 1.0f) { return {ActivationKind::elu, alpha}; }

/// How scores over a history, or the logits of a gate, become weights.
enum class Normalization { none, softmax, sigmoid };

/// How the scores of an attention's events become their weights.
enum class AttentionWeights {
  softmax,  ///< exp(s_t) / sum exp(s) (Vaswani et al. 2017)
  silu      ///< silu(s_t) / divisor: an event's weight depends on its own score alone (HSTU, Zhai et al. 2024)
};

/// How u gates what HSTU's attention gives, y, before the output's linear layer.
enum class HstuGate {
  beside,      ///< u, y and u * norm(y) side by side, as Meta serves it
  of_norm,     ///< u * norm(y) (HSTU, Zhai et al. 2024)
  before_norm  ///< norm(u * y) (MTGR, Han et al. 2025)
};

/// How a recurrent layer makes a state of the one before, h, from an event's gates r and z and its new values n; a is
/// the event's share of an attention.
enum class RecurrentCell {
  gru,    ///< (1 - z) n + z h (Cho et al. 2014)
  augru,  ///< (1 - a z) h + a z n (DIEN, Zhou et al. 2019)
  agru    ///< (1 - a) h + a n, without z (DIEN, too)
};

/// The pairs of the dot interaction and their order.
enum class DotOrder {
  lower,        ///< strictly lower triangle, row-major (DLRM)
  upper,        ///< strictly upper triangle, row-major (torchrec)
  lower_padded  ///< lower, then one zero (HugeCTR)
};

/// Options of the factorisation machine, in the language and as a primitive on CUDA.
struct FmOptions {
  bool reduce = true;  ///< sum over the dim; else one value for each column ("bi-interaction")
};

/// The type of a dense input's values in requests. Narrow types halve the bytes to send. Values are rounded to nearest,
/// ties to even, when a request is made: FP16 loses nothing if all kernels that read the input on a GPU read it as
/// FP16.
enum class DenseWire { f32, f16, bf16 };
/// The type of an input's ids in requests. Ids of 32 bits are signed, so that -1 stays padding.
enum class IdsWire { i64, i32 };
/// How to treat a value that the type of its input cannot hold: in FP16 a magnitude of 65520 or more, which would be
/// rounded to infinity.
enum class OutOfRange {
  refuse,   ///< the request's status names the value
  saturate  ///< the type's largest or smallest value; a direct table of less than 2^31 rows has no row for such an id
};

constexpr int64_t size_of(DenseWire type) { return type == DenseWire::f32 ? 4 : 2; }
constexpr int64_t size_of(IdsWire type) { return type == IdsWire::i64 ? 8 : 4; }
constexpr bool holds(IdsWire type, int64_t id) { return type == IdsWire::i64 || id == static_cast<int32_t>(id); }

/// Names of enumerators, used in JSON and messages: `names_of(Enum{})` lists (value, name).
constexpr auto names_of(Pooling) {
  return std::array<std::pair<Pooling, const char*>, 5>{{{Pooling::none, "none"},
                                                         {Pooling::sum, "sum"},
                                                         {Pooling::mean, "mean"},
                                                         {Pooling::sqrtn, "sqrtn"},
                                                         {Pooling::max, "max"}}};
}
constexpr auto names_of(ActivationKind) {
  return std::array<std::pair<ActivationKind, const char*>, 11>{{{ActivationKind::identity, "identity"},
                                                                 {ActivationKind::relu, "relu"},
                                                                 {ActivationKind::leaky_relu, "leaky_relu"},
                                                                 {ActivationKind::elu, "elu"},
                                                                 {ActivationKind::prelu, "prelu"},
                                                                 {ActivationKind::dice, "dice"},
                                                                 {ActivationKind::sigmoid, "sigmoid"},
                                                                 {ActivationKind::tanh, "tanh"},
                                                                 {ActivationKind::gelu, "gelu"},
                                                                 {ActivationKind::gelu_tanh, "gelu_tanh"},
                                                                 {ActivationKind::silu, "silu"}}};
}
constexpr auto names_of(Normalization) {
  return std::array<std::pair<Normalization, const char*>, 3>{
      {{Normalization::none, "none"}, {Normalization::softmax, "softmax"}, {Normalization::sigmoid, "sigmoid"}}};
}
constexpr auto names_of(AttentionWeights) {
  return std::array<std::pair<AttentionWeights, const char*>, 2>{
      {{AttentionWeights::softmax, "softmax"}, {AttentionWeights::silu, "silu"}}};
}
constexpr auto names_of(HstuGate) {
  return std::array<std::pair<HstuGate, const char*>, 3>{
      {{HstuGate::beside, "beside"}, {HstuGate::of_norm, "of_norm"}, {HstuGate::before_norm, "before_norm"}}};
}
constexpr auto names_of(RecurrentCell) {
  return std::array<std::pair<RecurrentCell, const char*>, 3>{
      {{RecurrentCell::gru, "gru"}, {RecurrentCell::augru, "augru"}, {RecurrentCell::agru, "agru"}}};
}
constexpr auto names_of(DotOrder) {
  return std::array<std::pair<DotOrder, const char*>, 3>{
      {{DotOrder::lower, "lower"}, {DotOrder::upper, "upper"}, {DotOrder::lower_padded, "lower_padded"}}};
}

constexpr auto names_of(DenseWire) {
  return std::array<std::pair<DenseWire, const char*>, 3>{
      {{DenseWire::f32, "f32"}, {DenseWire::f16, "f16"}, {DenseWire::bf16, "bf16"}}};
}
constexpr auto names_of(IdsWire) {
  return std::array<std::pair<IdsWire, const char*>, 2>{{{IdsWire::i64, "i64"}, {IdsWire::i32, "i32"}}};
}
constexpr auto names_of(OutOfRange) {
  return std::array<std::pair<OutOfRange, const char*>, 2>{
      {{OutOfRange::refuse, "refuse"}, {OutOfRange::saturate, "saturate"}}};
}

template <class Enum>
constexpr const char* name_of_enum(Enum value) {
  for (const auto& [enumerator, name] : names_of(Enum{}))
    if (enumerator == value) return name;
  return "?";
}

}}  // namespace warprank::v0
