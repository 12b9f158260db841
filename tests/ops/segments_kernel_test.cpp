// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "batch/blob_testing.hpp"
#include "support/counts.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/ops/detail/segments/launch.cuh"
#if !defined(__CUDACC__)
#include "support/longest_warp.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::BatchLayout;
using warprank::Graph;
using warprank::RequestBlobs;
using warprank::batch_testing::Bytes;
using warprank::batch_testing::RequestData;
using warprank::detail::segments::SegmentsLaunch;
using warprank::detail::segments::SegmentsOfAxis;

/// user > item > tag > word > letter, and user > session > click.
Graph nested_axes() {
  Graph graph;
  graph.axes = {{"user", -1, 0}, {"item", 0, 0}, {"session", 0, 0}, {"tag", 1, 0},
                {"click", 2, 0}, {"word", 3, 0}, {"letter", 5, 0}};
  graph.ids = {{"letter_id", 6, {}, {}}};
  return graph;
}
const std::vector<int> parents = {-1, 0, 0, 1, 2, 3, 5};
struct Wanted {
  int axis, ancestor;
};
const std::vector<Wanted> all_pairs = {{3, 1}, {4, 2}, {5, 3}, {6, 5}, {5, 1}, {6, 3}, {6, 1}};

/// Segments of 0 to `longest` rows.
RequestData random_request(const BatchLayout& layout, uint32_t longest, std::mt19937& random) {
  RequestData data(layout);
  for (size_t a = 1; a < data.rows.size(); ++a) {
    data.offsets[a] = {0};
    for (uint32_t s = 0; s < data.rows[static_cast<size_t>(parents[a])]; ++s) {
      data.offsets[a].push_back(data.offsets[a].back() + random() % (longest + 1));
    }
    data.rows[a] = data.offsets[a].back();
  }
  data.ids[0] = std::vector<int64_t>(data.rows[6], 7);
  return data;
}

/// Requests side by side in device memory; positions count from behind them.
class DeviceRequests {
 public:
  DeviceRequests(const BatchLayout& layout, const std::vector<RequestData>& requests, int64_t spare)
      : count_(1, static_cast<int64_t>(requests.size())) {
    std::vector<unsigned char> bytes;
    std::vector<int64_t> positions;
    const int64_t capacity = static_cast<int64_t>(requests.size()) + spare, stride = capacity + 2;
    std::vector<int64_t> row_starts(layout.axes().size() * static_cast<size_t>(stride), -1);
    for (size_t a = 0; a < layout.axes().size(); ++a) {
      int64_t* starts = row_starts.data() + static_cast<int64_t>(a) * stride;
      starts[0] = 0;
      for (size_t r = 0; r < requests.size(); ++r) starts[r + 1] = starts[r] + requests[r].rows[a];
    }
    for (const RequestData& request : requests) {
      const Bytes blob = naive_blob(layout, request);
      positions.push_back(static_cast<int64_t>(bytes.size()));
      for (const std::byte byte : blob) bytes.push_back(static_cast<unsigned char>(byte));
    }
    bytes.resize(bytes.size() + 8);
    for (int64_t& position : positions) position -= static_cast<int64_t>(bytes.size());
    positions.resize(static_cast<size_t>(capacity), 0);
    bytes_ = std::make_unique<DeviceArray<unsigned char>>(bytes);
    positions_ = std::make_unique<DeviceArray<int64_t>>(positions);
    row_starts_ = std::make_unique<DeviceArray<int64_t>>(row_starts);
    view_.bytes = bytes_->data() + bytes.size();
    view_.positions = positions_->data();
    view_.row_starts = row_starts_->data();
    view_.row_starts_stride = stride;
    view_.num_requests = {capacity, count_.data()};
    view_.num_axes = static_cast<int>(layout.axes().size());
    view_.num_ids = static_cast<int>(layout.ids().size());
    view_.num_dense = static_cast<int>(layout.dense().size());
  }
  const RequestBlobs& view() const { return view_; }

 private:
  DeviceArray<int64_t> count_;
  std::unique_ptr<DeviceArray<unsigned char>> bytes_;
  std::unique_ptr<DeviceArray<int64_t>> positions_, row_starts_;
  RequestBlobs view_;
};

/// How many rows of `axis` a row of `ancestor` has, counted one by one.
int64_t count_below(const RequestData& request, int axis, int ancestor, uint32_t row) {
  if (axis == ancestor) return 1;
  int child = axis;
  while (parents[static_cast<size_t>(child)] != ancestor) child = parents[static_cast<size_t>(child)];
  const auto& offsets = request.offsets[static_cast<size_t>(child)];
  int64_t count = 0;
  for (uint32_t below = offsets[row]; below < offsets[row + 1]; ++below) {
    count += count_below(request, axis, child, below);
  }
  return count;
}

std::vector<int64_t> expected_offsets(const std::vector<RequestData>& requests, const Wanted& pair) {
  std::vector<int64_t> offsets = {0};
  for (const RequestData& request : requests)
    for (uint32_t row = 0; row < request.rows[static_cast<size_t>(pair.ancestor)]; ++row) {
      offsets.push_back(offsets.back() + count_below(request, pair.axis, pair.ancestor, row));
    }
  return offsets;
}

/// What is written for each pair; unwritten elements are -1.
std::vector<std::vector<int64_t>> run(const BatchLayout& layout, const std::vector<RequestData>& requests,
                                      int64_t spare, const std::vector<Wanted>& pairs = all_pairs) {
  const DeviceRequests on_device(layout, requests, spare);
  std::vector<std::unique_ptr<DeviceArray<int64_t>>> offsets;
  std::vector<SegmentsOfAxis> wanted;
  for (const Wanted& pair : pairs) {
    int64_t rows = spare * 70;
    for (const RequestData& request : requests) rows += request.rows[static_cast<size_t>(pair.ancestor)];
    offsets.push_back(std::make_unique<DeviceArray<int64_t>>(rows + 1, -1));
    wanted.push_back({pair.axis, pair.ancestor, rows, offsets.back()->data()});
  }
  const SegmentsLaunch launch(on_device.view(), parents, wanted);
  clear_counters();
  launch.launch({});
  std::vector<std::vector<int64_t>> results;
  for (const auto& array : offsets) results.push_back(array->read());
  expect_launches(launch.num_launches());
  EXPECT_EQ(launch.num_launches(), (static_cast<int>(pairs.size()) + 15) / 16);
  return results;
}

TEST(SegmentsKernel, GivesTheRowsOfEachAxisUnderEachAncestor) {
  const BatchLayout layout(nested_axes());
  for (const int64_t num_requests : {0, 1, 2, 9, 31, 40})
    for (const int64_t spare : {0, 3}) {
      std::mt19937 random(static_cast<uint32_t>(num_requests));
      std::vector<RequestData> requests;
      for (int64_t r = 0; r < num_requests; ++r) {
        requests.push_back(random_request(layout, r % 3 == 1 ? 0 : num_requests == 1 ? 7 : 3, random));
      }
      in_every_order(
          [&] {
            const auto results = run(layout, requests, spare);
            for (size_t i = 0; i < all_pairs.size(); ++i) {
              SCOPED_TRACE("requests " + std::to_string(num_requests) + ", pair " + std::to_string(i));
              std::vector<int64_t> expected = expected_offsets(requests, all_pairs[i]);
              expected.resize(results[i].size(), -1);
              EXPECT_EQ(results[i], expected);
            }
          },
          num_requests == 9    ? 20
          : num_requests == 31 ? 2
                               : 1);
    }
}

TEST(SegmentsKernel, TakesMorePairsThanALaunchHas) {
  const BatchLayout layout(nested_axes());
  std::mt19937 random(5);
  const std::vector<RequestData> requests = {random_request(layout, 3, random), random_request(layout, 5, random)};
  std::vector<Wanted> pairs;
  for (int i = 0; i < 33; ++i) pairs.push_back(all_pairs[static_cast<size_t>(i) % all_pairs.size()]);
  reset();
  const auto results = run(layout, requests, 0, pairs);
  for (size_t i = 0; i < pairs.size(); ++i) EXPECT_EQ(results[i], expected_offsets(requests, pairs[i])) << i;
}

TEST(SegmentsKernel, WritesNothingBeyondTheCapacity) {
  const BatchLayout layout(nested_axes());
  std::mt19937 random(3);
  const std::vector<RequestData> requests = {random_request(layout, 3, random), random_request(layout, 7, random)};
  const std::vector<int64_t> all = expected_offsets(requests, {5, 1});
  ASSERT_GT(all.size(), 4u);
  reset();
  const DeviceRequests on_device(layout, requests, 0);
  DeviceArray<int64_t> offsets(4, int64_t{-1});
  const SegmentsOfAxis wanted{5, 1, 3, offsets.data()};
  const SegmentsLaunch launch(on_device.view(), parents, {&wanted, 1});
  launch.launch({});
  EXPECT_EQ(offsets.read(), std::vector<int64_t>(all.begin(), all.begin() + 4));
}

/// One pair, with 20 to 40 rows of the ancestor for each request.
TEST(SegmentsCounts, SearchWithoutABarrier) {
  if constexpr (build != Build::plain) GTEST_SKIP() << "counted in the plain build";
  const BatchLayout layout(nested_axes());
  CountTable table({"requests", "blocks", "sectors read", "collectives", "sectors written"});
  for (const int64_t num_requests : {1, 16, 31, 32, 64}) {
    std::mt19937 random(1);
    std::vector<RequestData> requests;
    for (int64_t r = 0; r < num_requests; ++r) requests.push_back(random_request(layout, 40, random));
    Config config;
    config.count_sectors = true;
    reset(config);
    const std::vector<int64_t> offsets = run(layout, requests, 0, {{3, 1}})[0];
    EXPECT_EQ(offsets, expected_offsets(requests, {3, 1}));
    const Counters counted = counters();
    EXPECT_EQ(counted.barriers, 0);
    EXPECT_EQ(counted.atomics, 0);
    table.add(num_requests, counted.blocks, counted.global_load_sectors, counted.collectives,
              counted.global_store_sectors);
  }
}

#if !defined(__CUDACC__)
TEST(SegmentsCounts, OfTheLongestWarp) {
  if (build != Build::plain) return;
  const BatchLayout layout(nested_axes());
  CountTable table(longest_warp_columns({"requests"}));
  for (const int64_t num_requests : {1, 8})
    add_longest_warp(
        table,
        [&](const Config& config) {
          std::mt19937 random(1);
          std::vector<RequestData> requests;
          for (int64_t r = 0; r < num_requests; ++r) requests.push_back(random_request(layout, 40, random));
          reset(config);
          run(layout, requests, 0, {{3, 1}});
        },
        num_requests);
}
#endif

TEST(SegmentsKernelArguments, AreRefusedWhereTheyDoNotFit) {
  alignas(8) unsigned char bytes[8] = {};
  int64_t numbers[8] = {};
  const auto refusal =
      [&](const std::function<void(RequestBlobs&, std::vector<int>&, SegmentsOfAxis&)>& change) -> std::string {
    RequestBlobs requests;
    requests.bytes = bytes;
    requests.positions = requests.row_starts = numbers;
    requests.num_axes = 7;
    std::vector<int> of_axes = parents;
    SegmentsOfAxis wanted{6, 3, 4, numbers};
    change(requests, of_axes, wanted);
    try {
      SegmentsLaunch(requests, of_axes, {&wanted, 1});
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal([](auto&, auto&, auto&) {}), "nothing was thrown");
  EXPECT_EQ(refusal([](auto& r, auto&, auto&) { r.bytes = nullptr; }),
            "segments: blobs: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& r, auto&, auto&) { r.positions = nullptr; }),
            "segments: positions of blobs: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& r, auto&, auto&) { r.row_starts = nullptr; }),
            "segments: row starts: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& r, auto&, auto&) { r.num_requests.capacity = -1; }),
            "segments: number of requests: expected 0 or more, got -1");
  EXPECT_EQ(refusal([](auto&, auto& p, auto&) { p.pop_back(); }), "segments: parents: expected 7, got 6");
  EXPECT_EQ(refusal([](auto&, auto& p, auto&) { p[3] = 3; }),
            "segments: parent of axis 3: expected an axis before it, got 3");
  const std::string no_pair = ": expected an axis nested in another than the outermost, got another pair";
  EXPECT_EQ(refusal([](auto&, auto&, auto& w) { w.ancestor = 0; }), "segments of axis 6 under axis 0" + no_pair);
  EXPECT_EQ(refusal([](auto&, auto&, auto& w) { w.ancestor = 4; }), "segments of axis 6 under axis 4" + no_pair);
  EXPECT_EQ(refusal([](auto&, auto&, auto& w) { w.axis = 7; }), "segments of axis 7 under axis 3" + no_pair);
  EXPECT_EQ(refusal([](auto&, auto&, auto& w) { w.axis = 3; }), "segments of axis 3 under axis 3" + no_pair);
  EXPECT_EQ(refusal([](auto&, auto&, auto& w) { w.capacity = -1; }),
            "segments of axis 6 under axis 3: expected a capacity of 0 or more, got -1");
  EXPECT_EQ(refusal([](auto&, auto&, auto& w) { w.offsets = nullptr; }),
            "segments of axis 6 under axis 3: expected device memory, got null");
}

}  // namespace
