// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The one list of the model language's ops. The variant, JSON, shapes, parameters, costs and both engines follow from
/// it. A node of a Graph holds one of these ops as plain data; its inputs are nodes.
///
/// "ancestor" marks inputs that may live on an ancestor of the node's axis: row s serves all rows of segment s. The
/// Builder never creates such nodes (it asks for `expand`); the planner does, for late broadcast.

#include <type_traits>
#include <variant>

#include "warprank/model/op/attention.hpp"
#include "warprank/model/op/concat.hpp"
#include "warprank/model/op/custom.hpp"
#include "warprank/model/op/dense.hpp"
#include "warprank/model/op/din_attention.hpp"
#include "warprank/model/op/dot.hpp"
#include "warprank/model/op/elementwise.hpp"
#include "warprank/model/op/embed.hpp"
#include "warprank/model/op/expand.hpp"
#include "warprank/model/op/field_attention.hpp"
#include "warprank/model/op/field_linear.hpp"
#include "warprank/model/op/fm.hpp"
#include "warprank/model/op/layer_norm.hpp"
#include "warprank/model/op/linear.hpp"
#include "warprank/model/op/mix.hpp"
#include "warprank/model/op/mix_tokens.hpp"
#include "warprank/model/op/pool.hpp"
#include "warprank/model/op/recurrent.hpp"
#include "warprank/model/op/reduce.hpp"
#include "warprank/model/op/slice.hpp"
#include "warprank/model/op/softmax.hpp"
#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

using Op = std::variant<DenseOp, EmbedOp, ConcatOp, ExpandOp, SliceOp, LinearOp, DinAttentionOp, AttentionOp,
                        FieldAttentionOp, FieldLinearOp, FmOp, DotOp, MixOp, MixTokensOp, ElementwiseOp, LayerNormOp,
                        SoftmaxOp, ReduceOp, PoolOp, RecurrentOp, CustomOp>;

inline const char* kind_of(const Op& op) {
  return std::visit([](const auto& o) { return o.kind; }, op);
}

/// Calls `body` with an op and its OpTraits:
/// visit_traits(op, [](const auto& op, auto traits) { return traits.across; }).
template <class Body>
decltype(auto) visit_traits(const Op& op, Body&& body) {
  return std::visit(
      [&](const auto& one) -> decltype(auto) { return body(one, OpTraits<std::decay_t<decltype(one)>>()); }, op);
}

}}  // namespace warprank::v0
