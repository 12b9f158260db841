// SPDX-License-Identifier: Apache-2.0
//
// Look-ups from direct tables for prototypes of them (resident.cuh). What a feature is their header says, today.hpp,
// which lies beside them.

#include <stdexcept>

#include "resident.cuh"
#include "today.hpp"
#include "warprank/ops/embedding_bag.cuh"

namespace {

using namespace warprank;

BagFeature direct_feature(const TodayFeature& from) {
  if (from.hash != nullptr) throw std::invalid_argument("look-ups in hash tables are not compared");
  BagFeature to;
  to.table.type = static_cast<DType>(from.type), to.table.rows = from.rows, to.table.num_rows = from.num_rows;
  to.table.dim = from.dim, to.table.row_stride_bytes = from.stride;
  to.table.scale = from.scale, to.table.offset = from.offset;
  to.num_bags.capacity = from.max_bags;
  to.y = Matrix<float16>{static_cast<float16*>(from.y), from.max_bags, from.dim, from.y_stride};
  return to;
}
Pooling pooling_of(const TodayFeature& from) { return from.mean ? Pooling::mean : Pooling::sum; }

/// Ids of requests in their wire form.
BagFeature in_blobs(const TodayFeature& from, const BlobsPlain& blobs) {
  BagFeature to = direct_feature(from);
  BlobIds ids;
  ids.requests.bytes = blobs.bytes, ids.requests.positions = blobs.positions;
  ids.requests.row_starts = blobs.row_starts, ids.requests.row_starts_stride = blobs.row_starts_stride;
  ids.requests.num_requests = {blobs.max_requests, blobs.num_requests};
  ids.requests.num_axes = blobs.num_axes, ids.requests.num_ids = blobs.num_ids;
  ids.input = from.input, ids.axis = from.axis, ids.parent = from.parent;
  ids.num_ids.capacity = from.max_ids;
  to.ids = ids;
  to.pooling = from.parent < 0 ? Pooling::none : pooling_of(from);
  return to;
}
BagFeature in_arrays(const TodayFeature& from) {
  BagFeature to = direct_feature(from);
  IdArray ids;
  ids.ids = from.ids, ids.offsets = from.offsets, ids.num_ids.capacity = from.max_ids;
  to.ids = ids;
  to.pooling = from.offsets == nullptr ? Pooling::none : pooling_of(from);
  return to;
}

}  // namespace

void* today_make(const std::vector<TodayFeature>& features, const BlobsPlain* blobs) {
  std::vector<BagFeature> all;
  for (const TodayFeature& one : features) all.push_back(blobs == nullptr ? in_arrays(one) : in_blobs(one, *blobs));
  return prototypes::resident(EmbeddingBag({all.data(), static_cast<int64_t>(all.size())}));
}
void today_launch(void* bags, cudaStream_t stream) { prototypes::launch<EmbeddingBag>(bags, stream); }

HashPlain today_build(int64_t, int64_t, const int64_t*, const void*, double) {
  throw std::invalid_argument("look-ups in hash tables are not compared");
}
void today_find(const HashPlain&, const int64_t*, int64_t, void*, int64_t, uint8_t*, cudaStream_t) {
  throw std::invalid_argument("look-ups in hash tables are not compared");
}
