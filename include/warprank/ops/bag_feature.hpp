// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What embedding_bag.cuh looks up: features whose ids, tables and outputs are in device memory. The twin of
/// host/bag_feature.hpp.

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

/// Ids as an array: each id is a bag, or offsets or indices say which ids a bag has.
struct IdArray {
  const int64_t* ids = nullptr;      ///< [num_ids]
  DeviceCount num_ids;               ///< with offsets only the capacity counts, with neither it is num_bags
  const int64_t* offsets = nullptr;  ///< [num_bags + 1], from 0, never decreasing: bag b has ids [offsets[b], [b + 1])
  const int64_t* indices = nullptr;  ///< [num_ids], never decreasing: id i belongs to bag indices[i]
  const float* weights = nullptr;    ///< weight of id i at weights[i * weights_stride]; null: all 1
  int64_t weights_stride = 1;
};

/// The requests of a batch: blobs side by side as docs/BATCH_FORMAT.md has them, and an index that the host writes into
/// the same copy. Requests that are not to be scored have a blob at most, and no place in the index.
struct RequestBlobs {
  const unsigned char* bytes = nullptr;  ///< where positions count from; aligned to 8
  const int64_t* positions = nullptr;    ///< [num_requests]: the first byte of each request's blob, may be negative
  const int64_t* row_starts = nullptr;  ///< [num_axes, row_starts_stride]: how many rows of the axis are before request
                                        ///< r; at num_requests, all
  int64_t row_starts_stride = 0;        ///< more than num_requests.capacity; 0: one more
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
  int input = 0;                      ///< which ids input
  int axis = 0;                       ///< whose rows the ids are
  int parent = -1;                    ///< the axis of the bags; -1: each id is a bag
  IdsWire wire = IdsWire::i64;        ///< of the input, in all requests
  DeviceCount num_ids;                ///< capacity of `axis`, of all requests together
  std::optional<int64_t> default_id;  ///< of every row where a request has not set the input
  int weights_input = -1;             ///< which dense input has the weights, a column of `axis`; -1: none
  int weights_width = 1;              ///< its columns
  int weights_column = 0;
  DenseWire weights_wire = DenseWire::f32;
  float default_weight = 1;         ///< of every row where a request has not set the weights
  FloatMatrix<const void> weights;  ///< instead of an input, [num_ids, 1], by row of the batch; of null all are 1
};

/// No ids but values in requests: row b of a dense input becomes row b of y, as it is or rounded to half. Of the
/// feature's other fields table.dim, the width of the input, num_bags and y count.
struct BlobDense {
  RequestBlobs requests;
  int input = 0;                    ///< which dense input
  int axis = 0;                     ///< whose rows the values are
  float default_value = 0;          ///< of every element where a request has not set the input
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
  TableView table;                      ///< of a hashed table type, dim and default_row count
  std::optional<HashTableView> hashed;  ///< a hashed table: ids are its keys, rows are in it
  /// Rows that lie on the device, too, where the others are in mapped memory of the host; null: none. In device memory.
  /// A direct table's are then as a hash table's rows are, at multiples of 16 bytes, and its bits those of a hashed
  /// one.
  const RowCacheView* cache = nullptr;
  /// Of a table with a cache: gets the keys that have no row, those of padding not. In device memory.
  const KeyList* absent = nullptr;
  std::variant<IdArray, BlobIds, BlobDense> ids;
  DeviceCount num_bags;  ///< of blobs only the capacity counts
  Pooling pooling = Pooling::none;
  std::optional<int64_t> padding;  ///< the id that is padding; unless set, -1 in a direct and none in a hashed table
  int64_t max_bag_ids = 0;         ///< no bag has more; 0: not known. A bag that does is pooled as well, only slower
  std::variant<Matrix<float>, Matrix<float16>> y;  ///< [num_bags.capacity, table.dim]
  LookupCounters* counters = nullptr;              ///< may be null
};

}}  // namespace warprank::v0
