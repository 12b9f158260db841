// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a block of the kernel reads of its feature. Plain data that the host writes, once for each capacity.

#include <cstddef>
#include <cstdint>

#include "warprank/core/host_device.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/ops/row_cache.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// How the kernel is compiled, and in which order bags are summed.
struct Policy {
  int threads;         ///< of a block
  int blocks_per_sm;   ///< that are resident together, which bounds registers
  int max_short_bag;   ///< ids: the lanes that share a row sum them alone
  int max_medium_bag;  ///< ids times the lanes of a row: a warp sums them
  int ids_per_piece;   ///< longer bags are cut at multiples of it, from their own first id, for several blocks
  int ids_in_flight;   ///< rows on their way to the lanes that share one; they take as many ids in turn
};
/// 64 registers: with 72 and 7 blocks the prototype of this kernel took 39.1 us for FBGEMM's nbit_device shape in FP16,
/// with 64 and 8 it took 37.5 (H100; copying the same bytes takes 35.9); with 2 rows in flight a request of 50 items
/// took 13.6 us cold for 11.1, with 8 there are spills.
inline constexpr Policy policy{128, 8, 32, 512, 512, 4};
/// Of launches with features of hashed tables, which take more registers.
inline constexpr int blocks_with_keys_per_sm = 5;
/// And of those with caches of rows.
inline constexpr int blocks_with_caches_per_sm = 4;
inline constexpr int num_warps = policy.threads / 32;
/// Elements of a part at most: more would be too many registers.
inline constexpr int max_part_size = 8;

/// Where the ids of a feature are.
enum class Form : uint8_t {
  each,                   ///< in an array: id b is bag b
  offsets,                ///< in an array, with offsets of bags
  indices,                ///< in an array, with the bag of each id
  blob_each,              ///< in requests: a row is a bag
  blob_each_of_requests,  ///< in requests, which have one row each
  blob_segments,          ///< in requests: a bag is a row of the parent axis, which has offsets
  blob_one_segment,       ///< in requests: a bag is a request
  blob_dense              ///< none, but values of a dense input
};
WARPRANK_HOST_DEVICE constexpr bool is_in_array(Form form) {
  return form == Form::each || form == Form::offsets || form == Form::indices;
}
/// Whether work is divided by requests, and not by bags of the whole batch.
WARPRANK_HOST_DEVICE constexpr bool is_by_request(Form form) {
  return form == Form::blob_each || form == Form::blob_segments || form == Form::blob_dense;
}

/// The code that a block runs. How wide a lane's loads are and which type rows have is decided once for several rows.
enum class Path : uint8_t {
  dense,
  rows,  ///< one id for each row of y
  bags,  ///< sums, means and divisions by roots
  any,   ///< the same, and maxima, weights, padding that is not -1, rows of parts of less than 8 bytes
  keys   ///< all of it, of hashed tables
};

enum class RowType : uint8_t { f32, f16, bf16, i8 };

enum class Flag : uint16_t {
  mean = 1,
  sqrtn = 2,
  max = 4,
  weighted = 8,
  weights_are_half = 16,
  y_is_half = 32,
  y_is_aligned = 64,  ///< what a lane stores of a row begins at a multiple of its size, up to 16 bytes
  wide_rows = 128,    ///< hardly worth keeping in the first-level cache
  few_ids = 256,      ///< in most bags at most one
  cuts_bags = 512,    ///< bags longer than a piece are left to blocks for pieces
  is_for_pieces = 1024,
  narrow_ids = 2048,  ///< of 32 bits
  weights_are_bfloat16 = 4096,
  scale_beside_offset = 8192  ///< of I8: both are loaded at once
};

struct alignas(128) Record {
  const unsigned char* rows;
  unsigned char* y;
  uint32_t row_stride, num_rows;
  uint32_t y_stride;      ///< elements
  uint32_t max_bags;      ///< the capacity
  uint32_t parts;         ///< of a row, one for each lane; of a dense input, columns
  uint32_t rank, blocks;  ///< which of the feature's blocks, or of those for its pieces, and how many there are
  uint32_t max_ids;       ///< the capacity
  uint32_t tickets_at;    ///< of pieces: from the workspace's beginning, in 16 bytes; partial results are behind
  uint16_t unit;          ///< bags that a block takes at once
  uint16_t flags;
  Path path;
  uint8_t lanes_log2;  ///< lanes that share a row
  Form form;
  RowType type;
  uint8_t part_size, part_bytes;  ///< elements of a part, and their bytes: 16, 8 or, by Path::any, less
  uint8_t load_bytes;             ///< less than a part's where rows are misaligned

  struct Array {
    const int64_t *ids, *offsets;  ///< of Form::indices the bags of ids
    const int64_t* num_bags;       ///< null: the capacity
  };
  struct Requests {
    uint32_t values_entry,
        offsets_entry;               ///< bytes into a blob: where it says where the ids, or values, and offsets are
    uint32_t bag_starts, id_starts;  ///< where in row_starts those of the axes begin
    int64_t default_id;
  };
  union {
    Array array;
    Requests requests;
  };

  const unsigned char *scale, *offset;  ///< of I8, of row 0
  const float* default_row;
  LookupCounters* counters;
  float default_value;    ///< of a dense input, or of weights
  uint32_t scale_stride;  ///< of I8, bytes

  WARPRANK_HOST_DEVICE constexpr bool has(Flag flag) const { return (flags & static_cast<uint16_t>(flag)) != 0; }
};
static_assert(sizeof(Record) == 128, "one line");
static_assert(offsetof(Record, requests) + offsetof(Record::Requests, default_id) + 8 <= sizeof(Record));

/// Of Path::keys: whether each row of y is that of one id, as it is in the table.
WARPRANK_HOST_DEVICE constexpr bool is_row_of_key(const Record& f) {
  const bool is_each = f.form == Form::each || f.form == Form::blob_each || f.form == Form::blob_each_of_requests;
  return is_each && !f.has(Flag::weighted);
}

/// What few features need, in a line of its own behind each record of a launch that has one of them.
struct alignas(128) Extras {
  const unsigned char* weights;  ///< of all ids; null: in requests
  int64_t weights_stride;        ///< bytes
  uint32_t weights_entry;        ///< bytes into a blob: where it says where they are
  uint32_t weights_column_bytes;
  int64_t padding;         ///< the id that stands for nothing
  const int64_t* num_ids;  ///< of Form::indices; null: the capacity
  // Of a hashed table, whose buckets are the record's rows:
  hash_table::Placement placement;
  hash_table::BucketShape shape;
  bool is_mutable, has_padding;
  const RowCacheView* cache;  ///< of a table on the host, hashed or, without buckets, direct; may be null
  const KeyList* absent;      ///< of a feature with a cache: whom to tell of keys that have no row; may be null
};
static_assert(sizeof(Extras) == sizeof(Record), "a line, too");
/// Of a launch whose features need none.
inline constexpr Extras no_extras{nullptr, 0, 0, 0, -1, nullptr, {}, {}, false, true, nullptr, nullptr};

/// The requests that a launch reads: an argument of the kernel, so that no block waits for it. Without padding.
struct Batch {
  const unsigned char* bytes;
  const int64_t *positions, *row_starts;
  const int64_t* num_requests;  ///< null: max_requests
  int64_t max_requests;

  bool operator==(const Batch& other) const {
    return bytes == other.bytes && positions == other.positions && row_starts == other.row_starts &&
           num_requests == other.num_requests && max_requests == other.max_requests;
  }
};

/// Ids that no row has: padding, and those that the table does not have.
inline constexpr uint32_t padding_row = ~uint32_t{0}, missing_row = padding_row - 1;

/// What is known of a piece; its sums follow, a float for each column.
struct alignas(16) PieceSums {
  double divisor;
  uint32_t count, missing;
  float missing_weight;
};
WARPRANK_HOST_DEVICE constexpr int64_t piece_bytes(int64_t dim) {
  return static_cast<int64_t>(sizeof(PieceSums)) + (dim * 4 + 15) / 16 * 16;
}

/// Dense values that a block copies at once.
inline constexpr int dense_loads = 8, dense_chunk = dense_loads * policy.threads;

}}}  // namespace warprank::v0::detail::embedding_bag
