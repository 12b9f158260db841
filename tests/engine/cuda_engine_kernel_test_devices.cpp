// SPDX-License-Identifier: Apache-2.0
//
// Models of several devices that share tables. On a GPU these run where there are two cards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "engine/table_update_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/host.hpp"
#if !defined(__CUDACC__)
#include "simt/devices.hpp"
#endif

namespace warprank { namespace {

using namespace cuda_engine_testing;   // NOLINT: for models
using namespace table_update_testing;  // NOLINT: for tables and their weights
using test_support::message_of;
using testing::HasSubstr;

class CudaEngineDevices : public testing::Test {
 protected:
  void SetUp() override {
#if !defined(__CUDACC__)
    Config config;
    config.devices = 2;
    kernel_testing::reset(config);
#endif
    if (num_cuda_devices() < 2) GTEST_SKIP() << "needs two cards";
  }
  void TearDown() override { kernel_testing::reset(Config{}); }

  static LoadOptions of_both(Placement where, LoadOptions options = {}) {
    options.devices = {0, 1};
    options.placement = {{"*", {where, 0}}};
    return options;
  }
};

TEST_F(CudaEngineDevices, ScoreAsOneDoes) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("model " + std::to_string(seed));
    const RandomSetup alone(seed);
    Context expected = alone.model.context();
    const std::vector<PlainRequest> requests = random_requests(alone.plan, 5, seed);
    Batch batch = batch_of(alone.model, requests);
    const std::vector<float> scores = all_scores(alone.plan, expected.run(batch));
    for (const Placement where : {Placement::sharded, Placement::device, Placement::host}) {
      const Tables tables = Tables::load(alone.plan, alone.tables, cuda(), of_both(where));
      for (const int index : {0, 1}) {
        const Model model = Model::bind(alone.plan, alone.weights, tables.on(index));
        EXPECT_EQ(tables.on(index).device().index, index);
        Context context = model.context();
        Batch own = batch_of(model, requests);
        EXPECT_TRUE(same_bits(all_scores(alone.plan, context.run(own)), scores))
            << "device " << index << ", tables " << name_of_enum(where);
      }
    }
  }
}

TEST_F(CudaEngineDevices, RefuseAStreamOfAnotherBeforeAnythingIsQueued) {
  const RandomSetup setup(1);
  Context context = setup.model.context();
  Batch batch = batch_of(setup.model, random_requests(setup.plan, 2, 1));
  const std::vector<float> expected = all_scores(setup.plan, context.run(batch));
  const auto stream_of = [](int index) {
    const device::DeviceGuard current(index);
    return device::OwnedStream();
  };
  const device::OwnedStream own = stream_of(0), other = stream_of(1);
  EXPECT_EQ(message_of([&] { context.submit(batch, reinterpret_cast<StreamHandle>(other.get())); }),
            "stream: expected one of device 0, got one of another device");
  EXPECT_TRUE(same_bits(all_scores(setup.plan, context.submit(batch, reinterpret_cast<StreamHandle>(own.get())).wait()),
                        expected));
}

TEST_F(CudaEngineDevices, ScoreUnderUpdates) {
  std::vector<VersionedTable> tables{versioned_table("direct", DType::i8, 13, false, first_keys(60)),
                                     versioned_table("hashed", DType::f16, 8, true, first_keys(40)),
                                     versioned_table("on_each", DType::f32, 8, true, first_keys(40))};
  const Plan plan = plan_of(tables);
  LoadOptions options;
  options.updatable = true;
  options = of_both(Placement::sharded, options);
  options.placement.insert(options.placement.begin(), {"on_each", {Placement::device, 0}});
  Tables loaded[] = {Tables::load(plan, weights_of(tables), cuda(1), options),
                     Tables::load(plan, weights_of(tables), host(), options)};
  std::vector<Context> contexts;
  contexts.push_back(Model::bind(plan, Weights::from_tensors({}), loaded[0]).context());
  contexts.push_back(Model::bind(plan, Weights::from_tensors({}), loaded[0].on(0)).context());
  contexts.push_back(Model::bind(plan, Weights::from_tensors({}), loaded[1].on(1)).context());
  Batch batch = plan.batch();
  Request request = batch.add_request();
  for (const VersionedTable& table : tables) request.ids(plan.ids("id_" + table.name), first_keys(64));
  const auto expect_one_of = [&](const Scores& scores, const std::vector<VersionedTable>& before) {
    for (size_t t = 0; t < tables.size(); ++t) {
      const Matrix<const float> rows = scores["y_" + tables[t].name].all();
      for (int64_t key = 0; key < 64; ++key) {
        const Row row(rows.row(key), rows.row(key) + rows.cols);
        EXPECT_TRUE(row == before[t].expected(key) || row == tables[t].expected(key)) << tables[t].name << key;
      }
    }
  };
  std::mt19937_64 random(1);
  for (int64_t version = 1; version <= 4; ++version) {
    const std::vector<VersionedTable> before = tables;
    std::vector<Pending> pending;
    for (Context& context : contexts) pending.push_back(context.submit(batch));
    const TestUpdate update = random_update(tables, version, random);
    EXPECT_EQ(loaded[0].on(static_cast<int>(version % 2)).update(update.weights()), update.report);
    EXPECT_EQ(loaded[1].update(update.weights()), update.report);
    for (Pending& one : pending) expect_one_of(one.wait(), before);
    for (Context& context : contexts) expect_one_of(context.run(batch), tables);
  }
}

#if !defined(__CUDACC__)
TEST_F(CudaEngineDevices, AreGivenAsTheDocumentSays) {
  Config config;
  config.devices = 4;
  kernel_testing::reset(config);
  const std::vector<VersionedTable> users{versioned_table("user_id", DType::f32, 4, true, first_keys(200))};
  const Plan plan = plan_of(users);
  const Weights rows = weights_of(users), weights = Weights::from_tensors({});
  warprank::LoadOptions options;
  options.devices = {0, 1, 2, 3};
  options.placement = {{"user_*", {warprank::Placement::sharded, 0}}};
  const Tables tables = Tables::load(plan, rows, cuda(0), options);
  std::vector<Model> models;
  for (const int card : options.devices) models.push_back(Model::bind(plan, weights, tables.on(card)));
  for (const int card : options.devices) EXPECT_GT(simt::allocated_bytes(card), 200 * 16 / 4);
}
#endif

TEST_F(CudaEngineDevices, AreThoseOfTheTables) {
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 4, true, first_keys(5))};
  const Plan plan = plan_of(tables);
  const Tables both = Tables::load(plan, weights_of(tables), cuda(), of_both(Placement::sharded)),
               one = Tables::load(plan, weights_of(tables), cuda(1));
  EXPECT_EQ(message_of([&] { both.on(2); }), "Tables::on: expected one of LoadOptions::devices, got 2");
  EXPECT_EQ(message_of([&] { one.on(0); }), "Tables::on: expected one of LoadOptions::devices, got 0");
  EXPECT_EQ(one.on(1).device().index, 1);
  EXPECT_EQ(both.on(1).on(0).store(), both.store());
  Context context = Model::bind(plan, Weights::from_tensors({}), both).context();
  EXPECT_THAT(message_of([&] { context.rebind(Model::bind(plan, Weights::from_tensors({}), both.on(1))); }),
              HasSubstr("a model of the context's engine and device"));
}

}}  // namespace warprank
