// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Scenes of rows, for tests of experts: on the host, and sorted on the device.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/ops/experts.cuh"

namespace kernel_testing {

/// Ids of scenes on the host: of rows, or of segments of them.
struct Scenes {
  int64_t num_scenes;
  std::vector<int64_t> ids;
  std::vector<int64_t> sizes = {};  ///< rows of each id; empty: one

  int64_t rows() const {
    return sizes.empty() ? static_cast<int64_t>(ids.size()) : std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  }
  bool exists(int64_t id) const { return 0 <= id && id < num_scenes; }
  /// Of every row, num_scenes for none.
  std::vector<int64_t> of_rows() const {
    std::vector<int64_t> scenes;
    for (size_t i = 0; i < ids.size(); ++i)
      for (int64_t n = 0; n < (sizes.empty() ? 1 : sizes[i]); ++n)
        scenes.push_back(exists(ids[i]) ? ids[i] : num_scenes);
    return scenes;
  }
  std::vector<int64_t> offsets() const {
    std::vector<int64_t> offsets{0};
    for (const int64_t size : sizes) offsets.push_back(offsets.back() + size);
    return offsets;
  }
};

inline Scenes random_scenes(int64_t num_scenes, int64_t num_ids, bool in_segments, uint32_t seed = 1) {
  std::mt19937 engine(seed);
  const std::vector<int64_t> odd{-1, num_scenes, std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max(), int64_t{1} << 32};
  Scenes scenes{num_scenes, {}, {}};
  for (int64_t i = 0; i < num_ids; ++i) {
    scenes.ids.push_back(engine() % 6 == 0 ? odd[engine() % odd.size()] : engine() % static_cast<uint64_t>(num_scenes));
    if (in_segments) scenes.sizes.push_back(static_cast<int64_t>(engine() % 9) * (engine() % 3 != 0));
  }
  return scenes;
}

/// Sorted rows with all that they need in the device's memory.
class DeviceScenes {
 public:
  explicit DeviceScenes(const Scenes& scenes, int64_t more_rows = 3)
      : ids_(static_cast<int64_t>(scenes.ids.size()) + more_rows),
        offsets_(static_cast<int64_t>(scenes.ids.size()) + more_rows + 1),
        num_ids_(std::vector<int64_t>{static_cast<int64_t>(scenes.ids.size())}),
        num_rows_(std::vector<int64_t>{scenes.rows()}),
        counters_(1, warprank::LookupCounters{}),
        workspace_(warprank::SceneRows::bytes(scenes.num_scenes, scenes.rows() + more_rows)) {
    ids_.write(scenes.ids);
    warprank::SceneIds ids{ids_.data(),
                           {ids_.size(), num_ids_.data()},
                           scenes.sizes.empty() ? nullptr : offsets_.data(),
                           counters_.data()};
    make(ids, scenes, more_rows);
  }
  /// From requests.
  DeviceScenes(const Scenes& scenes, warprank::BlobIds blob, int64_t num_ids_capacity)
      : ids_(1),
        offsets_(num_ids_capacity + 1),
        num_ids_(1),
        num_rows_(std::vector<int64_t>{scenes.rows()}),
        counters_(1, warprank::LookupCounters{}),
        workspace_(warprank::SceneRows::bytes(scenes.num_scenes, scenes.rows() + 3)) {
    make({blob, {num_ids_capacity, nullptr}, scenes.sizes.empty() ? nullptr : offsets_.data(), counters_.data()},
         scenes, 3);
  }

  const warprank::SceneRows& rows() const { return *rows_; }
  warprank::RowGroups groups() const { return rows_->groups(); }
  const warprank::LookupCounters counters() const { return counters_.read()[0]; }
  DeviceArray<int64_t>& ids() { return ids_; }
  DeviceArray<int64_t>& num_ids() { return num_ids_; }
  DeviceArray<int64_t>& num_rows() { return num_rows_; }

  /// Holds the lists and counters of one launch against what `scenes` say.
  void expect_right(const Scenes& scenes) const {
    const std::vector<int64_t> of_rows = scenes.of_rows();
    std::vector<int32_t> rows(of_rows.size()), ends;
    std::iota(rows.begin(), rows.end(), 0);
    const auto scene_of = [&](int32_t row) { return of_rows[static_cast<size_t>(row)]; };
    std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) { return scene_of(a) < scene_of(b); });
    for (int64_t s = 0; s <= scenes.num_scenes; ++s)
      ends.push_back(static_cast<int32_t>(
          std::count_if(of_rows.begin(), of_rows.end(), [&](int64_t scene) { return scene <= s; })));
    std::vector<int32_t> got_rows(rows.size()), got_ends(ends.size());
    synchronize();
    copy(got_rows.data(), groups().rows, static_cast<int64_t>(rows.size() * 4));
    copy(got_ends.data(), groups().ends, static_cast<int64_t>(ends.size() * 4));
    synchronize();
    EXPECT_EQ(got_rows, rows);
    EXPECT_EQ(got_ends, ends);
    const warprank::LookupCounters counted = counters();
    EXPECT_EQ(counted.ids, static_cast<int64_t>(scenes.ids.size()));
    EXPECT_EQ(counted.out_of_range,
              std::count_if(scenes.ids.begin(), scenes.ids.end(), [&](int64_t id) { return !scenes.exists(id); }));
    EXPECT_EQ(counted.unknown + counted.padding + counted.empty_bags, 0);
  }

 private:
  void make(const warprank::SceneIds& ids, const Scenes& scenes, int64_t more_rows) {
    offsets_.write(scenes.offsets());
    const warprank::DeviceCount rows{scenes.rows() + more_rows, num_rows_.data()};
    rows_ = std::make_unique<warprank::SceneRows>(ids, scenes.num_scenes, rows, workspace_.data());
  }

  DeviceArray<int64_t> ids_, offsets_, num_ids_, num_rows_;
  DeviceArray<warprank::LookupCounters> counters_;
  DeviceArray<unsigned char> workspace_;
  std::unique_ptr<warprank::SceneRows> rows_;
};

}  // namespace kernel_testing
