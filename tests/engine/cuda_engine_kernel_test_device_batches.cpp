// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: batches whose blobs lie in the device's memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/cuda.hpp"
#include "warprank/device/runtime.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches
using test_support::message_of;

/// The same rows with other values.
std::vector<PlainRequest> with_other_values(std::vector<PlainRequest> requests) {
  for (PlainRequest& request : requests) {
    for (auto& [name, ids] : request.ids) std::reverse(ids.begin(), ids.end());
    for (auto& [name, values] : request.dense)
      for (float& value : values) value = 0.25f - value;
  }
  return requests;
}

/// A batch on the device with the values of another, which differs in nothing else: as kernels would write them.
class Rewritten {
 public:
  Rewritten(const Batch& batch, const Batch& other, device::Stream stream)
      : memory_(batch.blobs().size(), "a test"), on_device_(batch, memory_.data()) {
    if (batch.blobs().size() == 0) return;
    device::copy_to_device(memory_.data(), batch.blobs().data(), batch.blobs().size(), stream);
    const BatchLayout& layout = batch.layout();
    const auto copy = [&](int64_t r, auto slot, int64_t bytes) {
      const BlobView from = other.blob(r);
      if (!from.has(slot) || bytes == 0) return;
      device::copy_to_device(on_device_.values(r, slot), from.values(slot), bytes, stream);
    };
    for (int64_t r = 0; r < batch.size(); ++r) {
      const BlobView blob = batch.blob(r);
      for (int i = 0; i < static_cast<int>(layout.ids().size()); ++i)
        copy(r, IdsSlot{i}, blob.rows({layout.ids(IdsSlot{i}).axis}) * size_of(blob.type(IdsSlot{i})));
      for (int i = 0; i < static_cast<int>(layout.dense().size()); ++i) {
        const DenseInfo& info = layout.dense(DenseSlot{i});
        copy(r, DenseSlot{i}, blob.rows({info.axis}) * info.width * size_of(blob.type(DenseSlot{i})));
      }
    }
  }
  const DeviceBatch& operator*() const { return on_device_; }

 private:
  device::DeviceMemory memory_;
  DeviceBatch on_device_;
};

/// Inputs "x" and "y", of which a request may leave out "y".
Plan plan_of_two_inputs() {
  return compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto x = b.dense("x", item, 2), y = b.dense("y", item, 1, {.default_value = 1});
    return {{"score", b.linear("score", b.concat({x, y}), 1)}};
  });
}

TEST_F(CudaEngine, ScoresTheValuesThatBatchesInDeviceMemoryHave) {
  int num_scored = 0;
  for (uint32_t seed = 0; seed < (is_sanitized ? 1 : 2); ++seed) {
    // 3 requests are within the capacity; 20 run in parts.
    const RandomSetup setup(seed, {{8, 64, {}}});
    for (const int64_t fetch_bytes : {ContextOptions{}.fetch_bytes, int64_t{0}})
      for (const int count : {0, 3, 20}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(count) + " requests, fetch of " +
                     std::to_string(fetch_bytes));
        ContextOptions options;
        options.fetch_bytes = fetch_bytes;
        Context context = setup.model.context(options);
        const device::OwnedStream stream;
        const std::vector<PlainRequest> requests = random_requests(setup.plan, count, seed);
        Batch batch = batch_of(setup.model, requests), other = batch_of(setup.model, with_other_values(requests));
        batch.close();
        const std::vector<float> before = all_scores(setup.plan, context.run(batch)),
                                 expected = all_scores(setup.plan, context.run(other));
        const Rewritten on_device(batch, other, stream.get());
        Pending pending = context.submit(*on_device, reinterpret_cast<StreamHandle>(stream.get()));
        EXPECT_TRUE(same_bits(all_scores(setup.plan, pending.wait()), expected));
        EXPECT_TRUE(count == 0 || !same_bits(before, expected)) << "the values do not matter";
        EXPECT_TRUE(same_bits(all_scores(setup.plan, context.run(batch)), before)) << "the host's batch has changed";
        num_scored += static_cast<int>(expected.size());
      }
  }
  EXPECT_GT(num_scored, 100);
}

TEST_F(CudaEngine, RefusesBatchesThatAreNotInDeviceMemory) {
  const RandomSetup setup(1);
  Context context = setup.model.context();
  Batch batch = batch_of(setup.model, random_requests(setup.plan, 2, 1));
  device::DeviceMemory memory(1 << 20, "a test");
  auto* const blobs = static_cast<std::byte*>(memory.data());
  EXPECT_EQ(message_of([&] { DeviceBatch(batch, blobs); }), "device batch: expected a closed batch, got an open one");
  batch.close();
  const std::string size = std::to_string(batch.blobs().size());
  EXPECT_EQ(message_of([&] { DeviceBatch(batch, nullptr); }),
            "memory of a device batch: expected " + size + " bytes, got null");
  EXPECT_EQ(message_of([&] { DeviceBatch(batch, blobs + 12); }),
            "memory of a device batch: expected an address that is a multiple of 8, got one that is 4 bytes beyond");

  alignas(8) std::byte on_host[8] = {};
  EXPECT_EQ(message_of([&] { context.submit(DeviceBatch(batch, on_host)); }),
            "device batch: expected memory of device 0, got other memory");
  EXPECT_FALSE(all_scores(setup.plan, context.run(batch)).empty()) << "the context is as it was";

  Batch of_another = plan_of_two_inputs().batch();
  of_another.close();
  EXPECT_EQ(message_of([&] { context.submit(DeviceBatch(of_another, blobs)); }),
            "batch: expected one of this plan's axes and inputs, got one of another plan");
}

TEST_F(CudaEngine, KnowsThePlacesOfInputsThatRequestsHaveSet) {
  const Plan plan = plan_of_two_inputs();
  Batch batch = plan.batch();
  batch.add_request().dense(plan.layout().dense("x"), {1, 2, 3, 4}).finish();
  batch.add_request().dense(plan.layout().dense("x"), {NAN, 0}).finish();
  batch.close();
  device::DeviceMemory memory(batch.blobs().size(), "a test");
  auto* const blobs = static_cast<std::byte*>(memory.data());
  const DeviceBatch on_device(batch, blobs);
  EXPECT_EQ(
      on_device.values(0, plan.layout().dense("x")) - blobs,
      reinterpret_cast<const std::byte*>(batch.blob(0).dense(plan.layout().dense("x")).data()) - batch.blobs().data());
  EXPECT_EQ(message_of([&] { on_device.values(0, plan.layout().dense("y")); }),
            "input 'y' of request 0: expected one that the request has set, got one that it has not");
  EXPECT_NE(message_of([&] { on_device.values(1, plan.layout().dense("x")); }).find("blob of request 1"),
            std::string::npos);
}

}}  // namespace warprank
