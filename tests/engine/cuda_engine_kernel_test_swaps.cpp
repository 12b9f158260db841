// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: models that are exchanged while batches are in flight.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/served_model.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches

/// Not written where a member is initialised: CUDA 12.4 ends without a message there.
Outputs clicks(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 8}));
  const auto who = b.embed(b.ids("user_id", user), b.hashed_table("who", {.dim = 8}));
  const auto x = b.concat({film, b.expand(who, item), b.dense("x", item, 3)});
  return {{"ctr", b.sigmoid(b.mlp("deep", x, {16, 1}))}};
}

class CudaServed : public CudaEngine {
 protected:
  CudaServed() {
    for (uint32_t seed = 1; seed <= 2; ++seed) {
      dense_.push_back(test_support::random_weights(plan_, seed));
      rows_.push_back(test_support::random_tables(plan_, 50, seed));
    }
    const auto stored = [](const TensorView& view) {
      return StoredTensor{*view.dtype, view.shape, {view.data, view.data + view.bytes}};
    };
    std::map<std::string, StoredTensor> mixed;  // films of the first, users of the second
    for (const std::string& name : rows_[0].names()) mixed[name] = stored(*rows_[name == "film" ? 0 : 1].find(name));
    std::vector<int64_t> keys(static_cast<size_t>(mixed["film"].shape[0]));
    std::iota(keys.begin(), keys.end(), int64_t{0});
    films_ = Weights::from_tensors(
        {{"film.keys", make_tensor({static_cast<int64_t>(keys.size())}, keys)}, {"film.rows", mixed["film"]}});
    rows_.push_back(Weights::from_tensors(mixed));
    for (uint32_t seed = 1; seed <= 3; ++seed) requests_.push_back(random_requests(plan_, 2, seed));
    Batch batch = plan_.batch();
    for (const PlainRequest& request : requests_[0]) add_to(batch, request);
    batch.close();
    for (int64_t r = 0; r < batch.size(); ++r)
      recorded_.emplace_back(batch.blob(r).data(), batch.blob(r).data() + batch.blob(r).bytes());
  }

  ServedModel serve() {
    Tables tables = Tables::load(plan_, rows_[0], cuda(), updatable_);
    Model model = Model::bind(plan_, dense_[0], tables);
    return ServedModel(std::move(model), std::move(tables), {.contexts = 3});
  }
  /// Of each of requests_, by a context of its own.
  std::vector<std::vector<float>> scores_of(size_t dense, size_t rows) {
    const Model model = Model::bind(plan_, dense_[dense], Tables::load(plan_, rows_[rows], cuda()));
    Context context = model.context();
    std::vector<std::vector<float>> scores;
    for (const auto& requests : requests_) {
      Batch batch = batch_of(model, requests);
      scores.push_back(all_scores(plan_, context.run(batch)));
    }
    return scores;
  }

  const Plan plan_ = plan_for(warprank::build(clicks), {}, {{1, 8, {}}, {8, 64, {}}});
  const LoadOptions updatable_ = {.updatable = true};
  std::vector<Weights> dense_, rows_;
  Weights films_ = Weights::from_tensors({});  // the rows that make the third tables of the second
  std::vector<std::vector<PlainRequest>> requests_;
  std::vector<std::vector<std::byte>> recorded_;
};

TEST_F(CudaServed, BatchesInFlightAcrossAFlipHaveTheScoresOfExactlyOneModel) {
  struct Swap {
    SwapMode mode;
    size_t dense, rows;
  };
  const Swap swaps[] = {
      {SwapMode::full, 1, 1}, {SwapMode::dense_and_rows, 0, 2}, {SwapMode::drain, 1, 0}, {SwapMode::full, 0, 1}};
  Swap last{SwapMode::full, 0, 0};
  ServedModel served = serve();
  const device::OwnedStream stream;
  std::vector<Batch> batches;
  for (const auto& requests : requests_) {
    batches.push_back(served.batch());
    for (const PlainRequest& request : requests) add_to(batches.back(), request);
  }
  for (const auto& swap : swaps) {
    SCOPED_TRACE(to_string(swap.mode));
    const std::vector<std::vector<float>> old = scores_of(last.dense, last.rows);
    const std::vector<std::vector<float>> expected = scores_of(swap.dense, swap.rows);
    // Tables that stay have other rows, also for a context that keeps its weights.
    const bool stays = swap.mode == SwapMode::dense_and_rows;
    const std::vector<std::vector<float>> lent = stays ? scores_of(last.dense, swap.rows) : old;
    ASSERT_FALSE(same_bits(expected[0], old[0]));
    const NextModel next{.dense = dense_[swap.dense], .tables = stays ? films_ : rows_[swap.rows]};
    SwapOptions options{.recorded = recorded_, .patience = std::chrono::milliseconds(0)};
    const int64_t version = served.version();
    {
      const ContextLease first = served.acquire(), second = served.acquire();
      Pending one = first->submit(batches[0]);
      Pending two = second->submit(batches[1], reinterpret_cast<StreamHandle>(stream.get()));
      if (swap.mode == SwapMode::drain) {
        EXPECT_THROW(served.swap(next, swap.mode, options), swap_refused);
        EXPECT_EQ(served.version(), version);
      } else {
        EXPECT_EQ(served.swap(next, swap.mode, options).contexts_behind, 2);
        const ContextLease third = served.acquire();
        EXPECT_GT(third.version(), version);
        Pending three = third->submit(batches[2]);
        EXPECT_TRUE(same_bits(all_scores(plan_, three.wait()), expected[2]));
      }
      EXPECT_TRUE(same_bits(all_scores(plan_, one.wait()), old[0]));
      EXPECT_TRUE(same_bits(all_scores(plan_, two.wait()), old[1]));
      EXPECT_TRUE(same_bits(all_scores(plan_, first->run(batches[2])), lent[2])) << "of the old weights still";
    }
    EXPECT_EQ(served.contexts_behind().count, 0) << "they caught up when they were given back";
    if (swap.mode == SwapMode::drain) served.swap(next, swap.mode, options);
    const ContextLease all[] = {served.acquire(), served.acquire(), served.acquire()};
    std::vector<Pending> pending;
    for (size_t i = 0; i < 3; ++i) pending.push_back(all[i]->submit(batches[i]));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GT(all[i].version(), version);
      EXPECT_TRUE(same_bits(all_scores(plan_, pending[i].wait()), expected[i])) << "context " << i;
    }
    last = swap;
  }
}

#if !defined(__CUDACC__)
TEST_F(CudaServed, GivesBackTheMemoryOfTheOldModelAndRefusesTheNewOneWhereThereIsTooLittle) {
  ServedModel served = serve();
  NextModel next{.dense = dense_[1], .tables = rows_[1]};
  const int64_t before = simt::allocated_bytes();
  const SwapReport report = served.swap(next, SwapMode::full, {.recorded = recorded_});
  EXPECT_EQ(simt::allocated_bytes(), before);
  int64_t needed = 0, context = 0;
  for (const auto& [what, bytes] : report.needed) needed += bytes;
  for (const auto& [what, bytes] : served.acquire()->memory())
    if (what.rfind("pinned", 0) != 0) context += bytes;
  EXPECT_EQ(report.needed.back().second, context) << "nothing of the host's memory";
  simt::limit_memory(before + needed - 1, int64_t{1} << 40);
  simt::clear_calls();
  EXPECT_THROW(served.swap(next, SwapMode::full), swap_refused);
  next.load = LoadOptions{};
  EXPECT_THROW(served.swap(next, SwapMode::full), invalid_argument) << "graphs are of tables that are updatable";
  next.load.reset();
  EXPECT_EQ(simt::calls().allocations.count, 0);
  EXPECT_GT(served.swap(next, SwapMode::drain, {.recorded = recorded_}).version, report.version);
  EXPECT_EQ(simt::allocated_bytes(), before);
}
#endif

}}  // namespace warprank
