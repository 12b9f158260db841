// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part: a record for each block of the kernel. What is decided here
/// from capacities is speed alone, never bits.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <variant>
#include <vector>

#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/detail/embedding_bag/blob_entries.hpp"
#include "warprank/ops/detail/embedding_bag/check.hpp"
#include "warprank/ops/detail/embedding_bag/record.hpp"
#include "warprank/ops/launch_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// How lanes read rows.
struct RowLoads {
  int64_t part_bytes;  ///< that a lane has of a row
  int64_t load_bytes;  ///< by which it reads them
};
/// The widest loads that rows at multiples of `alignment`, at most 16, allow, of at most max_part_size elements.
inline RowLoads row_loads(DType type, int64_t alignment) {
  const int64_t element = size_of(type), widest = std::min<int64_t>(alignment, max_part_size * element);
  if (widest >= 8) return {widest, widest};
  const int64_t part = std::clamp<int64_t>(alignment, element, 4);
  return {part, std::min(part, alignment)};
}
inline RowLoads row_loads(const BagFeature& feature) {
  const TableView& table = feature.table;
  if (feature.hashed) {  // in slots, of whole words
    const int64_t slots = std::gcd<int64_t>(16, feature.hashed->shape.row_stride);
    return row_loads(table.type, std::gcd(slots, table.row_bytes()));
  }
  if (feature.cache != nullptr) return row_loads(table.type, std::gcd<int64_t>(16, table.row_bytes()));
  // Of 8 bytes lanes store 16, whole sectors; rows that are wide are read faster by 16. Bits depend on it.
  constexpr int64_t wide_row_bytes = 128;
  const bool is_narrow = table.row_bytes() < wide_row_bytes && std::holds_alternative<Matrix<float>>(feature.y);
  const int64_t address =
      alignment_of(static_cast<const char*>(table.rows), table.type == DType::f16 && is_narrow ? 8 : 16);
  return row_loads(table.type, std::gcd(std::gcd(address, table.row_bytes()), table.row_stride_bytes));
}

inline bool has_indices(const BagFeature& feature) {
  const auto* array = std::get_if<IdArray>(&feature.ids);
  return array != nullptr && array->indices != nullptr;
}
/// Whether what it needs is in a line of its own.
inline bool has_extras(const BagFeature& feature) {
  return feature.hashed || feature.cache != nullptr || is_weighted(feature) || has_indices(feature) ||
         feature.padding.value_or(-1) != -1;
}

inline Path path_of(const BagFeature& feature, const RowLoads& loads) {
  if (feature.hashed || feature.cache != nullptr) return Path::keys;
  if (has_extras(feature)) return Path::any;
  if (!has_segments(feature)) return Path::rows;
  return loads.part_bytes < 8 || feature.pooling == Pooling::max ? Path::any : Path::bags;
}

/// Of a record.
struct alignas(128) Line {
  unsigned char bytes[128];
};

/// The blocks that a feature wants.
struct Wanted {
  Record record;
  Extras extras;
  bool has_extras;
  int64_t blocks;
  int64_t bytes;      ///< that a block moves
  int64_t fewer = 1;  ///< how many times fewer blocks do as well, where there are many: they have more in flight
  int64_t more = 1;   ///< how many times more are of use, where a card has room: they share the bags
};

/// A batch of nothing but arrays.
inline Batch batch_of(const IdArray&) { return {}; }
template <class InRequests>
Batch batch_of(const InRequests& ids) {
  const RequestBlobs& r = ids.requests;
  return {r.bytes, r.positions, r.row_starts, r.num_requests.actual, r.num_requests.capacity};
}
inline Batch batch_of(const BagFeature& feature) {
  return std::visit([](const auto& ids) { return batch_of(ids); }, feature.ids);
}

inline void set_flag(Record& record, Flag flag, bool is_set) {
  if (is_set) record.flags = static_cast<uint16_t>(record.flags | static_cast<uint16_t>(flag));
}

inline void set_ids(const IdArray& ids, const BagFeature& feature, Record& record) {
  record.form = ids.offsets != nullptr ? Form::offsets : ids.indices != nullptr ? Form::indices : Form::each;
  record.array = {ids.ids, ids.offsets != nullptr ? ids.offsets : ids.indices, feature.num_bags.actual};
}
inline Record::Requests places_in(const RequestBlobs& requests, int axis, int bags_axis, int input) {
  const BlobEntries entries(requests);
  const int64_t stride = requests.stride_of_row_starts();
  return {entries.of_input(input), entries.of_offsets(axis), static_cast<uint32_t>(bags_axis * stride),
          static_cast<uint32_t>(axis * stride), 0};
}
inline void set_ids(const BlobIds& ids, const BagFeature&, Record& record) {
  record.form = ids.parent > 0    ? Form::blob_segments
                : ids.parent == 0 ? Form::blob_one_segment
                : ids.axis == 0   ? Form::blob_each_of_requests
                                  : Form::blob_each;
  record.requests = places_in(ids.requests, ids.axis, ids.parent < 0 ? ids.axis : ids.parent, ids.input);
  record.requests.default_id = ids.default_id.value_or(0);
  set_flag(record, Flag::narrow_ids, ids.wire == IdsWire::i32);
}
inline void set_ids(const BlobDense& dense, const BagFeature&, Record& record) {
  record.form = Form::blob_dense;
  record.requests = places_in(dense.requests, dense.axis, dense.axis, dense.requests.num_ids + dense.input);
  record.default_value = dense.default_value;
}

inline void set_weights(const IdArray& ids, Record&, Extras& extras) {
  extras.weights = reinterpret_cast<const unsigned char*>(ids.weights);
  extras.weights_stride = ids.weights_stride * static_cast<int64_t>(sizeof(float));
  extras.num_ids = ids.num_ids.actual;
}
inline void set_weights(const BlobIds& ids, Record& record, Extras& extras) {
  record.default_value = ids.default_weight;
  if (ids.weights.data != nullptr) {
    set_flag(record, Flag::weights_are_half, ids.weights.type == DType::f16);
    extras.weights = static_cast<const unsigned char*>(ids.weights.data);
    extras.weights_stride = ids.weights.stride * size_of(ids.weights.type);
  } else if (ids.weights_input >= 0) {
    extras.weights_entry = BlobEntries(ids.requests).of_input(ids.requests.num_ids + ids.weights_input);
    const int64_t bytes = size_of(ids.weights_wire);
    set_flag(record, Flag::weights_are_half, ids.weights_wire == DenseWire::f16);
    set_flag(record, Flag::weights_are_bfloat16, ids.weights_wire == DenseWire::bf16);
    extras.weights_stride = ids.weights_width * bytes;
    extras.weights_column_bytes = static_cast<uint32_t>(ids.weights_column * bytes);
  }
}
inline void set_weights(const BlobDense&, Record&, Extras&) {}

/// `elements` are what a lane stores of a row.
inline void set_output(const BagFeature& feature, int64_t elements, Record& record) {
  std::visit(
      [&](const auto& y) {
        constexpr int64_t bytes = sizeof(*y.data);
        record.y = reinterpret_cast<unsigned char*>(y.data);
        record.y_stride = static_cast<uint32_t>(y.stride);
        const int64_t wanted = std::min<int64_t>(16, elements * bytes);
        set_flag(record, Flag::y_is_half, bytes == sizeof(float16));
        set_flag(record, Flag::y_is_aligned, alignment_of(y.data) >= wanted && y.stride * bytes % wanted == 0);
      },
      feature.y);
}

/// Where FP16 values of rows of whole words go to such rows they are copied as words, as if they were floats.
inline bool are_pairs(const BagFeature& feature) {
  const auto* y = std::get_if<Matrix<float16>>(&feature.y);
  return std::get<BlobDense>(feature.ids).wire == DenseWire::f16 && y != nullptr && feature.table.dim % 2 == 0 &&
         y->stride % 2 == 0 && alignment_of(y->data) >= 4;
}
inline void make_pairs(Record& record) {
  const float finite = std::clamp(record.default_value, -max_float16, max_float16);
  record.default_value = bits_float(uint32_t{to_float16(finite).bits} * 0x10001u);
  record.type = RowType::f32;
  record.parts /= 2;
  record.y_stride /= 2;
  record.flags = static_cast<uint16_t>(record.flags & ~static_cast<uint16_t>(Flag::y_is_half));
}

constexpr RowType type_of(DenseWire wire) {
  return wire == DenseWire::f16 ? RowType::f16 : wire == DenseWire::bf16 ? RowType::bf16 : RowType::f32;
}

inline Wanted want_dense(const BagFeature& feature) {
  Wanted wanted{};
  Record& record = wanted.record;
  wanted.extras = no_extras;
  record.path = Path::dense;
  record.type = type_of(std::get<BlobDense>(feature.ids).wire);
  record.max_bags = static_cast<uint32_t>(feature.num_bags.capacity);
  record.parts = static_cast<uint32_t>(feature.table.dim);
  record.unit = 1;
  std::visit([&](const auto& ids) { set_ids(ids, feature, record); }, feature.ids);
  set_output(feature, 1, record);
  if (are_pairs(feature)) make_pairs(record);
  const int64_t values = feature.num_bags.capacity * record.parts;
  wanted.blocks = std::max<int64_t>(1, values / (2 * dense_chunk));
  wanted.bytes = values / wanted.blocks * (record.type == RowType::f32 ? 4 : 2);
  return wanted;
}

/// Bags that a block takes at once, as long as they are on average.
inline int64_t bags_per_unit(const Record& record, bool is_pooled, double mean_length) {
  const int64_t groups = policy.threads >> record.lanes_log2;
  if (!is_pooled) return groups;
  const int64_t unit = mean_length <= policy.max_short_bag                         ? groups
                       : mean_length <= policy.max_medium_bag >> record.lanes_log2 ? num_warps
                                                                                   : 1;
  return std::min(groups, record.form == Form::blob_one_segment ? std::min<int64_t>(unit, num_warps) : unit);
}

/// Lanes look up a key each, and then their warp copies the rows. Of rows that take all of its lanes these are few, so
/// that few keys are many blocks; narrower rows are copied several at once.
inline int64_t keys_per_unit(const Record& record) {
  const bool takes_all_lanes = 1 << record.lanes_log2 == device::warp_size;
  return num_warps * (takes_all_lanes ? 2 * policy.ids_in_flight : device::warp_size);
}

inline Wanted want_look_up(const BagFeature& feature, const LaunchPolicies& policies) {
  Wanted wanted{};
  Record& record = wanted.record;
  const TableView& table = feature.table;
  const RowLoads loads = row_loads(feature);
  const bool is_pooled = has_segments(feature);
  const int64_t bags = feature.num_bags.capacity, ids = max_ids(feature);
  record.path = path_of(feature, loads);
  record.type = static_cast<RowType>(table.type);
  record.part_size = static_cast<uint8_t>(loads.part_bytes / size_of(table.type));
  record.part_bytes = static_cast<uint8_t>(loads.part_bytes);
  record.load_bytes = static_cast<uint8_t>(loads.load_bytes);
  record.rows = static_cast<const unsigned char*>(table.rows);
  record.row_stride = static_cast<uint32_t>(table.row_stride_bytes);
  record.num_rows = static_cast<uint32_t>(table.num_rows);
  record.max_bags = static_cast<uint32_t>(bags);
  record.max_ids = static_cast<uint32_t>(ids);
  record.parts = static_cast<uint32_t>(table.row_bytes() / loads.part_bytes);
  while (record.lanes_log2 < 5 && 1u << record.lanes_log2 < record.parts) ++record.lanes_log2;
  record.scale = reinterpret_cast<const unsigned char*>(table.scale);
  record.offset = reinterpret_cast<const unsigned char*>(table.offset);
  record.scale_stride = static_cast<uint32_t>(table.scale_stride_bytes);
  record.default_row = table.default_row;
  record.counters = feature.counters;
  wanted.has_extras = has_extras(feature);
  wanted.extras = no_extras;
  wanted.extras.padding = feature.padding.value_or(-1);
  if (feature.hashed) {
    record.rows = feature.hashed->buckets;
    wanted.extras.placement = feature.hashed->placement;
    wanted.extras.shape = feature.hashed->shape;
    wanted.extras.is_mutable = feature.hashed->is_mutable;
    wanted.extras.has_padding = feature.padding.has_value();
  }
  wanted.extras.cache = feature.cache;
  wanted.extras.absent = feature.absent;
  std::visit(
      [&](const auto& of) {
        set_ids(of, feature, record);
        set_weights(of, record, wanted.extras);
      },
      feature.ids);
  set_output(feature, record.part_size, record);
  const bool has_few_ids =
      record.path == Path::bags && record.form == Form::offsets && ids <= bags && feature.counters == nullptr;
  if (has_few_ids) record.path = Path::rows;
  const bool cuts = is_pooled && ids > policy.ids_per_piece &&
                    (feature.max_bag_ids == 0 || feature.max_bag_ids > policy.ids_per_piece);
  set_flag(record, Flag::mean, feature.pooling == Pooling::mean);
  set_flag(record, Flag::sqrtn, feature.pooling == Pooling::sqrtn);
  set_flag(record, Flag::max, feature.pooling == Pooling::max);
  set_flag(record, Flag::weighted, is_weighted(feature));
  set_flag(record, Flag::wide_rows, table.row_bytes() >= policies.look_up_wide_row_bytes);
  set_flag(record, Flag::scale_beside_offset,
           table.scale != nullptr && table.offset == table.scale + 1 &&
               std::gcd(alignment_of(table.scale, 8), table.scale_stride_bytes) == 8);
  set_flag(record, Flag::few_ids, has_few_ids);
  set_flag(record, Flag::cuts_bags, cuts);
  const double mean_length = static_cast<double>(ids) / static_cast<double>(bags);
  const bool is_of_lanes = record.path == Path::keys && is_row_of_key(record);
  const int64_t unit = is_of_lanes ? keys_per_unit(record) : bags_per_unit(record, is_pooled, mean_length);
  record.unit = static_cast<uint16_t>(unit);
  wanted.blocks = (bags + unit - 1) / unit;
  wanted.bytes = static_cast<int64_t>(mean_length * static_cast<double>(table.row_bytes() * unit));
  if (record.path == Path::keys && is_pooled) wanted.more = std::max<int64_t>(1, unit / num_warps);
  if (record.path == Path::rows) wanted.fewer = policy.ids_in_flight * 16 / loads.part_bytes;
  return wanted;
}

/// Blocks that look for pieces of bags in what has `of` its bags summed. Their part of the workspace begins at
/// `workspace_bytes`, which is moved on.
inline Wanted want_pieces(const Wanted& of, int64_t dim, int64_t& workspace_bytes) {
  Wanted wanted = of;
  constexpr int64_t windows_of_a_block = 8, most_blocks = 64;
  const int64_t windows = of.record.max_ids / policy.ids_per_piece + 1;
  set_flag(wanted.record, Flag::is_for_pieces, true);
  if (of.record.path == Path::rows) wanted.record.path = Path::bags;
  wanted.record.tickets_at = static_cast<uint32_t>(workspace_bytes / 16);
  wanted.blocks = std::clamp<int64_t>(windows / windows_of_a_block, 1, most_blocks);
  wanted.bytes = 0;
  wanted.fewer = wanted.more = 1;
  workspace_bytes += (windows * 4 + 15) / 16 * 16 + 2 * windows * piece_bytes(dim);
  return wanted;
}

inline int64_t total_blocks(const std::vector<Wanted>& all) {
  return std::accumulate(all.begin(), all.end(), int64_t{0}, [](int64_t n, const Wanted& w) { return n + w.blocks; });
}

/// Makes blocks more where a card that holds `resident` of them has room for all together.
inline void spread_blocks(std::vector<Wanted>& all, int64_t resident) {
  const int64_t room = std::max<int64_t>(1, resident / total_blocks(all));
  for (Wanted& wanted : all) wanted.blocks *= std::min(wanted.more, room);
}

/// Makes blocks fewer where a card that holds `resident` of them would have to begin many a time, at most `most`.
inline void limit_blocks(std::vector<Wanted>& all, int64_t resident, int64_t most) {
  const int64_t rounds = (total_blocks(all) + resident - 1) / resident;
  for (Wanted& wanted : all) {
    const int64_t fewer = std::min(wanted.fewer, rounds);
    wanted.blocks = (wanted.blocks + fewer - 1) / fewer;
  }
  const int64_t left = total_blocks(all);
  if (left <= most) return;
  for (Wanted& wanted : all) {  // so that all blocks of a feature take as many turns
    const int64_t share = std::max<int64_t>(1, wanted.blocks * most / left);
    const int64_t turns = (wanted.blocks + share - 1) / share;
    wanted.blocks = (wanted.blocks + turns - 1) / turns;
  }
}

/// Appends a record for each block, those that move most first, of `lines` lines each.
inline void write_records(const std::vector<Wanted>& all, uint32_t lines, std::vector<Line>& records) {
  std::vector<size_t> order(all.size());  // a stable sort of what is aligned to 128 bytes would move it off that
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a].bytes > all[b].bytes; });
  for (const size_t i : order) {
    Record record = all[i].record;
    record.blocks = static_cast<uint32_t>(all[i].blocks);
    for (int64_t block = 0; block < all[i].blocks; ++block) {
      record.rank = static_cast<uint32_t>(block);
      std::memcpy(&records.emplace_back(), &record, sizeof record);
      if (lines == 2) std::memcpy(&records.emplace_back(), &all[i].extras, sizeof(Extras));
    }
  }
}

/// One launch of the kernel.
struct RecordLaunch {
  Batch batch;
  int64_t first_line, num_records;
  uint32_t lines = 1;  ///< of a record
  bool has_keys = false, has_caches = false;
};

/// What launches do.
struct RecordPlan {
  std::vector<Line> records;
  std::vector<RecordLaunch> launches;  ///< one, unless features are in different requests
  int64_t workspace_bytes = 0;
};

inline RecordPlan plan_records(Span<const BagFeature> features, int64_t resident_blocks,
                               const LaunchPolicies& policies) {
  RecordPlan plan;
  std::vector<Batch> batches;
  std::vector<std::vector<Wanted>> wanted;  // by batch
  for (const BagFeature& feature : features) {
    if (feature.num_bags.capacity == 0) continue;
    const Batch batch = batch_of(feature);
    const bool in_array = batch == Batch{};  // goes with any
    auto found = std::find(batches.begin(), batches.end(), batch);
    if (in_array && !batches.empty()) found = batches.begin();
    if (found == batches.end() && !batches.empty() && batches[0] == Batch{}) found = batches.begin(), *found = batch;
    if (found == batches.end()) {
      found = batches.insert(found, batch);
      wanted.emplace_back();
    }
    std::vector<Wanted>& all = wanted[static_cast<size_t>(found - batches.begin())];
    all.push_back(is_dense(feature) ? want_dense(feature) : want_look_up(feature, policies));
    const Wanted last = all.back();
    if (last.record.has(Flag::cuts_bags)) all.push_back(want_pieces(last, feature.table.dim, plan.workspace_bytes));
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    constexpr int64_t most_for_arrays = 8192;
    const bool in_arrays = batches[i] == Batch{};
    const bool has_keys = std::any_of(wanted[i].begin(), wanted[i].end(),
                                      [](const Wanted& one) { return one.record.path == Path::keys; });
    const bool has_caches =
        std::any_of(wanted[i].begin(), wanted[i].end(), [](const Wanted& one) { return one.extras.cache != nullptr; });
    const int64_t resident_with_keys =
        resident_blocks / policy.blocks_per_sm * (has_caches ? blocks_with_caches_per_sm : blocks_with_keys_per_sm);
    if (has_keys) spread_blocks(wanted[i], resident_with_keys * policies.look_up_rounds_of_keys);
    limit_blocks(wanted[i], resident_blocks * policies.look_up_rounds,
                 in_arrays ? most_for_arrays : 4 * resident_blocks);
    const bool have_extras =
        std::any_of(wanted[i].begin(), wanted[i].end(), [](const Wanted& one) { return one.has_extras; });
    const uint32_t lines = have_extras ? 2 : 1;
    const auto first = static_cast<int64_t>(plan.records.size());
    write_records(wanted[i], lines, plan.records);
    plan.launches.push_back(
        {batches[i], first, (static_cast<int64_t>(plan.records.size()) - first) / lines, lines, has_keys, has_caches});
  }
  return plan;
}

}}}  // namespace warprank::v0::detail::embedding_bag
