// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sorts rows by their scenes, by counting, those of one scene in the order in which they are. One block. Scenes of ids
/// are found once, a thread each; then a warp has a range of the rows, which it sees twice: to count, and to place. A
/// thread that has one row at most keeps its scene in between, else those of the first 8,192 rows are kept. Where rows
/// go is summed by lanes over scenes and, where more than 8 warps have rows, over warps: two barriers, or three.
///
/// Loads that depend on one another, from launch to store: of an array the number of ids, an id; beside them, of ids of
/// segments, up to 65 offsets, else a search. Of ids in requests, up to 31: what they begin with and their number,
/// where a request has ids, an id.

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
#include "warprank/ops/detail/common/check_matrix.hpp"
#include "warprank/ops/detail/common/requests_of_lanes.cuh"
#include "warprank/ops/detail/embedding_bag/blob.cuh"
#include "warprank/ops/row_groups.hpp"
#include "warprank/ops/scene_ids.hpp"

namespace warprank { inline namespace v0 { namespace detail::scene_rows {

inline constexpr int num_threads = 1024, num_warps = num_threads / device::warp_size;
inline constexpr int max_groups = RowGroups::max_groups;
inline constexpr int kept = 8192;    // scenes of ids, and of rows
inline constexpr int few_warps = 8;  // whose counts every warp adds itself

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
  int32_t counts[num_warps]
                [max_groups + 1];  ///< of a warp's rows; where many have some, then those of the warps before
  int32_t places[num_warps][max_groups + 1];  ///< where a warp's next row of a scene goes
  int32_t totals[max_groups + 1];
  uint8_t scenes_of_ids[kept], scenes_of_rows[kept];
};

/// Ids in an array, or in requests: what is requested of them comes beside their number.
template <bool InRequests>
class Ids {
 public:
  WARPRANK_DEVICE explicit Ids(const SceneArguments& a)
      : a_(a), count_(a.num_ids == nullptr ? a.max_ids : device::load_ahead(a.num_ids)) {}

  WARPRANK_DEVICE int64_t count() {
    device::use_from_here(count_);
    return count_ < a_.max_ids ? count_ : a_.max_ids;
  }
  /// Id `i`, which does not fall from lane to lane, from `first` to `last`. All of a warp call.
  WARPRANK_DEVICE int64_t id(int64_t i, int64_t /*first*/, int64_t /*last*/) const {
    return device::load_read_only(&a_.ids[i]);
  }

 private:
  const SceneArguments& a_;
  int64_t count_;
};

template <>
class Ids<true> {
 public:
  WARPRANK_DEVICE explicit Ids(const SceneArguments& a)
      : a_(a), requests_({a.id_starts}, a.positions, a.num_requests, a.max_requests) {}

  WARPRANK_DEVICE int64_t count() {
    const int64_t count = requests_.start(0, requests_.count());
    return count < a_.max_ids ? count : a_.max_ids;
  }
  WARPRANK_DEVICE int64_t id(int64_t i, int64_t first, int64_t last) {
    const int64_t request = requests_.find(i, first, last), start = requests_.start(0, request);
    const unsigned char* blob = a_.blobs + requests_.position(request);
    const uint32_t ids_at = embedding_bag::read_entry(blob, a_.ids_entry);
    if (ids_at == 0) return a_.default_id;
    return embedding_bag::load_id(blob + ids_at, i - start, a_.ids_are_narrow);
  }

 private:
  const SceneArguments& a_;
  RequestsOfLanes<1> requests_;
};

/// What reads scenes: of ids, and of rows by those.
template <bool InRequests>
class Scenes {
 public:
  WARPRANK_DEVICE Scenes(const SceneArguments& a, SceneStorage& shared)
      : a_(a), shared_(shared), ids_(a), offsets_(a.offsets, a.offsets == nullptr ? 0 : a.max_ids) {
    num_ids_ = ids_.count();
  }
  WARPRANK_DEVICE int64_t num_ids() const { return num_ids_; }

  /// Keeps the scenes of the ids, as far as there is room. Returns how many name none, of those that the warp sees.
  WARPRANK_DEVICE uint32_t read_ids() {
    uint32_t out_of_range = 0;
    const int lane = device::lane_index();
    for (int64_t first = device::warp_index() * device::warp_size; first < num_ids_; first += num_threads) {
      const int64_t end = first + device::warp_size, last = (end < num_ids_ ? end : num_ids_) - 1, i = first + lane;
      const int scene = scene_of_id(i < last ? i : last, first, last);
      const bool is_out = i <= last && scene == a_.num_groups;
      out_of_range += static_cast<uint32_t>(device::count_bits(device::ballot(device::full_warp, is_out)));
      if (i <= last && i < kept) shared_.scenes_of_ids[i] = static_cast<uint8_t>(scene);
    }
    return out_of_range;
  }
  /// The scene of the caller's row, num_groups for none; of rows [first, last], that of the last for lanes behind. All
  /// of a warp call, behind a barrier behind read_ids.
  WARPRANK_DEVICE int of_row(int64_t first, int64_t last) {
    if (num_ids_ <= 0) return a_.num_groups;
    const int64_t wanted = first + device::lane_index(), row = wanted < last ? wanted : last;
    const int64_t i = a_.offsets == nullptr ? row : offsets_.last_not_above(num_ids_, row, first, last);
    if (num_ids_ <= kept) return i < num_ids_ ? shared_.scenes_of_ids[i] : a_.num_groups;
    const int64_t known = i < num_ids_ ? i : num_ids_ - 1;
    const int64_t first_id = device::shuffle(device::full_warp, known, 0);
    const int64_t last_id = device::shuffle(device::full_warp, known, device::warp_size - 1);
    const int scene = scene_of_id(known, first_id, last_id);
    return i < num_ids_ ? scene : a_.num_groups;
  }

 private:
  WARPRANK_DEVICE int scene_of_id(int64_t i, int64_t first, int64_t last) {
    const int64_t scene = ids_.id(i, first, last);
    return scene >= 0 && scene < a_.num_groups ? static_cast<int>(scene) : a_.num_groups;
  }

  const SceneArguments& a_;
  SceneStorage& shared_;
  Ids<InRequests> ids_;
  device::ListOfLanes offsets_;
  int64_t num_ids_;
};

/// Calls f(first, last) for 32 of the warp's rows at a time, or for what is left of them.
template <class F>
WARPRANK_DEVICE void for_each_rows(int64_t num_rows, F&& f) {
  const int64_t per_warp = (num_rows + num_threads - 1) / num_threads * device::warp_size;
  const int64_t begin = device::warp_index() * per_warp;
  const int64_t end = begin + per_warp < num_rows ? begin + per_warp : num_rows;
  for (int64_t first = begin; first < end; first += device::warp_size)
    f(first, (first + device::warp_size < end ? first + device::warp_size : end) - 1);
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

template <bool InRequests>
WARPRANK_KERNEL(num_threads, 1)
scene_rows_kernel(const WARPRANK_GRID_CONSTANT SceneArguments a) {
  static_assert(num_warps == device::warp_size);
  auto& shared = device::static_shared<SceneStorage>();
  const int warp = device::warp_index(), lane = device::lane_index();
  int32_t *const counts = shared.counts[warp], *const places = shared.places[warp];
  for (int g = lane; g <= a.num_groups; g += device::warp_size) counts[g] = 0;
  device::wait_for_previous_launch();
  int64_t num_rows = a.num_rows == nullptr ? a.max_rows : device::load_ahead(a.num_rows);
  Scenes<InRequests> scenes(a, shared);
  device::use_from_here(num_rows);
  if (a.max_rows < num_rows) num_rows = a.max_rows;
  const uint32_t out_of_range = scenes.read_ids();
  if (a.counters != nullptr && lane == 0) {
    using device::Order, device::Scope;
    const auto add = [](int64_t* counter, uint64_t count) {
      if (count != 0) device::atomic_add<Order::relaxed, Scope::device>(reinterpret_cast<uint64_t*>(counter), count);
    };
    add(&a.counters->out_of_range, out_of_range);
    if (warp == 0) add(&a.counters->ids, static_cast<uint64_t>(scenes.num_ids()));
  }
  device::sync_block();

  // Of up to 1,024 rows each thread has one, and keeps what it knows.
  const bool has_one = num_rows <= num_threads;
  int scene = 0;
  uint32_t same = 0;  // lanes whose rows are of the same scene
  for_each_rows(num_rows, [&](int64_t first, int64_t last) {
    const int64_t row = first + lane;
    scene = scenes.of_row(first, last);
    if (row > last) scene = a.num_groups + 1;
    same = device::match(device::full_warp, scene);
    if (row <= last && lane == device::first_bit(same)) counts[scene] += device::count_bits(same);
    if (has_one) return;
    if (row <= last && row < kept) shared.scenes_of_rows[row] = static_cast<uint8_t>(scene);
    device::sync_warp();
  });
  device::sync_block();
  const bool has_few_warps = num_rows <= few_warps * device::warp_size;
  if (!has_few_warps) {
    for (int g = warp; g <= a.num_groups; g += num_warps) {  // a lane for each warp
      const int32_t count = shared.counts[lane][g], before = sum_of_lanes_before(count);
      shared.counts[lane][g] = before;
      if (lane == num_warps - 1) shared.totals[g] = before + count;
    }
    device::sync_block();
  }
  int32_t begin = 0;  // of the next 32 scenes
  for (int first = 0; first <= a.num_groups; first += device::warp_size) {
    const int g = first + lane;
    int32_t total = 0, of_warps_before = 0;
    if (g <= a.num_groups && has_few_warps) {
      WARPRANK_UNROLL
      for (int w = 0; w < few_warps; ++w) {
        const int32_t count = shared.counts[w][g];
        total += count;
        of_warps_before += w < warp ? count : 0;
      }
    } else if (g <= a.num_groups) {
      total = shared.totals[g], of_warps_before = counts[g];
    }
    const int32_t its_begin = begin + sum_of_lanes_before(total);
    if (g <= a.num_groups) places[g] = its_begin + of_warps_before;
    if (g <= a.num_groups && warp == 0) device::store(&a.ends[g], its_begin + total);
    if (first + device::warp_size <= a.num_groups)
      begin = device::shuffle(device::full_warp, its_begin + total, device::warp_size - 1);
  }
  device::sync_warp();

  for_each_rows(num_rows, [&](int64_t first, int64_t last) {
    const int64_t row = first + lane;
    if (!has_one) {
      scene = last >= kept ? scenes.of_row(first, last) : row <= last ? shared.scenes_of_rows[row] : 0;
      if (row > last) scene = a.num_groups + 1;
      same = device::match(device::full_warp, scene);
    }
    const int before = device::count_bits(same & ((uint32_t{1} << lane) - 1));
    const int place = row <= last ? places[scene] + before : 0;
    if (row <= last) device::store(&a.rows[place], static_cast<int32_t>(row));
    if (has_one) return;
    device::sync_warp();
    if (row <= last && before == 0) places[scene] += device::count_bits(same);
    device::sync_warp();
  });
}

// ---- The host's part

/// The rows come first.
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
                                      const int64_t* num_rows, void* groups) {
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
  check_pointer("scenes: groups", groups, 256, problems);
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
  to.rows = static_cast<int32_t*>(groups);
  to.ends = reinterpret_cast<int32_t*>(static_cast<char*>(groups) + ends_offset(capacity));
  return to;
}

}}}  // namespace warprank::v0::detail::scene_rows
