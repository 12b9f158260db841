// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The axes that attentions read.

#include "warprank/engine/cuda/bindings.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Rows of the queries and of the events of an attention, by the parent that they share.
struct AttentionSegments {
  AxisPair queries, events;
};
inline AttentionSegments attention_segments(const Graph& graph, int n) {
  const Node& node = graph.node(n);
  const int event_axis = graph.node(node.inputs[1]).axis, parent = graph.axis(event_axis).parent;
  return {{node.axis, parent}, {event_axis, parent}};
}

/// What DinHistory and Attention have in common.
template <class Attention>
void set_segments(Attention& to, const AttentionSegments& segments, const Bindings& bindings) {
  const int parent = segments.events.second;
  to.item_offsets = bindings.offsets(segments.queries);
  to.history_offsets = bindings.offsets(segments.events);
  to.parents = {bindings.max_rows(parent), bindings.num_rows(parent)};
}

}}}  // namespace warprank::v0::cuda_backend
