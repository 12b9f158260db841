// SPDX-License-Identifier: Apache-2.0

/// Ids and dense inputs that the look-up kernel reads out of requests.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/embedding_bag_testing.hpp"
#include "support/counts.hpp"
#include "support/kernel_testing.hpp"
#include "support/plain_request.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/ops/embedding_bag.cuh"
#if !defined(__CUDACC__)
#include "support/longest_warp.hpp"
#endif

namespace warprank { namespace {

using namespace embedding_bag_testing;  // NOLINT: written for these tests

/// A batch in device memory, read as an engine does: by the address of its index.
class DeviceRequests {
 public:
  explicit DeviceRequests(Batch& batch) {
    batch.close();
    const BatchLayout& layout = batch.layout();
    const BatchIndex& index = batch.index();
    const auto* begin = reinterpret_cast<const unsigned char*>(batch.bytes().data());
    std::vector<unsigned char> bytes(begin, begin + batch.bytes().size());
    const int64_t index_at = batch.bytes().size() - index.bytes();
    const auto poison = [&](int64_t position, int64_t count) {
      std::memset(bytes.data() + index_at + position, 0xa5, static_cast<size_t>(8 * count));
    };
    const int64_t scored = batch.num_scored(), unused = index.max_requests() - scored;
    poison(index.positions_at() + 8 * scored, unused);
    for (int axis = 0; axis < static_cast<int>(layout.axes().size()); ++axis) {
      poison(index.row_starts_at({axis}) + 8 * (scored + 1), unused);
    }
    bytes_ = std::make_unique<DeviceArray<unsigned char>>(bytes);
    const unsigned char* at = bytes_->data() + index_at;
    const auto longs_at = [&](int64_t position) { return reinterpret_cast<const int64_t*>(at + position); };
    view_.bytes = at;
    view_.positions = longs_at(index.positions_at());
    view_.row_starts = longs_at(index.row_starts_at({0}));
    view_.row_starts_stride = index.max_requests() + 1;
    view_.num_requests = {std::min(index.max_requests(), scored + 1), longs_at(0)};
    view_.num_axes = static_cast<int>(layout.axes().size());
    view_.num_ids = static_cast<int>(layout.ids().size());
    view_.num_dense = static_cast<int>(layout.dense().size());
  }
  const RequestBlobs& view() const { return view_; }

 private:
  std::unique_ptr<DeviceArray<unsigned char>> bytes_;
  RequestBlobs view_;
};

/// Room for more requests in the index than there are.
constexpr int64_t max_requests = 9;

// ---- Ids

/// In which types the requests to a shop hold its ids and its weights.
struct ShopTypes {
  IdsWire ids = IdsWire::i64;
  DenseWire weights = DenseWire::f32;
};

/// Users, their items and histories, the tags of items.
Graph shop(ShopTypes types = {}) {
  Graph graph;
  graph.axes = {{"user", -1, 0}, {"item", 0, 0}, {"history", 0, 0}, {"tag", 1, 0}};
  graph.ids = {{"user_id", 0, {}, {}}, {"item_id", 1, 3, {}}, {"seen", 2, {}, {}}, {"tag_id", 3, 5, {}}};
  graph.dense = {{"age", 2, 1, {}}, {"tag_weights", 3, 2, 0.75f}};
  for (IdsInfo& info : graph.ids) {
    info.wire = types.ids;
    info.out_of_range = OutOfRange::saturate;  // no rows have such ids, before and after
  }
  for (DenseInfo& info : graph.dense) info.wire = types.weights;
  return graph;
}

test_support::PlainRequest shop_request(const std::vector<int64_t>& tags, int64_t history, bool sets_optional,
                                        const TestTable& table, std::mt19937_64& random) {
  test_support::PlainRequest request;
  const auto items = static_cast<int64_t>(tags.size()),
             num_tags = std::accumulate(tags.begin(), tags.end(), int64_t{0});
  request.lengths = {{"item", {items}}, {"history", {history}}, {"tag", tags}};
  request.ids = {{"user_id", table.ids(1, false, random)}, {"seen", table.ids(history, false, random)}};
  request.dense["age"] = normals(history, random);
  if (sets_optional) {
    request.ids["item_id"] = table.ids(items, false, random);
    request.ids["tag_id"] = table.ids(num_tags, false, random);
    request.dense["tag_weights"] = normals(2 * num_tags, random);
  } else {
    request.dense["tag_weights"] = normals(2 * num_tags, random);  // or the axis would have no input
    request.ids["tag_id"] = table.ids(num_tags, false, random);
    if (num_tags > 0) request.dense.erase("tag_weights");
  }
  return request;
}

/// A value of a dense input as a kernel sees it.
float as_sent(float value, DenseWire type) {
  return type == DenseWire::f32   ? value
         : type == DenseWire::f16 ? to_float(to_float16(value))
                                  : to_float(to_bfloat16(value));
}

/// Looks up all that requests to the shop have, in `num_orders` orders.
void expect_ids_are_read(const std::shared_ptr<const TestTable>& table,
                         const std::vector<test_support::PlainRequest>& requests, std::mt19937_64& random,
                         int num_orders, ShopTypes types = {}) {
  const BatchLayout layout(shop(types));
  // A feature's bags as they are in all requests: lengths of `segments` or, when it is empty, each row.
  const auto bags_of = [&](const std::string& input, const std::string& segments, const std::string& weights, int width,
                           Pooling pooling, int64_t default_id) {
    TestBags bags;
    bags.table = table;
    bags.pooling = pooling;
    for (const auto& request : requests) {
      const std::string axis = input == "item_id"  ? "item"
                               : input == "seen"   ? "history"
                               : input == "tag_id" ? "tag"
                                                   : "";
      int64_t rows = 1;
      if (!axis.empty()) {
        const auto& lengths = request.lengths.at(axis);
        rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
      }
      const auto ids = request.ids.find(input);
      for (int64_t i = 0; i < rows; ++i) {
        bags.ids.push_back(ids == request.ids.end() ? default_id : ids->second[static_cast<size_t>(i)]);
        if (segments.empty()) bags.offsets.push_back(bags.offsets.back() + 1);
      }
      if (!segments.empty()) {
        for (const int64_t length : request.lengths.at(segments)) bags.offsets.push_back(bags.offsets.back() + length);
      }
      if (weights.empty()) continue;
      const auto values = request.dense.find(weights);
      for (int64_t i = 0; i < rows; ++i) {
        bags.weights.push_back(
            values == request.dense.end()
                ? 0.75f
                : as_sent(values->second[static_cast<size_t>(i * width + width - 1)], types.weights));
      }
    }
    return bags;
  };
  std::vector<TestBags> all{bags_of("user_id", "", "", 1, Pooling::none, 0),
                            bags_of("item_id", "", "", 1, Pooling::none, 3),
                            bags_of("seen", "history", "age", 1, Pooling::sqrtn, 0),
                            bags_of("tag_id", "tag", "", 1, Pooling::max, 5),
                            bags_of("tag_id", "tag", "tag_weights", 2, Pooling::sum, 5),
                            bags_of("seen", "history", "", 1, Pooling::sum, 0),
                            bags_of("seen", "history", "age", 1, Pooling::mean, 0),
                            bags_of("tag_id", "tag", "tag_weights", 2, Pooling::mean, 5),
                            bags_of("item_id", "", "", 1, Pooling::sum, 3),
                            bags_of("tag_id", "tag", "", 1, Pooling::mean, 5),
                            bags_of("item_id", "", "", 1, Pooling::max, 3)};
  const int inputs[] = {0, 1, 2, 3, 3, 2, 2, 3, 1, 3, 1}, axes[] = {0, 1, 2, 3, 3, 2, 2, 3, 1, 3, 1},
            parents[] = {-1, -1, 0, 1, 1, 0, 0, 1, -1, 1, -1}, weights[] = {-1, -1, 0, -1, 1, -1, -1, -1, -1, -1, -1};
  constexpr size_t first_computed = 6, last_computed = 8;
  for (size_t i = first_computed; i <= last_computed;
       ++i) {  // weights that were computed, for each row of the batch; some are half
    all[i].weights = normals(static_cast<int64_t>(all[i].ids.size()), random);
    if (i == 6) continue;
    for (float& weight : all[i].weights) weight = to_float(to_float16(weight));
  }
  const auto run = [&] {
    Batch batch(layout, {}, std::max(max_requests, static_cast<int64_t>(requests.size()) + 3));
    for (size_t r = 0; r < requests.size(); ++r) {
      const Status status = add_to(batch, requests[r]).status();
      EXPECT_TRUE(status.ok()) << status.message;
      if (r == 1) {  // a wrong request between the others has no place in the index
        Request wrong = batch.add_request();
        wrong.finish();
        EXPECT_FALSE(wrong.status().ok());
      }
    }
    const DeviceRequests device_requests(batch);
    std::vector<std::unique_ptr<DeviceMatrix<float>>> floats;
    std::vector<std::unique_ptr<DeviceMatrix<float16>>> halves;
    for (size_t i = 0; i < all.size(); ++i) {
      BlobIds blob;
      blob.requests = device_requests.view();
      blob.input = inputs[i];
      blob.axis = axes[i];
      blob.parent = parents[i];
      blob.num_ids.capacity = static_cast<int64_t>(all[i].ids.size()) + 10;
      if (inputs[i] == 1) blob.default_id = 3;
      if (inputs[i] == 3) blob.default_id = 5;
      blob.weights_input = weights[i];
      blob.weights_width = weights[i] == 1 ? 2 : 1;
      blob.weights_column = blob.weights_width - 1;
      blob.wire = types.ids;
      blob.weights_wire = types.weights;
      blob.default_weight = 0.75f;
      const auto rows = static_cast<int64_t>(all[i].ids.size());
      if (i == 6) {
        floats.push_back(std::make_unique<DeviceMatrix<float>>(all[i].weights, rows, 1, 3, 2));
        blob.weights = Matrix<const float>(floats.back()->view());
      } else if (first_computed < i && i <= last_computed) {
        std::vector<float16> rounded;
        for (const float weight : all[i].weights) rounded.push_back(to_float16(weight));
        halves.push_back(std::make_unique<DeviceMatrix<float16>>(rounded, rows, 1, i == 7 ? 1 : 5, 1));
        blob.weights = Matrix<const float16>(halves.back()->view());
      }
      blob.weights.rows = i == 8 ? all[i].num_bags() + 7 : blob.num_ids.capacity;  // the capacity
      all[i].blob = blob;
      all[i].spare_bags = 7;
    }
    const DeviceBags device(all);
    device.launch();
    std::vector<unsigned char> bytes = device.bytes();
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE("feature " + std::to_string(i));
      expect_right(all[i], device.result(i));
    }
    return bytes;
  };
  EXPECT_FALSE(in_every_order(run, num_orders).empty());
}

void expect_ids_are_read(ShopTypes types) {
  std::mt19937_64 random(8);
  const auto table = std::make_shared<TestTable>(DType::f16, 12, 40, true, 0, random);
  std::vector<test_support::PlainRequest> requests;
  requests.push_back(shop_request({3, 0, 1, 40, 2}, 10, true, *table, random));
  requests.push_back(shop_request({}, 0, true, *table, random));
  requests.push_back(shop_request({2, 2, 2 * piece + 9, 0}, 2 * piece + 1, true, *table, random));
  requests.push_back(shop_request({0, 4, 1}, 50, false, *table, random));
  requests.push_back(shop_request({1}, 1, true, *table, random));
  expect_ids_are_read(table, requests, random, kernel_testing::build == Build::plain ? 10 : 3, types);
}

TEST(EmbeddingBagRequestsKernel, ReadsIdsInRequests) { expect_ids_are_read({}); }

TEST(EmbeddingBagRequestsKernel, ReadsIdsOf32BitsAndWeightsOf16) {
  expect_ids_are_read({IdsWire::i32, DenseWire::f16});
  expect_ids_are_read({IdsWire::i32, DenseWire::bf16});
}

TEST(EmbeddingBagRequestsKernel, ReadsIdsInMoreRequestsThanAWarpHasLanes) {
  std::mt19937_64 random(18);
  // Of rows so wide a block takes 4 bags at once, so that there are blocks that begin with later requests, too.
  const auto table = std::make_shared<TestTable>(DType::f16, 256, 40, true, 0, random);
  std::vector<test_support::PlainRequest> requests;
  for (int r = 0; r < 75; ++r) {
    const int64_t items = r % 13;
    requests.push_back(
        shop_request(std::vector<int64_t>(static_cast<size_t>(items), r % 3), r % 5, r % 7 != 0, *table, random));
  }
  expect_ids_are_read(table, requests, random, kernel_testing::build == Build::plain ? 3 : 1);
}

// ---- Dense inputs

struct DenseInput {
  std::string name, axis;
  int64_t width;
  float default_value;
};
/// Of every axis, with widths below, at and above those of a warp and of a window.
const std::vector<DenseInput> dense_inputs{
    {"user_1", "user", 1, -2.5f},    {"user_40", "user", 40, 0},     {"item_1", "item", 1, 1},
    {"item_13", "item", 13, 3},      {"item_32", "item", 32, -0.0f}, {"item_33", "item", 33, 0.1f},
    {"item_300", "item", 300, 1e6f}, {"tag_2", "tag", 2, 0x1p-20f},  {"tag_31", "tag", 31, 7}};

Graph dense_graph(DenseWire type) {
  Graph graph;
  graph.axes = {{"user", -1, 0}, {"item", 0, 0}, {"tag", 1, 0}};
  graph.ids = {{"item_id", 1, {}, {}}, {"tag_id", 2, {}, {}}};
  for (const DenseInput& input : dense_inputs) {
    const int axis = input.axis == "user" ? 0 : input.axis == "item" ? 1 : 2;
    graph.dense.push_back({input.name, axis, input.width, input.default_value, type, OutOfRange::saturate});
  }
  return graph;
}

/// Requests that set an input or not as the seed has it, and the values of each input in all of them.
struct DenseRequests {
  DenseRequests(const std::vector<std::vector<int64_t>>& tags_of_items, uint64_t seed, DenseWire type = DenseWire::f32)
      : type(type) {
    std::mt19937_64 random(seed);
    for (const std::vector<int64_t>& tags : tags_of_items) {
      test_support::PlainRequest request;
      const auto items = static_cast<int64_t>(tags.size());
      const int64_t num_tags = std::accumulate(tags.begin(), tags.end(), int64_t{0});
      request.lengths = {{"item", {items}}, {"tag", tags}};
      request.ids["item_id"].assign(static_cast<size_t>(items), 0);
      request.ids["tag_id"].assign(static_cast<size_t>(num_tags), 0);
      for (size_t i = 0; i < dense_inputs.size(); ++i) {
        const DenseInput& input = dense_inputs[i];
        const int64_t rows = input.axis == "user" ? 1 : input.axis == "item" ? items : num_tags;
        std::vector<float> set(static_cast<size_t>(rows * input.width), input.default_value);
        if (random() % 4 != 0) {
          set = normals(rows * input.width, random);
          if (!set.empty()) set[random() % set.size()] = special[random() % special.size()];
          request.dense[input.name] = set;
          for (float& value : set) value = as_sent(type == DenseWire::f16 ? finite_half(value) : value, type);
        }
        std::vector<float>& all = values[i];
        all.insert(all.end(), set.begin(), set.end());
      }
      requests.push_back(request);
    }
  }

  static float finite_half(float value) { return std::clamp(value, -max_float16, max_float16); }

  DenseWire type;
  /// What a copy must keep.
  const std::vector<float> special{-0.0f, 0x1p-149f, -0x1p-140f, 3e38f, 65519, 65520};
  std::vector<test_support::PlainRequest> requests;
  std::vector<std::vector<float>> values{dense_inputs.size()};
};

/// Bit for bit.
template <class Value>
bool begins_with(const std::vector<Value>& values, const std::vector<Value>& expected) {
  return expected.empty() || std::memcmp(values.data(), expected.data(), expected.size() * sizeof(Value)) == 0;
}

/// Copies every input to half and to float, at columns of wider rows; gives all bytes of the outputs, and checks them.
std::vector<unsigned char> copy_dense(const DenseRequests& from) {
  Batch batch(BatchLayout(dense_graph(from.type)), {}, max_requests);
  for (size_t r = 0; r < from.requests.size(); ++r) {
    const Status status = add_to(batch, from.requests[r]).status();
    EXPECT_TRUE(status.ok()) << status.message;
    if (r == 0) {  // without ids: refused, and not copied
      EXPECT_FALSE(test_support::add_to(batch, {{{"item", {3}}, {"tag", {0, 0, 0}}}, {}, {}}).status().ok());
    }
  }
  const DeviceRequests device(batch);
  std::vector<BagFeature> features;
  std::vector<std::unique_ptr<DeviceMatrix<float>>> floats;
  std::vector<std::unique_ptr<DeviceMatrix<float16>>> halves;
  constexpr int64_t spare = 5;
  for (size_t i = 0; i < dense_inputs.size(); ++i) {
    const int64_t width = dense_inputs[i].width, rows = static_cast<int64_t>(from.values[i].size()) / width + spare;
    const auto column = static_cast<int64_t>(i) % 3, gap = static_cast<int64_t>(i) % 4;
    floats.push_back(std::make_unique<DeviceMatrix<float>>(rows, width, column + width + gap, column));
    halves.push_back(std::make_unique<DeviceMatrix<float16>>(rows, width, gap + width + column, gap));
    BlobDense dense;
    dense.requests = device.view();
    dense.input = static_cast<int>(i);
    dense.axis = dense_inputs[i].axis == "user" ? 0 : dense_inputs[i].axis == "item" ? 1 : 2;
    dense.default_value = dense_inputs[i].default_value;
    dense.wire = from.type;
    BagFeature feature;
    feature.ids = dense;
    feature.table.dim = width;
    feature.num_bags.capacity = rows;
    feature.y = floats.back()->view();
    features.push_back(feature);
    feature.y = halves.back()->view();
    features.push_back(feature);
  }
  const EmbeddingBag op(features);
  DeviceArray<unsigned char> descriptors(op.descriptors());
  DeviceArray<unsigned char> workspace(op.workspace_bytes(), 0);
  op.launch({descriptors.data(), workspace.data()});
  std::vector<unsigned char> bytes;
  for (size_t i = 0; i < dense_inputs.size(); ++i) {
    SCOPED_TRACE(dense_inputs[i].name);
    const std::vector<float>& expected = from.values[i];
    std::vector<float16> rounded;
    for (const float value : expected)  // what is finite stays finite
      rounded.push_back(to_float16(std::isfinite(value) ? std::clamp(value, -max_float16, max_float16) : value));
    const std::vector<float> y = floats[i]->read();
    const std::vector<float16> half_y = halves[i]->read();
    EXPECT_TRUE(begins_with(y, expected));
    EXPECT_TRUE(begins_with(half_y, rounded));
    // NaN is what a matrix holds before it is written.
    EXPECT_TRUE(std::all_of(y.begin() + static_cast<int64_t>(expected.size()), y.end(),
                            [](float value) { return std::isnan(value); }));
    const auto* begin = reinterpret_cast<const unsigned char*>(y.data());
    bytes.insert(bytes.end(), begin, begin + y.size() * sizeof(float));
    begin = reinterpret_cast<const unsigned char*>(half_y.data());
    bytes.insert(bytes.end(), begin, begin + half_y.size() * sizeof(float16));
  }
  return bytes;
}

TEST(EmbeddingBagRequestsKernel, CopiesDenseInputsOf16Bits) {
  for (const DenseWire type : {DenseWire::f16, DenseWire::bf16}) {
    const DenseRequests ragged({{3, 0, 1}, {}, {0}, std::vector<int64_t>(37, 1), {7, 2}, {40}}, 1, type);
    const int seeds = kernel_testing::build == Build::plain ? 10 : 2;
    EXPECT_FALSE(in_every_order([&] { return copy_dense(ragged); }, seeds).empty());
    for (uint64_t seed = 2; seed < 5; ++seed) {
      reset();
      copy_dense(DenseRequests({{}, {1}, {2, 2}, std::vector<int64_t>(150, 0)}, seed, type));
    }
  }
}

TEST(EmbeddingBagRequestsKernel, CopiesDenseInputsAsTheyAre) {
  const DenseRequests ragged({{3, 0, 1}, {}, {0}, std::vector<int64_t>(37, 1), {7, 2}, {40}}, 1);
  const int seeds = kernel_testing::build == Build::plain ? 20 : 2;
  EXPECT_FALSE(in_every_order([&] { return copy_dense(ragged); }, seeds).empty());
  for (const std::vector<std::vector<int64_t>>& sizes : std::vector<std::vector<std::vector<int64_t>>>{
           {}, {{}}, {{1}}, {{}, {}, {2, 2}}, {std::vector<int64_t>(150, 0)}}) {
    for (uint64_t seed = 2; seed < 5; ++seed) {
      reset();
      copy_dense(DenseRequests(sizes, seed));
    }
  }
}

TEST(EmbeddingBagRequestsKernel, TakesFeaturesOfSeveralBatches) {
  reset();
  std::mt19937_64 random(19);
  const auto table = std::make_shared<TestTable>(DType::f16, 8, 40, true, 0, random);
  std::vector<TestBags> all;
  std::vector<std::unique_ptr<DeviceRequests>> batches;
  for (int64_t items = 1; items < 4; ++items) {
    Batch batch(BatchLayout(shop()), {}, max_requests);
    const auto request = shop_request(std::vector<int64_t>(static_cast<size_t>(items), 1), 1, true, *table, random);
    ASSERT_TRUE(add_to(batch, request).status().ok());
    batches.push_back(std::make_unique<DeviceRequests>(batch));
    TestBags bags = make_bags(table, false, Form::each, std::vector<int64_t>(static_cast<size_t>(items), 1),
                              Pooling::none, 0, random);
    all.push_back(bags);  // from an array
    bags.ids = request.ids.at("item_id");
    bags.blob.emplace();
    bags.blob->requests = batches.back()->view();
    bags.blob->input = bags.blob->axis = 1;
    bags.blob->num_ids.capacity = items;
    all.push_back(bags);
  }
  expect_right(all);
  EXPECT_EQ(DeviceBags(all).op().num_launches(), 3);
}

TEST(EmbeddingBagRequestsKernel, RequestsLittleMoreThanTheDenseValues) {
  if (kernel_testing::build != Build::plain) GTEST_SKIP() << "counted once, by the executor's plain build";
#if !defined(__CUDACC__)
  constexpr int64_t items = 1000;
  for (const int64_t width : {1, 13, 32, 64, 300}) {
    Graph graph;
    graph.axes = {{"user", -1, 0}, {"item", 0, 0}};
    graph.dense = {{"x", 1, width, {}}};
    Config config;
    config.count_sectors = true;
    reset(config);
    std::mt19937_64 random(1);
    Batch batch(BatchLayout(graph), {}, max_requests);
    for (int r = 0; r < 2; ++r) {
      test_support::PlainRequest request;
      request.lengths = {{"item", {items / 2}}};
      request.dense["x"] = normals(items / 2 * width, random);
      EXPECT_TRUE(add_to(batch, request).status().ok());
    }
    const DeviceRequests device(batch);
    const int64_t stride = (width + 15) / 16 * 16;  // rows of half begin at a sector
    DeviceMatrix<float16> y(items, width, stride);
    BagFeature feature;
    BlobDense dense;
    dense.requests = device.view();
    dense.axis = 1;
    feature.ids = dense;
    feature.table.dim = width;
    feature.num_bags.capacity = items;
    feature.y = y.view();
    const EmbeddingBag op({&feature, 1});
    const DeviceArray<unsigned char> descriptors(op.descriptors());
    clear_counters();
    op.launch({descriptors.data()});
    kernel_testing::synchronize();
    const auto loads = static_cast<double>(counters().global_load_sectors),
               stores = static_cast<double>(counters().global_store_sectors);
    const auto least_loads = static_cast<double>(items * width * 4) / 32,
               least_stores = static_cast<double>(items * ((width * 2 + 31) / 32));
    std::printf("dense input of width %d: %.3f of the least sectors loaded, %.3f stored\n", static_cast<int>(width),
                loads / least_loads, stores / least_stores);
    EXPECT_EQ(counters().atomics, 0);
    if (width < 13) continue;  // finding 32 rows is most of it: 4 sectors
    EXPECT_LE(loads, (width < 32 ? 1.15 : 1.1) * least_loads);
    EXPECT_GE(loads, least_loads);
    // Where rows are cut by windows, the executor takes lanes that skip one for others' next one: more than there are.
    if (width % 32 == 0) {
      EXPECT_EQ(stores, least_stores);
    }
  }
#endif
}

#if !defined(__CUDACC__)
/// Of requests of one user, 100 items and 50 events: an id of each, the events' rows added.
TEST(EmbeddingBagCounts, OfTheLongestWarp) {
  if (kernel_testing::build != Build::plain) return;
  constexpr int64_t items = 100, events = 50;
  Graph graph;
  graph.axes = {{"user", -1, 0}, {"item", 0, 0}, {"history", 0, 0}};
  graph.ids = {{"user_id", 0, {}, {}}, {"item_id", 1, {}, {}}, {"seen", 2, {}, {}}};
  const BatchLayout layout(graph);
  CountTable table(longest_warp_columns({"requests", "dim"}));
  for (const auto& [num_requests, dim] : std::vector<std::pair<int64_t, int64_t>>{{1, 16}, {1, 64}, {4, 16}}) {
    std::mt19937_64 random(1);
    const auto rows = std::make_shared<TestTable>(DType::f16, dim, 500, false, 0, random);
    const auto ids = [&](int64_t count) {
      std::vector<int64_t> all(static_cast<size_t>(count));
      for (int64_t& id : all) id = static_cast<int64_t>(random() % 500);
      return all;
    };
    test_support::PlainRequest request;
    request.lengths = {{"item", {items}}, {"history", {events}}};
    request.ids = {{"user_id", ids(1)}, {"item_id", ids(items)}, {"seen", ids(events)}};
    const int64_t lengths[] = {1, 1, events}, bags_of_request[] = {1, items, 1};
    const int parents[] = {-1, -1, 0};
    const auto run = [&, count = num_requests](const Config& config) {
      reset(config);
      Batch batch(layout, {}, max_requests);
      for (int64_t r = 0; r < count; ++r) EXPECT_TRUE(add_to(batch, request).status().ok());
      const DeviceRequests requests(batch);
      std::vector<TestBags> all(3);
      for (int input = 0; input < 3; ++input) {
        TestBags& bags = all[static_cast<size_t>(input)];
        bags.table = rows;
        bags.pooling = parents[input] < 0 ? Pooling::none : Pooling::sum;
        bags.half_output = true;
        for (int64_t b = 0; b < count * bags_of_request[input]; ++b)
          bags.offsets.push_back(bags.offsets.back() + lengths[input]);
        bags.ids.resize(static_cast<size_t>(bags.offsets.back()));
        bags.blob.emplace();
        bags.blob->requests = requests.view();
        bags.blob->input = bags.blob->axis = input;
        bags.blob->parent = parents[input];
        bags.blob->num_ids.capacity = bags.offsets.back();
      }
      const DeviceBags bags(all);
      bags.launch();
      kernel_testing::synchronize();
    };
    add_longest_warp(table, run, num_requests, dim);
  }
}
#endif

// ---- Bad input

TEST(EmbeddingBagRequestsKernel, RefusesWhatDoesNotFit) {
  reset();
  std::mt19937_64 random(13);
  const auto table = std::make_shared<TestTable>(DType::i8, 8, 20, true, 0, random);
  const TestBags good = make_bags(table, false, Form::offsets, {3, 2}, Pooling::mean, 1, random);
  using Change = std::function<void(BagFeature&)>;
  const auto with_blob = [](const std::function<void(BlobIds&)>& change) -> Change {
    return [change](BagFeature& f) {
      BlobIds blob;
      const auto* longs = f.num_bags.actual;
      blob.requests = {reinterpret_cast<const unsigned char*>(longs), longs, longs, 4, {2, nullptr}, 3, 2, 1};
      blob.axis = 2;
      blob.parent = 1;
      change(blob);
      f.ids = blob;
    };
  };
  expect_refused(good, "number of requests", with_blob([](BlobIds& b) { b.requests.num_requests.capacity = -1; }));
  expect_refused(good, "blobs", with_blob([](BlobIds& b) { b.requests.bytes += 4; }));
  expect_refused(good, "positions of blobs", with_blob([](BlobIds& b) { b.requests.positions = nullptr; }));
  expect_refused(good, "row starts", with_blob([](BlobIds& b) { b.requests.row_starts = nullptr; }));
  expect_refused(good, "more than the 2 requests, got 2",
                 with_blob([](BlobIds& b) { b.requests.row_starts_stride = 2; }));
  expect_refused(good, "number of ids", with_blob([](BlobIds& b) { b.num_ids.capacity = -1; }));
  expect_refused(good, "ids input: expected 0 to 1, got 2", with_blob([](BlobIds& b) { b.input = 2; }));
  expect_refused(good, "axis of the ids: expected 0 to 2, got 3", with_blob([](BlobIds& b) { b.axis = 3; }));
  expect_refused(good, "axis of the bags: expected 0 to 1, got 2", with_blob([](BlobIds& b) { b.parent = 2; }));
  const DeviceMatrix<float16> column(4, 1);
  const auto with_weights = [&](const std::function<void(BlobIds&)>& change) {
    return with_blob([&, change](BlobIds& b) {
      b.num_ids.capacity = 4;
      b.weights = Matrix<const float16>(const_cast<DeviceMatrix<float16>&>(column).view());
      change(b);
    });
  };
  expect_refused(good, "weights: expected [5, 1], got [4, 1]",
                 with_weights([](BlobIds& b) { b.num_ids.capacity = 5; }));
  expect_refused(good, "weights: expected [4, 1], got [4, 2]", with_weights([](BlobIds& b) { b.weights.cols = 2; }));
  expect_refused(good, "weights: expected F16 or F32", with_weights([](BlobIds& b) { b.weights.type = DType::bf16; }));
  expect_refused(good, "an input or a matrix, got both", with_weights([](BlobIds& b) { b.weights_input = 0; }));
  expect_refused(good, "weights input: expected 0 to 0, got 1", with_blob([](BlobIds& b) { b.weights_input = 1; }));
  expect_refused(good, "weights column: expected 0 to 0, got 1", with_blob([](BlobIds& b) {
                   b.weights_input = 0;
                   b.weights_column = 1;
                 }));
  const auto with_dense = [&](const std::function<void(BagFeature&, BlobDense&)>& change) -> Change {
    return [=](BagFeature& f) {
      with_blob([](BlobIds&) {})(f);
      BlobDense dense;
      dense.requests = std::get<BlobIds>(f.ids).requests;
      const auto y = std::get<Matrix<float>>(f.y);
      f = {};
      f.table.dim = 8;
      f.num_bags.capacity = 2;
      f.y = y;
      change(f, dense);
      f.ids = dense;
    };
  };
  using Dense = BlobDense;
  expect_refused(good, "dim: expected 1", with_dense([](BagFeature& f, Dense&) { f.table.dim = 0; }));
  expect_refused(good, "9 columns", with_dense([](BagFeature& f, Dense&) { f.table.dim = 9; }));
  expect_refused(good, "dense input: expected 0 to 0, got 1", with_dense([](BagFeature&, Dense& d) { d.input = 1; }));
  expect_refused(good, "axis of the values: expected 0 to 2", with_dense([](BagFeature&, Dense& d) { d.axis = -1; }));
  expect_refused(good, "row starts", with_dense([](BagFeature&, Dense& d) { d.requests.row_starts = nullptr; }));
  expect_refused(good, "pooling none, got sum", with_dense([](BagFeature& f, Dense&) { f.pooling = Pooling::sum; }));
  expect_refused(good, "no table", with_dense([](BagFeature& f, Dense&) { f.hashed.emplace(); }));
  LookupCounters counters;
  expect_refused(good, "no counters", with_dense([&](BagFeature& f, Dense&) { f.counters = &counters; }));
  expect_refused(good, "with positions of blobs of feature 0", with_dense([](BagFeature& f, Dense& d) {
                   std::get<Matrix<float>>(f.y).data =
                       reinterpret_cast<float*>(const_cast<int64_t*>(d.requests.positions));
                 }));
}

}}  // namespace warprank
