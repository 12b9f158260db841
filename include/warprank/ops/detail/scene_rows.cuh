// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sorts rows by their scenes, by counting, those of one scene in the order in which they are. One block; a warp has a
/// range of the rows, which it sees twice: to count, and to place. Scenes of the first 8,192 rows are kept in between.
/// Lanes search together, and where rows of a warp's scenes go is summed by lanes over warps and over scenes: two
/// barriers. Loads that depend on one another, from launch to store, of ids in requests: their number, rows of the last
/// beside a search, where a request's blob is, where it has ids, an id; of an array the counts and an id.

#include <cstdint>
#include <limits>
#include <string>
#include <variant>

#include "warprank/batch/format.hpp"
#include "warprank/core/error.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/embedding_bag/blob.cuh"
#include "warprank/ops/detail/gemm/check.hpp"
#include "warprank/ops/row_groups.hpp"
#include "warprank/ops/scene_ids.hpp"

namespace warprank::detail::scene_rows {

inline constexpr int num_threads = 1024, num_warps = num_threads / device::warp_size;
inline constexpr int max_groups = RowGroups::max_groups;
inline constexpr int kept_rows = 8192;

struct SceneArguments {
  const int64_t* ids;  ///< null: in requests
  const unsigned char* blobs;
  const int64_t* positions;
  const int64_t* id_starts;  ///< row_starts of the axis of the ids
  const int64_t* num_requests;
  int64_t max_requests, default_id;
  uint32_t ids_entry;      ///< bytes from a blob's beginning to where it says where the ids are
  bool ids_are_narrow;     ///< of 32 bits
  const int64_t* num_ids;  ///< null: the capacity; of an array
  int64_t max_ids;
  const int64_t* offsets;   ///< null: id n is that of row n
  const int64_t* num_rows;  ///< null: the capacity
  int64_t max_rows;
  LookupCounters* counters;
  int num_groups;
  int32_t* rows;
  int32_t* ends;
};

struct SceneStorage {
  int32_t counts[num_warps][max_groups + 1];  ///< of a warp's rows; then of those of the warps before it
  int32_t totals[max_groups + 1];
  uint8_t scenes[kept_rows];
};

WARPRANK_DEVICE int64_t num_ids_of(const SceneArguments& a) {
  const int64_t* count = a.num_ids;
  if (a.ids == nullptr) count = &a.id_starts[device::true_count(a.num_requests, a.max_requests)];
  return device::true_count(count, a.max_ids);
}

/// Where id `i` is; null: nowhere, it is the default. All of a warp call, with numbers that do not fall from lane to
/// lane, and of ids that are.
WARPRANK_DEVICE const unsigned char* address_of_id(const SceneArguments& a, int64_t i) {
  if (a.ids != nullptr) return reinterpret_cast<const unsigned char*>(a.ids + i);
  const int64_t num_requests = device::true_count(a.num_requests, a.max_requests);
  const int64_t request = device::last_not_above_of_lanes(a.id_starts, num_requests, i);
  const int64_t position = device::load_read_only(&a.positions[request]);
  const int64_t start = device::load_read_only(&a.id_starts[request]);
  const unsigned char* blob = a.blobs + position;
  const uint32_t ids_at = embedding_bag::read_entry(blob, a.ids_entry);
  if (ids_at == 0) return nullptr;
  return embedding_bag::address_of_id(blob + ids_at, i - start, a.ids_are_narrow);
}

/// The scene that id `i` names, num_groups for none. All of a warp call, as above, but `i` may be num_ids and more:
/// then none. There are ids for some lane.
WARPRANK_DEVICE int scene_of_id(const SceneArguments& a, int64_t i, int64_t num_ids) {
  const unsigned char* id = address_of_id(a, i < num_ids ? i : num_ids - 1);
  const int64_t scene = id == nullptr      ? a.default_id
                        : a.ids_are_narrow ? device::load_read_only(reinterpret_cast<const int32_t*>(id))
                                           : device::load_read_only(reinterpret_cast<const int64_t*>(id));
  return i < num_ids && scene >= 0 && scene < a.num_groups ? static_cast<int>(scene) : a.num_groups;
}

/// Rows [begin, end), the warp's, from lane to lane. Calls f(first row of all lanes); all of a warp call.
template <class F>
WARPRANK_DEVICE void for_each_rows(int64_t num_rows, F&& f) {
  const int64_t per_warp = (num_rows + num_threads - 1) / num_threads * device::warp_size;
  const int64_t begin = device::warp_index() * per_warp;
  const int64_t end = begin + per_warp < num_rows ? begin + per_warp : num_rows;
  for (int64_t first = begin; first < end; first += device::warp_size) f(first);
}

/// The scene of the caller's row, num_groups for none; behind the rows num_groups + 1. All of a warp call.
WARPRANK_DEVICE int scene_of_row(const SceneArguments& a, int64_t row, int64_t num_rows, int64_t num_ids) {
  int scene = a.num_groups;
  if (num_ids > 0) {
    int64_t i = row < num_rows ? row : num_rows - 1;
    if (a.offsets != nullptr) i = device::last_not_above_of_lanes(a.offsets, num_ids, i);
    scene = scene_of_id(a, i, num_ids);
  }
  return row < num_rows ? scene : a.num_groups + 1;
}

WARPRANK_DEVICE uint32_t count_lanes(bool predicate) {
  return static_cast<uint32_t>(device::count_bits(device::ballot(device::full_warp, predicate)));
}

/// How many ids from `begin` on name no scene, of those that the warp sees.
WARPRANK_DEVICE uint32_t count_out_of_range(const SceneArguments& a, int64_t begin, int64_t num_ids) {
  uint32_t count = 0;
  for (int64_t first = begin + device::warp_index() * device::warp_size; first < num_ids; first += num_threads) {
    const int64_t i = first + device::lane_index();
    count += count_lanes(scene_of_id(a, i, num_ids) == a.num_groups && i < num_ids);
  }
  return count;
}

/// The sum over the lanes below. All of a warp call.
WARPRANK_DEVICE int32_t sum_of_lanes_before(int32_t value) {
  int32_t sum = value;
  WARPRANK_UNROLL
  for (int distance = 1; distance < device::warp_size; distance *= 2) {
    const int32_t below = device::shuffle_up(device::full_warp, sum, distance);
    if (device::lane_index() >= distance) sum += below;
  }
  return sum - value;
}

template <class = void>
WARPRANK_KERNEL(num_threads, 1)
scene_rows_kernel(const WARPRANK_GRID_CONSTANT SceneArguments a) {
  static_assert(num_warps == device::warp_size);
  auto& shared = device::static_shared<SceneStorage>();
  const int warp = device::warp_index(), lane = device::lane_index();
  int32_t* const counts = shared.counts[warp];
  for (int g = lane; g <= a.num_groups; g += device::warp_size) counts[g] = 0;
  device::wait_for_previous_launch();
  const int64_t num_ids = num_ids_of(a);
  const int64_t num_rows = device::true_count(a.num_rows, a.max_rows);
  device::sync_warp();

  const bool ids_are_of_rows = a.offsets == nullptr;
  uint32_t out_of_range = 0;
  for_each_rows(num_rows, [&](int64_t first) {
    const int64_t row = first + lane;
    const int scene = scene_of_row(a, row, num_rows, num_ids);
    out_of_range += count_lanes(ids_are_of_rows && row < num_ids && scene == a.num_groups);
    const uint32_t same = device::match(device::full_warp, scene);
    if (row < num_rows && row < kept_rows) shared.scenes[row] = static_cast<uint8_t>(scene);
    if (row < num_rows && lane == device::first_bit(same)) counts[scene] += device::count_bits(same);
    device::sync_warp();
  });
  if (a.counters != nullptr) {
    using device::Order, device::Scope;
    const auto add = [](int64_t* counter, uint64_t count) {
      if (count != 0) device::atomic_add<Order::relaxed, Scope::device>(reinterpret_cast<uint64_t*>(counter), count);
    };
    out_of_range += count_out_of_range(a, ids_are_of_rows ? num_rows : 0, num_ids);
    if (lane == 0) add(&a.counters->out_of_range, out_of_range);
    if (lane == 0 && warp == 0) add(&a.counters->ids, static_cast<uint64_t>(num_ids));
  }
  device::sync_block();
  for (int g = warp; g <= a.num_groups; g += num_warps) {  // a lane for each warp
    const int32_t count = shared.counts[lane][g], before = sum_of_lanes_before(count);
    shared.counts[lane][g] = before;
    if (lane == num_warps - 1) shared.totals[g] = before + count;
  }
  device::sync_block();
  int32_t begin = 0;  // of the next 32 scenes
  for (int first = 0; first <= a.num_groups; first += device::warp_size) {
    const int g = first + lane;
    const int32_t total = g <= a.num_groups ? shared.totals[g] : 0, before = begin + sum_of_lanes_before(total);
    if (g <= a.num_groups) counts[g] += before;
    if (g <= a.num_groups && warp == 0) device::store(&a.ends[g], before + total);
    begin = device::shuffle(device::full_warp, before + total, device::warp_size - 1);
  }
  device::sync_warp();

  for_each_rows(num_rows, [&](int64_t first) {
    const int64_t row = first + lane;
    int scene = a.num_groups + 1;
    if (first + device::warp_size > kept_rows) {
      scene = scene_of_row(a, row, num_rows, num_ids);
    } else if (row < num_rows) {
      scene = shared.scenes[row];
    }
    const uint32_t same = device::match(device::full_warp, scene);
    const int before = device::count_bits(same & ((uint32_t{1} << lane) - 1));
    const int place = row < num_rows ? counts[scene] + before : 0;
    device::sync_warp();
    if (row < num_rows) device::store(&a.rows[place], static_cast<int32_t>(row));
    if (row < num_rows && before == 0) counts[scene] += device::count_bits(same);
    device::sync_warp();
  });
}

// ---- The host's part

/// The rows of a workspace come first.
constexpr int64_t ends_offset(int64_t capacity) { return (capacity * 4 + 255) / 256 * 256; }

inline void check_blob_ids(const BlobIds& blob, Problems& problems) {
  const auto check_index = [&](const char* what, int index, int count) {
    if (index < 0 || index >= count) problems.add(what, "0 to " + std::to_string(count - 1), std::to_string(index));
  };
  check_index("scenes: ids input", blob.input, blob.requests.num_ids);
  check_index("scenes: axis of the ids", blob.axis, blob.requests.num_axes);
  if (blob.parent != -1) problems.add("scenes: axis of bags", "none", std::to_string(blob.parent));
  check_pointer("scenes: blobs", blob.requests.bytes, 8, problems);
  check_pointer("scenes: positions of blobs", blob.requests.positions, 8, problems);
  check_pointer("scenes: row starts", blob.requests.row_starts, 8, problems);
}

inline void describe_blob_ids(const BlobIds& blob, SceneArguments& to) {
  const RequestBlobs& requests = blob.requests;
  to.blobs = requests.bytes;
  to.positions = requests.positions;
  to.id_starts = requests.row_starts_of(blob.axis);
  to.num_requests = requests.num_requests.actual;
  to.max_requests = requests.num_requests.capacity;
  to.default_id = blob.default_id.value_or(0);
  to.ids_are_narrow = blob.wire == IdsWire::i32;
  to.ids_entry =
      static_cast<uint32_t>(sizeof(BlobHeader)) + 4 * static_cast<uint32_t>(2 * requests.num_axes + blob.input);
}

inline SceneArguments describe_scenes(const SceneIds& scenes, int64_t num_scenes, int64_t capacity,
                                      const int64_t* num_rows, void* workspace) {
  Problems problems;
  if (num_scenes < 1 || num_scenes > RowGroups::max_groups)
    problems.add("scenes", "1 to 64", std::to_string(num_scenes));
  if (capacity < 0 || capacity > std::numeric_limits<int32_t>::max())
    problems.add("scenes: rows", "0 to 2^31 - 1", std::to_string(capacity));
  if (scenes.num_ids.capacity < 0)
    problems.add("scenes: ids", "a capacity of 0 or more", std::to_string(scenes.num_ids.capacity));
  if (scenes.offsets == nullptr && scenes.num_ids.capacity < capacity)
    problems.add("scenes: ids", "one for each of " + std::to_string(capacity) + " rows",
                 std::to_string(scenes.num_ids.capacity));
  check_pointer("scenes: workspace", workspace, 256, problems);
  SceneArguments to{};
  if (const auto* array = std::get_if<const int64_t*>(&scenes.ids)) {
    check_pointer("scenes: ids", *array, alignof(int64_t), problems);
    to.ids = *array;
    to.num_ids = scenes.num_ids.actual;
  } else {
    const auto& blob = std::get<BlobIds>(scenes.ids);
    check_blob_ids(blob, problems);
    describe_blob_ids(blob, to);
  }
  problems.throw_if_any();
  to.max_ids = scenes.num_ids.capacity;
  to.counters = scenes.counters;
  to.offsets = scenes.offsets;
  to.num_rows = num_rows;
  to.max_rows = capacity;
  to.num_groups = static_cast<int>(num_scenes);
  to.rows = static_cast<int32_t*>(workspace);
  to.ends = reinterpret_cast<int32_t*>(static_cast<char*>(workspace) + ends_offset(capacity));
  return to;
}

}  // namespace warprank::detail::scene_rows
