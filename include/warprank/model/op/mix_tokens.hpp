// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// (v - mean) / sqrt(var + eps) weight + bias, over the columns of a token; "<name>.weight" and "<name>.bias" are the
/// same for all tokens.
struct TokenNorm {
  std::string name;
  float eps = 1e-5f;
};
constexpr auto fields_of(const TokenNorm*) {
  return std::make_tuple(field("name", &TokenNorm::name), field("eps", &TokenNorm::eps));
}

/// Token mixing of RankMixer (Zhu et al. 2025): a row is T tokens of D columns, and a token has T parts of D / T.
///
///     y[t] = norm(x[t] + (part t of x[0], part t of x[1], .., part t of x[T - 1]))
struct MixTokensOp {
  static constexpr const char* kind = "mix_tokens";
  int64_t tokens = 1;
  TokenNorm norm;
  std::optional<TokenNorm> input_norm;  ///< of x, before all else
};
constexpr auto fields_of(const MixTokensOp*) {
  return std::make_tuple(field("tokens", &MixTokensOp::tokens), field("norm", &MixTokensOp::norm),
                         field("input_norm", &MixTokensOp::input_norm));
}

template <>
struct OpTraits<MixTokensOp> : ReadsHalves {
  static constexpr StepKind step = StepKind::alone;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const MixTokensOp& op, Shapes& node) {
    if (op.input_norm && !node.is_planned())
      return node.fail("token mixing of the model language", "one with an input norm, which planning adds");
    if (!node.count_is(1, 1)) return {};
    const auto& x = node.input(0);
    for (const TokenNorm& norm : {op.norm, op.input_norm.value_or(op.norm)}) {
      if (norm.name.empty()) return node.fail("a name for the weights", "none");
      if (!node.eps_is_good(norm.eps)) return {};
    }
    if (op.tokens < 1 || op.tokens > x.width) return node.fail("1 or more tokens", std::to_string(op.tokens));
    if (x.width % op.tokens != 0 || x.width / op.tokens % op.tokens != 0)
      return node.fail("columns that divide into " + std::to_string(op.tokens) + " tokens of as many parts",
                       node.show(x));
    return NodeShape{x.axis, x.width};
  }
  template <class Lister>
  static void parameters(const MixTokensOp& op, Lister& node) {
    const auto list = [&](const TokenNorm& norm) {
      node.vector(norm.name + ".weight", {node.width() / op.tokens});
      node.vector(norm.name + ".bias", {node.width() / op.tokens});
    };
    if (op.input_norm) list(*op.input_norm);
    list(op.norm);
  }
  template <class Model>
  static Cost cost(const MixTokensOp& op, const Model& node) {
    return {node.elements() * (op.input_norm ? 17 : 9), node.traffic()};
  }
};

}}  // namespace warprank::v0
