// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The features that embedding_bag.cuh looks up, with ids, tables and outputs in device memory. host/bag_feature.hpp
/// has the features of the host.

#include <cstdint>
#include <optional>
#include <variant>

#include "warprank/core/device_count.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/hash_table/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/row_cache.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 {

/// Ids as an array: each id is a bag, or offsets or indices give the ids of each bag.
struct IdArray {
  const int64_t* ids = nullptr;      ///< [num_ids]
  DeviceCount num_ids;               ///< with offsets only its capacity is used; without offsets and indices: num_bags
  const int64_t* offsets = nullptr;  ///< [num_bags + 1], from 0, never decreasing: bag b has ids [offsets[b], [b + 1])
  const int64_t* indices = nullptr;  ///< [num_ids], never decreasing: id i belongs to bag indices[i]
  const float* weights = nullptr;    ///< weight of id i at weights[i * weights_stride]; null: all 1
  int64_t weights_stride = 1;
};

/// The requests of a batch: blobs side by side as in docs/BATCH_FORMAT.md, and an index that the host writes into the
/// same copy. A request that is not scored may have a blob, but has no place in the index.
struct RequestBlobs {
  const unsigned char* bytes = nullptr;  ///< the address from which positions count; aligned to 8
  const int64_t* positions = nullptr;    ///< [num_requests]: the first byte of each request's blob, may be negative
  const int64_t* row_starts = nullptr;   ///< [num_axes, row_starts_stride]: rows of the axis before request r; at
                                         ///< num_requests, all rows
  int64_t row_starts_stride = 0;         ///< more than num_requests.capacity; 0: num_requests.capacity + 1
  DeviceCount num_requests;
  int num_axes = 0, num_ids = 0, num_dense = 0;  ///< of the plan

  constexpr int64_t stride_of_row_starts() const {
    return row_starts_stride == 0 ? num_requests.capacity + 1 : row_starts_stride;
  }
  constexpr const int64_t* row_starts_of(int axis) const { return row_starts + axis * stride_of_row_starts(); }
};

/// Ids in requests: each row of the axis is a bag, or a bag is a row of the axis' parent.
struct BlobIds {
  RequestBlobs requests;
  int input = 0;                      ///< number of the ids input
  int axis = 0;                       ///< the axis of the ids
  int parent = -1;                    ///< the axis of the bags; -1: each id is a bag
  IdsWire wire = IdsWire::i64;        ///< of the input, in all requests
  DeviceCount num_ids;                ///< capacity of `axis`, of all requests together
  std::optional<int64_t> default_id;  ///< of all rows of a request that has not set the input
  int weights_input = -1;             ///< number of the dense input with the weights, on `axis`; -1: none
  int weights_width = 1;              ///< columns of this input
  int weights_column = 0;
  DenseWire weights_wire = DenseWire::f32;
  float default_weight = 1;         ///< of all rows of a request that has not set the weights
  FloatMatrix<const void> weights;  ///< in place of an input: [num_ids, 1], by row of the batch; null: all 1
};

/// Values in requests, in place of ids: row b of a dense input becomes row b of y, unchanged or rounded to FP16. Of the
/// feature's other fields only table.dim (the width of the input), num_bags and y are used.
struct BlobDense {
  RequestBlobs requests;
  int input = 0;                    ///< number of the dense input
  int axis = 0;                     ///< the axis of the values
  float default_value = 0;          ///< of all elements in a request that has not set the input
  DenseWire wire = DenseWire::f32;  ///< of the input, in all requests
};

/// One feature of a batch. All pointers are to device memory that outlives the launches and has room for the
/// capacities; bags are rows of `y`.
///
/// An id is one of
/// - padding: it adds nothing, and neither it nor its weight counts in a mean;
/// - a row of the table;
/// - unknown (not in the hash table) or out of range (no row of a direct table): an element whose row is the default
///   row.
struct BagFeature {
  TableView table;                      ///< of a hashed table, only type, dim and default_row are used
  std::optional<HashTableView> hashed;  ///< a hashed table: ids are its keys, rows are in it
  /// A view, in device memory, of the rows that are also on the device, of a table in mapped memory of the host; null:
  /// none. The rows of a direct table are then laid out as a hash table's rows, at multiples of 16 bytes, and results
  /// have the bits of a hashed table.
  const RowCacheView* cache = nullptr;
  /// Of a table with a cache: a list, in device memory, that gets the keys without a row, except padding.
  const KeyList* absent = nullptr;
  std::variant<IdArray, BlobIds, BlobDense> ids;
  DeviceCount num_bags;  ///< with blobs only its capacity is used
  Pooling pooling = Pooling::none;
  std::optional<int64_t> padding;  ///< the id that is padding; unless set, -1 in a direct and none in a hashed table
  int64_t max_bag_ids = 0;         ///< the most ids of a bag; 0: not known. A bag with more is pooled, too, but slower
  std::variant<Matrix<float>, Matrix<float16>> y;  ///< [num_bags.capacity, table.dim]
  LookupCounters* counters = nullptr;              ///< may be null
};

}}  // namespace warprank::v0
