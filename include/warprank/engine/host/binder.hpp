// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What ops are bound with: `bind_op(op, n, binder)` makes the step of node n, or none where there is nothing to run.
/// engine/host/op/ has one for each op of the language.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/host/run_state.hpp"
#include "warprank/engine/host/table_store.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/products.hpp"
#include "warprank/ops/int8_weights.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

using StepPtr = std::unique_ptr<Step>;

struct Binder {
  Binder(const Plan& plan, const Weights& weights, const HostTableStore& from, const BindOptions& with)
      : graph(plan.graph()),
        source(plan, weights),
        tables(from),
        options(with),
        precision(precision_of(with.host_precision)),
        storage(with.host_precision == HostPrecision::int8_weights ? host_ops::WeightStorage::int8
                                                                   : host_ops::WeightStorage::as_multiplied),
        used_ids(graph.ids.size()) {}

  static host_ops::Precision precision_of(HostPrecision asked) {
    return asked != HostPrecision::fp32 && host_ops::has_bf16_products() ? host_ops::Precision::bf16
                                                                         : host_ops::Precision::fp32;
  }
  /// Throws invalid_argument where the precision cannot hold one of the weights of this name, or INT8 where they are
  /// `stored` in it.
  void check_weight(const std::string& name, Span<const float> weight,
                    host_ops::WeightStorage stored = host_ops::WeightStorage::as_multiplied) const {
    if (precision == host_ops::Precision::bf16) host_ops::check_bf16("weight '" + name + "'", weight);
    if (stored == host_ops::WeightStorage::int8) check_int8("weight '" + name + "'", weight);
  }

  const Node& node(int n) const { return graph.node(n); }
  InputRef ref(int input, int axis) {
    const int input_axis = node(input).axis;
    return {input, input_axis == axis ? -1 : pairs.index_of(axis, input_axis)};
  }
  std::vector<InputRef> refs(int n) {
    std::vector<InputRef> list;
    for (int input : node(n).inputs) list.push_back(ref(input, node(n).axis));
    return list;
  }

  const Graph& graph;
  detail::ParameterSource source;
  const HostTableStore& tables;
  const BindOptions& options;
  const host_ops::Precision precision;    ///< that steps are bound with
  const host_ops::WeightStorage storage;  ///< of the weights of linears
  AxisPairs pairs;                        ///< whose segments steps read
  std::vector<bool> used_ids;             ///< by ids input of the graph
};

inline host_ops::ChannelActivation view(const detail::OwnedActivation& a) {
  return {a.spec, a.alpha, a.scale, a.shift};
}

}}}  // namespace warprank::v0::host_backend
