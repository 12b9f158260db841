// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>

#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// Columns of all inputs side by side.
struct ConcatOp {
  static constexpr const char* kind = "concat";
};
constexpr auto fields_of(const ConcatOp*) { return std::make_tuple(); }

template <>
struct OpTraits<ConcatOp> : NoParameters, CostOfCopy, ReadsFloats {
  static constexpr StepKind step = StepKind::none;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const ConcatOp&, Shapes& node) {
    if (!node.count_is(1, SIZE_MAX)) return {};
    const auto axis = node.common_axis(false);
    if (!axis) return {};
    int64_t width = 0;
    for (size_t i = 0; i < node.num_inputs(); ++i) width += node.input(i).width;
    return NodeShape{*axis, width};
  }
};

}}  // namespace warprank::v0
