// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Look-ups and dense inputs, out of the requests of a batch: one launch.

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "warprank/engine/cuda/bindings.hpp"
#include "warprank/engine/cuda/launch.cuh"
#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/table_store.cuh"
#include "warprank/ops/embedding_bag.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// One feature of a plan; no table for a dense input.
struct LookUp {
  int node = -1;
  const CudaTable* table = nullptr;
};

inline LookUp make_look_up(const Graph& graph, int n, const CudaTableStore& tables) {
  const auto* embed = std::get_if<EmbedOp>(&graph.node(n).op);
  return {n, embed == nullptr ? nullptr : tables.find(graph.tables[static_cast<size_t>(embed->table)].name)};
}

inline void set_output(BagFeature& feature, const FloatMatrix<void>& y) {
  if (y.type == DType::f16) {
    feature.y = Matrix<float16>(static_cast<float16*>(y.data), y.rows, y.cols, y.stride);
  } else {
    feature.y = Matrix<float>(static_cast<float*>(y.data), y.rows, y.cols, y.stride);
  }
}

/// Weights that a request has are read there: the same launch may be what copies them.
inline void set_weights(BlobIds& ids, int node, const Bindings& bindings) {
  const Graph& graph = bindings.graph();
  int column = 0, source = node;
  for (const SliceOp* slice; (slice = std::get_if<SliceOp>(&graph.node(source).op)) != nullptr;) {
    column += static_cast<int>(slice->begin);
    source = graph.node(source).inputs[0];
  }
  const auto* dense = std::get_if<DenseOp>(&graph.node(source).op);
  if (dense == nullptr) {
    ids.weights = bindings.input(node);
    return;
  }
  const DenseInfo& info = graph.dense[static_cast<size_t>(dense->input)];
  ids.weights_input = dense->input;
  ids.weights_width = static_cast<int>(info.width);
  ids.weights_wire = info.wire;
  ids.weights_column = column;
  ids.default_weight = info.default_value.value_or(1.0f);
}

inline BagFeature embed_feature(const LookUp& look_up, const Bindings& bindings) {
  const Graph& graph = bindings.graph();
  const Node& node = graph.node(look_up.node);
  const auto& op = std::get<EmbedOp>(node.op);
  const IdsInfo& info = graph.ids[static_cast<size_t>(op.ids)];
  const AxisInfo& axis = graph.axis(info.axis);
  const bool pools = op.pooling != Pooling::none;

  BagFeature feature;
  feature.table = look_up.table->view;
  feature.hashed = look_up.table->hashed;
  if (look_up.table->cache) feature.cache = look_up.table->cache->on_device();
  if (look_up.table->tier)
    feature.absent = look_up.table->tier->waits() ? bindings.awaited(op.table) : &feature.cache->absent;
  BlobIds ids;
  ids.requests = bindings.requests();
  ids.input = op.ids;
  ids.axis = info.axis;
  ids.parent = pools ? axis.parent : -1;
  ids.num_ids.capacity = bindings.max_rows(info.axis);
  ids.default_id = info.default_id;
  ids.wire = info.wire;
  if (!node.inputs.empty()) set_weights(ids, node.inputs[0], bindings);
  feature.ids = ids;
  feature.num_bags.capacity = bindings.max_rows(node.axis);
  feature.pooling = op.pooling;
  if (look_up.table->is_hashed()) {
    feature.padding = info.padding;
  } else if (feature.hashed) {  // numbers of rows of a table in a store
    feature.padding = -1;
  }
  feature.max_bag_ids = pools ? axis.keep_last : 0;
  feature.counters = bindings.counters(look_up.node);
  set_output(feature, bindings.value(look_up.node));
  return feature;
}

inline BagFeature dense_feature(const LookUp& look_up, const Bindings& bindings) {
  const Graph& graph = bindings.graph();
  const Node& node = graph.node(look_up.node);
  const int input = std::get<DenseOp>(node.op).input;
  BlobDense dense;
  dense.requests = bindings.requests();
  dense.input = input;
  dense.axis = node.axis;
  const DenseInfo& info = graph.dense[static_cast<size_t>(input)];
  dense.default_value = info.default_value.value_or(0.0f);
  dense.wire = info.wire;
  BagFeature feature;
  feature.ids = dense;
  feature.table.dim = node.width;
  feature.num_bags.capacity = bindings.max_rows(node.axis);
  set_output(feature, bindings.value(look_up.node));
  return feature;
}

inline PreparedStep prepare_look_ups(const std::vector<LookUp>& look_ups, const Bindings& bindings,
                                     StepMemory& memory) {
  std::vector<BagFeature> features;
  for (const LookUp& look_up : look_ups)
    features.push_back(look_up.table == nullptr ? dense_feature(look_up, bindings) : embed_feature(look_up, bindings));
  return prepare_launch("embedding_bag", EmbeddingBag(features), memory);
}

}}}  // namespace warprank::v0::cuda_backend
