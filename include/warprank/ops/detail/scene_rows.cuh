// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sorts rows by their scenes, by counting, those of one scene in the order
/// in which they are. One block; a warp has a range of the rows, which it sees twice: to count, and to place.

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
#include "warprank/ops/detail/embedding_bag/ids.cuh"
#include "warprank/ops/detail/gemm/check.hpp"
#include "warprank/ops/row_groups.hpp"
#include "warprank/ops/scene_ids.hpp"

namespace warprank::detail::scene_rows {

inline constexpr int num_threads = 1024, num_warps = num_threads / device::warp_size;
inline constexpr int max_groups = RowGroups::max_groups;

struct SceneArguments {
  const int64_t* ids;  ///< null: in requests
  const unsigned char* blobs;
  const int64_t* positions;
  const int64_t* id_starts;  ///< row_starts of the axis of the ids
  const int64_t* num_requests;
  int64_t max_requests, default_id;
  uint32_t ids_entry;      ///< bytes from a blob's beginning to where it says where the ids are
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
  int32_t counts[num_warps][max_groups + 1];  ///< of a warp's rows; then where the next of them goes
  int32_t ends[max_groups + 1];
  uint32_t out_of_range;
};

WARPRANK_DEVICE int64_t num_ids_of(const SceneArguments& a) {
  const int64_t* count = a.num_ids;
  if (a.ids == nullptr) count = &a.id_starts[device::true_count(a.num_requests, a.max_requests)];
  return device::true_count(count, a.max_ids);
}

/// Where id `i` is; null: nowhere, it is the default.
WARPRANK_DEVICE const int64_t* address_of_id(const SceneArguments& a, int64_t i) {
  if (a.ids != nullptr) return a.ids + i;
  const int64_t num_requests = device::true_count(a.num_requests, a.max_requests);
  const int64_t request = device::last_not_above(a.id_starts, num_requests, i);
  const unsigned char* blob = a.blobs + device::load_read_only(&a.positions[request]);
  const uint32_t ids_at = embedding_bag::read_entry(blob, a.ids_entry);
  if (ids_at == 0) return nullptr;
  return embedding_bag::section<int64_t>(blob, ids_at) + i - device::load_read_only(&a.id_starts[request]);
}

/// The scene that id `i` names, num_groups for none.
WARPRANK_DEVICE int scene_of_id(const SceneArguments& a, int64_t i) {
  const int64_t* id = address_of_id(a, i);
  const int64_t scene = id == nullptr ? a.default_id : device::load_read_only(id);
  return scene >= 0 && scene < a.num_groups ? static_cast<int>(scene) : a.num_groups;
}

/// Calls f(row, scene, the lanes whose rows have the same scene) for a warp's rows, by all lanes together, which are
/// synchronised behind it. Lanes without a row have row -1 and a scene that no row has. Whole warps call.
template <class F>
WARPRANK_DEVICE void for_each_row(const SceneArguments& a, int64_t num_rows, int64_t num_ids, F&& f) {
  const int64_t per_warp = (num_rows + num_threads - 1) / num_threads * device::warp_size;
  const int64_t begin = device::warp_index() * per_warp;
  const int64_t end = begin + per_warp < num_rows ? begin + per_warp : num_rows;
  for (int64_t first = begin; first < end; first += device::warp_size) {
    const int64_t row = first + device::lane_index();
    int scene = a.num_groups + 1;
    if (row < end) {
      const int64_t i = a.offsets == nullptr ? row : device::last_not_above(a.offsets, num_ids, row);
      scene = i < num_ids ? scene_of_id(a, i) : a.num_groups;
    }
    f(row < end ? row : -1, scene, device::match(device::full_warp, scene));
    device::sync_warp();
  }
}

template <class = void>
WARPRANK_KERNEL(num_threads, 1)
scene_rows_kernel(SceneArguments a) {
  auto& shared = device::static_shared<SceneStorage>();
  const int thread = device::thread_rank(), warp = device::warp_index(), lane = device::lane_index();
  const int64_t num_ids = num_ids_of(a);
  const int64_t num_rows = device::true_count(a.num_rows, a.max_rows);
  for (int g = lane; g <= a.num_groups; g += device::warp_size) shared.counts[warp][g] = 0;
  if (thread == 0) shared.out_of_range = 0;
  device::sync_block();

  if (a.counters != nullptr) {
    uint32_t mine = 0;
    for (int64_t i = thread; i < num_ids; i += num_threads) mine += scene_of_id(a, i) == a.num_groups;
    using device::Order, device::Scope;
    if (mine != 0) device::atomic_add<Order::relaxed, Scope::block>(&shared.out_of_range, mine);
  }
  for_each_row(a, num_rows, num_ids, [&](int64_t row, int scene, uint32_t same) {
    if (row >= 0 && lane == device::first_bit(same)) shared.counts[warp][scene] += device::count_bits(same);
  });
  device::sync_block();
  if (thread <= a.num_groups) {
    int total = 0;
    for (int w = 0; w < num_warps; ++w) total += shared.counts[w][thread];
    shared.ends[thread] = total;
  }
  device::sync_block();
  if (thread == 0) {
    for (int g = 1; g <= a.num_groups; ++g) shared.ends[g] += shared.ends[g - 1];
    if (a.counters != nullptr) {
      const auto add = [](int64_t* counter, int64_t count) {
        using device::Order, device::Scope;
        device::atomic_add<Order::relaxed, Scope::device>(reinterpret_cast<uint64_t*>(counter),
                                                          static_cast<uint64_t>(count));
      };
      add(&a.counters->ids, num_ids);
      add(&a.counters->out_of_range, shared.out_of_range);
    }
  }
  device::sync_block();
  if (thread <= a.num_groups) {
    device::store(&a.ends[thread], shared.ends[thread]);
    int next = thread == 0 ? 0 : shared.ends[thread - 1];
    for (int w = 0; w < num_warps; ++w) {
      const int count = shared.counts[w][thread];
      shared.counts[w][thread] = next;
      next += count;
    }
  }
  device::sync_block();
  for_each_row(a, num_rows, num_ids, [&](int64_t row, int scene, uint32_t same) {
    const int before = device::count_bits(same & ((uint32_t{1} << lane) - 1));
    const int place = row < 0 ? 0 : shared.counts[warp][scene] + before;
    device::sync_warp();
    if (row < 0) return;
    device::store(&a.rows[place], static_cast<int32_t>(row));
    if (before == 0) shared.counts[warp][scene] += device::count_bits(same);
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
