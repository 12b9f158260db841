// SPDX-License-Identifier: Apache-2.0

/// Device memory of an allocator of the user's: that all of it comes from there and goes back, and that nothing is lost
/// when it has none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/device/owned_memory.hpp"
#include "warprank/engine/served_model.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches
using test_support::message_of;
using testing::HasSubstr;

/// Of the runtime's memory. Its allocation number `fails_at` fails, with null or an exception.
class Pool {
 public:
  enum class Failure { null, exception };

  DeviceAllocator allocator() {
    return {[this](int64_t bytes, int device) { return allocate(bytes, device); },
            [this](void* memory, int64_t bytes, int device) {
              const std::lock_guard lock(mutex_);
              const auto it = live_.find(memory);
              ASSERT_NE(it, live_.end()) << "memory of another";
              EXPECT_EQ(it->second, std::pair(bytes, device));
              EXPECT_EQ(device::backend::runtime::current_device(), device);
              live_.erase(it);
              device::backend::runtime::release(memory);
            },
            nullptr};
  }
  int64_t bytes() const {
    const std::lock_guard lock(mutex_);
    int64_t all = 0;
    for (const auto& [memory, block] : live_) all += block.first;
    return all;
  }
  int64_t num_allocations() const { return num_allocations_; }
  void fail_at(int64_t allocation, Failure failure) {
    fails_at_ = num_allocations_ + allocation;
    failure_ = failure;
  }
  bool has_failed() const { return fails_at_ >= 0 && num_allocations_ > fails_at_; }
  void fail_no_more() { fails_at_ = -1; }

 private:
  void* allocate(int64_t bytes, int device) {
    const std::lock_guard lock(mutex_);
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(device::backend::runtime::current_device(), device);
    if (num_allocations_++ == fails_at_) {
      if (failure_ == Failure::exception) throw std::domain_error("the pool is closed");
      return nullptr;
    }
    void* const memory = device::backend::runtime::allocate(bytes);
    live_[memory] = {bytes, device};
    return memory;
  }

  mutable std::mutex mutex_;
  std::map<void*, std::pair<int64_t, int>> live_;
  int64_t num_allocations_ = 0, fails_at_ = -1;
  Failure failure_ = Failure::null;
};

/// Not written where a member is initialised: CUDA 12.4 ends without a message there.
Outputs clicks(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 8}));
  const auto who = b.embed(b.ids("user_id", user), b.hashed_table("who", {.dim = 8}));
  return {{"ctr", b.sigmoid(b.mlp("deep", b.concat({film, b.expand(who, item), b.dense("x", item, 3)}), {16, 1}))}};
}

class CudaAllocator : public CudaEngine {
 protected:
  ~CudaAllocator() override {
    set_cuda_allocator(0, {});
    EXPECT_EQ(pool_.bytes(), 0);
  }
  void use_pool() { set_cuda_allocator(0, pool_.allocator()); }

  Weights rows(uint32_t seed) const { return test_support::random_tables(plan_, 50, seed); }
  Weights dense(uint32_t seed) const { return test_support::random_weights(plan_, seed); }
  Tables load(uint32_t seed = 1) const { return Tables::load(plan_, rows(seed), cuda()); }
  Batch batch(const Model& model, int64_t items = 4) const {
    return batch_of(model, random_requests(plan_, 3, 1, {50, 6, {{"item", items}}}));
  }
  std::vector<float> run(Context& context, Batch& batch) const { return all_scores(plan_, context.run(batch)); }
  std::vector<float> run(Context& context, Batch&& batch) const { return run(context, batch); }

  /// Does act() with each of its allocations failing in turn: it throws what the pool says, and nothing is lost. Then
  /// it works.
  template <class Act>
  void fail_each_allocation(Act act) {
    for (const Pool::Failure failure : {Pool::Failure::null, Pool::Failure::exception}) {
      const int64_t before = pool_.bytes();
      int64_t n = 0;
      for (bool failed = true; failed && !HasFailure(); ++n) {
        SCOPED_TRACE("allocation " + std::to_string(n));
        pool_.fail_at(n, failure);
        const std::string message = message_of([&] { act(); });
        failed = pool_.has_failed();
        pool_.fail_no_more();
        EXPECT_THAT(message, failed ? HasSubstr(failure == Pool::Failure::null ? "of the device's allocator: expected "
                                                                               : "the pool is closed")
                                    : HasSubstr(""));
        EXPECT_EQ(message.empty(), !failed);
        EXPECT_EQ(pool_.bytes(), before);
      }
      EXPECT_GT(n, 1) << "nothing was allocated";
    }
  }

  Plan plan_ = plan_for(warprank::build(clicks), {}, {{8, 64, {}}});
  Pool pool_;
};

TEST_F(CudaAllocator, HasAllMemory) {
  const Model of_runtime = Model::bind(plan_, dense(1), load());
  Context runtimes = of_runtime.context();
  const std::vector<float> expected = run(runtimes, batch(of_runtime)),
                           expected_large = run(runtimes, batch(of_runtime, 50));
  EXPECT_EQ(pool_.num_allocations(), 0);

  use_pool();
  const int64_t free_before = device::device_info(0).free_bytes;
  {
    const Tables tables = load();
    const Model model = Model::bind(plan_, dense(1), tables);
    Context context = model.context();
    EXPECT_EQ(run(context, batch(model)), expected);
    EXPECT_EQ(run(context, batch(model, 50)), expected_large) << "above all capacities";
    if constexpr (!kernel_testing::on_gpu) {
      EXPECT_EQ(pool_.bytes(), free_before - device::device_info(0).free_bytes) << "something is of the runtime";
    }
    EXPECT_GT(pool_.num_allocations(), 3);
  }
  EXPECT_EQ(pool_.bytes(), 0);
}

TEST_F(CudaAllocator, LosesNothingWhenItHasNone) {
  use_pool();
  fail_each_allocation([&] { load(); });
  const Tables tables = load();
  fail_each_allocation([&] { Model::bind(plan_, dense(1), tables); });
  const Model model = Model::bind(plan_, dense(1), tables);
  fail_each_allocation([&] { static_cast<void>(model.context()); });

  Context context = model.context();
  const std::vector<float> expected = run(context, batch(model));
  fail_each_allocation([&] {
    Context other = model.context();
    run(other, batch(model, 50));  // whose memory is allocated as it runs
  });
  EXPECT_EQ(run(context, batch(model)), expected);
}

TEST_F(CudaAllocator, ServesOnWhenASwapFindsNone) {
  use_pool();
  Tables tables = load();
  std::optional<Model> model(Model::bind(plan_, dense(1), tables));
  Batch requests = batch(*model);
  ServedModel served(std::move(*model), std::move(tables), {.contexts = 2});
  model.reset();
  const auto scores = [&] {
    ContextLease lease = served.acquire();
    return run(*lease, requests);
  };
  const std::vector<float> first = scores();
  NextModel next;
  next.dense = dense(2);
  next.tables = rows(2);
  for (int64_t n = 0;; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    const int64_t before = pool_.bytes();
    pool_.fail_at(n, Pool::Failure::null);
    const std::string message = message_of([&] { served.swap(next, SwapMode::full); });
    const bool failed = pool_.has_failed();
    pool_.fail_no_more();
    ASSERT_EQ(message.empty(), !failed) << message;
    if (!failed) break;
    ASSERT_EQ(scores(), first);
    ASSERT_EQ(pool_.bytes(), before);
  }
  EXPECT_NE(scores(), first);
}

TEST_F(CudaAllocator, GetsBackWhatItGave) {
  use_pool();
  {
    const device::DeviceMemory its(100, "a");
    set_cuda_allocator(0, {});
    const device::DeviceMemory runtimes(100, "b");
    EXPECT_EQ(pool_.bytes(), 100);
  }
  EXPECT_EQ(pool_.bytes(), 0);
  EXPECT_EQ(pool_.num_allocations(), 1);
}

TEST_F(CudaAllocator, IsHeldAgainstWhatItSaysIsFree) {
  DeviceAllocator small = pool_.allocator();
  small.free_bytes = [](int) { return int64_t{1000}; };
  set_cuda_allocator(0, small);
  EXPECT_THAT(message_of([&] { load(); }), HasSubstr("bytes of device memory, got 1000 free of"));
  EXPECT_EQ(pool_.num_allocations(), 0);
}

TEST_F(CudaAllocator, IsRefusedWhenItIsWrong) {
  DeviceAllocator partial = pool_.allocator();
  partial.deallocate = nullptr;
  EXPECT_EQ(message_of([&] { set_cuda_allocator(0, partial); }),
            "allocator of device 0: expected allocate and deallocate, or neither, got no deallocate");
  partial = pool_.allocator();
  partial.allocate = nullptr;
  EXPECT_EQ(message_of([&] { set_cuda_allocator(0, partial); }),
            "allocator of device 0: expected allocate and deallocate, or neither, got no allocate");

  int given_back = 0;
  set_cuda_allocator(0, {[](int64_t, int) { return reinterpret_cast<void*>(uintptr_t{0x1008}); },
                         [&](void* memory, int64_t, int) { given_back += memory == reinterpret_cast<void*>(0x1008); }});
  EXPECT_EQ(message_of([] { const device::DeviceMemory memory(10, "a table"); }),
            "a table, of the device's allocator: expected memory that is aligned to 256 bytes, got an address 8 bytes "
            "behind");
  EXPECT_EQ(given_back, 1);
}

/// As std::pmr and cuda::mr have them.
struct Resource {
  void* allocate(size_t bytes, size_t alignment) {
    EXPECT_EQ(alignment, 256u);
    live += bytes;
    return device::backend::runtime::allocate(static_cast<int64_t>(bytes));
  }
  void deallocate(void* memory, size_t bytes, size_t) {
    live -= bytes;
    device::backend::runtime::release(memory);
  }
  size_t live = 0;
};

TEST_F(CudaAllocator, IsAResource) {
  Resource resource;
  set_cuda_allocator(0, allocator_of(resource));
  {
    const Tables tables = load();
    EXPECT_GT(resource.live, 0u);
  }
  EXPECT_EQ(resource.live, 0u);
}

}}  // namespace warprank
