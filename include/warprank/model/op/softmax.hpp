// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>

#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// Softmax over the columns of a row.
struct SoftmaxOp {
  static constexpr const char* kind = "softmax";
};
constexpr auto fields_of(const SoftmaxOp*) { return std::make_tuple(); }

template <>
struct OpTraits<SoftmaxOp> : SameShape, NoParameters, ReadsFloats {
  static constexpr StepKind step = StepKind::rows;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Model>
  static Cost cost(const SoftmaxOp&, const Model& node) {
    return {node.elements() * 4, node.traffic()};
  }
};

}}  // namespace warprank::v0
