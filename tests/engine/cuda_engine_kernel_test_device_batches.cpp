// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: batches whose blobs lie in the device's memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
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

/// A closed batch whose bytes are of three kinds, in turns of random lengths: on the host alone, in the device's memory
/// alone, and on the host but to be stored there.
class Piecewise {
 public:
  Piecewise(Batch& batch, uint32_t seed) : batch_(batch), memory_(batch.blobs().size(), "a test") {
    std::mt19937 random(seed);
    auto* const bytes = const_cast<std::byte*>(batch.blobs().data());
    original_.assign(bytes, bytes + batch.blobs().size());
    std::vector<std::byte> on_device(original_.size(), std::byte{0xab});
    const auto size = static_cast<int64_t>(original_.size());
    int64_t place = size;  // other than in the batch
    for (int64_t at = 0, next = 0; at < size; at = next) {
      next = std::min(end_of_blob(at), at + 8 * static_cast<int64_t>(1 + random() % 300));
      if (random() % 3 == 0) continue;
      place -= next - at;
      pieces_.push_back({at, next - at, place, random() % 2 == 0});
      if (!pieces_.back().is_there) continue;
      std::copy(bytes + at, bytes + next, on_device.data() + place);
      std::fill(bytes + at, bytes + next, std::byte{0xcd});
      ++num_there;
    }
    device::copy_to_device(memory_.data(), on_device.data(), size, stream_.get());
    device::synchronize(stream_.get());
  }

  Pending submit(Context& context) const {
    return context.submit(PiecewiseBatch(batch_, {static_cast<std::byte*>(memory_.data()), memory_.bytes()}, pieces_));
  }
  /// From now on all pieces are on the device.
  void expect_stored() {
    std::vector<std::byte> on_device(original_.size());
    device::copy_to_host(on_device.data(), memory_.data(), memory_.bytes(), stream_.get());
    device::synchronize(stream_.get());
    for (BatchPiece& piece : pieces_) {
      EXPECT_TRUE(std::equal(&original_[static_cast<size_t>(piece.at)],
                             &original_[static_cast<size_t>(piece.at)] + piece.bytes,
                             &on_device[static_cast<size_t>(piece.place)]))
          << "piece at " << piece.at;
      num_stored += !piece.is_there;
      piece.is_there = true;
      std::fill_n(const_cast<std::byte*>(batch_.blobs().data()) + piece.at, piece.bytes, std::byte{0xcd});
    }
  }

  int num_there = 0, num_stored = 0;

 private:
  /// Blobs lie side by side.
  int64_t end_of_blob(int64_t at) const {
    int64_t end = batch_.blobs().size();
    for (const int64_t position : batch_.positions())
      if (const int64_t begin = batch_.blobs().size() + position; begin > at) end = std::min(end, begin);
    return end;
  }

  Batch& batch_;
  device::OwnedStream stream_;
  device::DeviceMemory memory_;
  std::vector<std::byte> original_;
  std::vector<BatchPiece> pieces_;
};

TEST_F(CudaEngine, BringsBatchesTogetherFromTheHostAndTheDevice) {
  int num_scored = 0, num_there = 0, num_stored = 0;
  struct Way {
    int count;
    Oversize oversize = {};
    int64_t fetch_bytes = ContextOptions{}.fetch_bytes;
  };
  // Within the capacity, without a graph that fetches, in parts, and above the capacity at once.
  for (const Way& way : {Way{3}, Way{3, {}, 0}, Way{20}, Way{20, Oversize::run}})
    for (const bool is_pinned : {true, false}) {
      if (is_sanitized && (way.count == 3 || !is_pinned)) continue;
      SCOPED_TRACE(std::to_string(way.count) + " requests, " + (is_pinned ? "pinned" : "pageable") + ", oversize " +
                   std::to_string(static_cast<int>(way.oversize)) + ", fetch of " + std::to_string(way.fetch_bytes));
      const RandomSetup setup(3, {{8, 64, {}}});
      ContextOptions options;
      options.fetch_bytes = way.fetch_bytes;
      options.oversize = way.oversize;
      Context context = setup.model.context(options);
      Batch batch = is_pinned ? setup.model.batch() : setup.plan.batch();
      for (const PlainRequest& request : random_requests(setup.plan, way.count, 3)) add_to(batch, request);
      const std::vector<float> expected = all_scores(setup.plan, context.run(batch));
      Piecewise pieces(batch, static_cast<uint32_t>(way.count));
      EXPECT_TRUE(same_bits(all_scores(setup.plan, pieces.submit(context).wait()), expected));
      pieces.expect_stored();
      EXPECT_TRUE(same_bits(all_scores(setup.plan, pieces.submit(context).wait()), expected));
      num_scored += static_cast<int>(expected.size());
      num_there += pieces.num_there;
      num_stored += pieces.num_stored;
    }
  EXPECT_GT(num_scored, 100);
  EXPECT_GT(num_there, 10);
  EXPECT_GT(num_stored, 10);
}

TEST_F(CudaEngine, RefusesPiecesThatAreNotOfTheBatchOrTheMemory) {
  const RandomSetup setup(1);
  Context context = setup.model.context();
  Batch batch = batch_of(setup.model, random_requests(setup.plan, 2, 1));
  const device::DeviceMemory memory(64, "a test");
  auto* const bytes = static_cast<std::byte*>(memory.data());
  const auto message_for = [&](std::vector<BatchPiece> pieces, Span<std::byte> memory) {
    return message_of([&] { context.submit(PiecewiseBatch(batch, memory, pieces)); });
  };
  EXPECT_EQ(message_for({}, {bytes, 64}), "piecewise batch: expected a closed batch, got an open one");
  batch.close();
  const std::string size = std::to_string(batch.blobs().size());
  EXPECT_EQ(message_for({{0, 8, 0}}, {bytes + 4, 32}),
            "memory of a piecewise batch: expected an address that is a multiple of 8, got one that is 4 bytes beyond");
  EXPECT_EQ(message_for({{0, 12, 0}}, {bytes, 64}),
            "piece of a batch: expected multiples of 8, got 12 bytes at 0 with place 0");
  EXPECT_EQ(message_for({{0, 0, 0}}, {bytes, 64}),
            "piece of a batch: expected multiples of 8, got 0 bytes at 0 with place 0");
  EXPECT_EQ(message_for({{0, 8, 4}}, {bytes, 64}),
            "piece of a batch: expected multiples of 8, got 8 bytes at 0 with place 4");
  EXPECT_EQ(
      message_for({{0, 16, 0}, {8, 8, 16}}, {bytes, 64}),
      "piece of a batch: expected one within bytes 16 to " + size + " of the batch, got 8 bytes at 8 with place 16");
  EXPECT_EQ(message_for({{batch.blobs().size() - 8, 16, 0}}, {bytes, 64}),
            "piece of a batch: expected one within bytes 0 to " + size + " of the batch, got 16 bytes at " +
                std::to_string(batch.blobs().size() - 8) + " with place 0");
  EXPECT_EQ(message_for({{0, 16, 56}}, {bytes, 64}),
            "piece of a batch: expected a place within 64 bytes of memory, got 16 bytes at 0 with place 56");
  EXPECT_EQ(message_for({{0, 16, -8}}, {bytes, 64}),
            "piece of a batch: expected a place within 64 bytes of memory, got 16 bytes at 0 with place -8");
  alignas(8) std::byte on_host[8] = {};
  EXPECT_EQ(message_for({{0, 8, 0}}, {on_host, 8}), "piecewise batch: expected memory of device 0, got other memory");
  EXPECT_FALSE(all_scores(setup.plan, context.run(batch)).empty()) << "the context is as it was";
}

}}  // namespace warprank
