// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// Columns [begin, begin + width) of the input.
struct SliceOp {
  static constexpr const char* kind = "slice";
  int64_t begin = 0;
};
constexpr auto fields_of(const SliceOp*) { return std::make_tuple(field("begin", &SliceOp::begin)); }

template <>
struct OpTraits<SliceOp> : NoParameters, ReadsFloats {
  static constexpr StepKind step = StepKind::none;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const SliceOp& op, Shapes& node) {
    if (!node.count_is(1, 1)) return {};
    const int64_t width = node.asked().width;
    if (op.begin < 0 || width < 1 || op.begin > node.input(0).width - width)
      return node.fail("a non-empty range inside " + std::to_string(node.input(0).width) + " columns",
                       "begin " + std::to_string(op.begin) + ", width " + std::to_string(width));
    return NodeShape{node.input(0).axis, width};
  }
  template <class Model>
  static Cost cost(const SliceOp&, const Model&) {
    return {};  // a view
  }
};

}}  // namespace warprank::v0
