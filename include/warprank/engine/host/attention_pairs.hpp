// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The axes that attentions read.

#include <algorithm>
#include <cstdint>

#include "warprank/engine/host/binder.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// Rows of queries and of events, by the parent they share: indices in AxisPairs.
struct AttentionPairs {
  int queries, events;
};

inline int64_t longest_segment(Segments segments) {
  int64_t most = 0;
  for (int64_t s = 0; s < segments.count; ++s) most = std::max(most, segments.size(s));
  return most;
}

inline AttentionPairs attention_pairs(int n, Binder& model) {
  const int query_axis = model.node(n).axis, event_axis = model.node(model.node(n).inputs[1]).axis;
  const int parent = model.graph.axis(event_axis).parent;
  return {model.pairs.index_of(query_axis, parent), model.pairs.index_of(event_axis, parent)};
}

}}}  // namespace warprank::v0::host_backend
