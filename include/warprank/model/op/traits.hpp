// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The properties of an op of the model language, all in one place: `OpTraits<FmOp>` stands beside `FmOp`.
///
/// There is no primary definition, and nothing is taken for granted: an op of op/list.hpp without traits, or traits
/// without one of the members below, does not compile. A specialisation has
///
/// | Member | |
/// |---|---|
/// | `infer(op, node)` | axis and width, or one problem; `node` is a detail::ShapeInference (model/infer.hpp) |
/// | `parameters(op, node)` | lists learned tensors; `node` is a detail::ParameterLister (model/parameters.hpp) |
/// | `cost(op, node)` | operations and bytes; `node` is a plan::detail::CostModel (plan/cost.hpp) |
/// | `step` | the kind of its launch, and so which nodes can share it |
/// | `across` | the axis on which late broadcast computes it |
/// | `reads_ancestors` | whether its kernels read inputs of outer axes directly, without an expand |
/// | `fields` | whether its inputs are fields of `op.dim` columns |
/// | `reads_halves(op, i)` | whether its kernels read input i only as FP16 |
///
/// The functions are templates, since graphs are defined after them.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace warprank { inline namespace v0 {

template <class Op>
struct OpTraits;

/// The most columns of a tensor: far more than any model has, and small enough that no product of widths overflows.
inline constexpr int64_t max_width = int64_t{1} << 24;

/// The shape of a node: rows of an axis, and columns.
struct NodeShape {
  int axis = 0;
  int64_t width = 0;
};

/// Floating-point operations, a multiply-add being two, and bytes moved.
struct Cost {
  double flops = 0;
  double bytes = 0;
  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

/// The kinds of launches. Inputs, views and copies are `none`; nodes of kind `alone` share a launch with no other node;
/// linears that read one another are a `chain`.
enum class StepKind { none, alone, look_up, linear, scene_linear, chain, attention, din_attention, mix, rows, pool };

/// The axis on which an op is computed when all of its inputs come from outer axes.
enum class Across {
  its_own,     ///< its own axis
  row_by_row,  ///< the innermost axis of its inputs: each row depends only on the same row of the inputs
  its_query    ///< that of its first input, an attention's query, but not above the parent of the second's axis
};

/// Whether an op's inputs are fields, and whether their order changes the result.
enum class Fields { none, in_order, in_any_order };

/// Bases for what many ops have in common.
struct NoParameters {
  template <class Op, class Lister>
  static void parameters(const Op&, const Lister&) {}
};
struct SameShape {
  template <class Op, class Shapes>
  static std::optional<NodeShape> infer(const Op&, Shapes& node) {
    return node.same_as_input();
  }
};
/// The cost of values that are only read and written.
struct CostOfCopy {
  template <class Op, class Model>
  static Cost cost(const Op&, const Model& node) {
    return {0, node.traffic()};
  }
};
/// Kernels that read each input as FP32, or as it is stored.
struct ReadsFloats {
  template <class Op>
  static constexpr bool reads_halves(const Op&, size_t) {
    return false;
  }
};
/// Kernels that run on tensor cores.
struct ReadsHalves {
  template <class Op>
  static constexpr bool reads_halves(const Op&, size_t) {
    return true;
  }
};

}}  // namespace warprank::v0
