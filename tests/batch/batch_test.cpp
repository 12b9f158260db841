// SPDX-License-Identifier: Apache-2.0

#include "warprank/batch/batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batch/blob_testing.hpp"
#include "batch/random_requests.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;
using testing::HasSubstr;

class BatchOfFilms : public testing::Test {
 protected:
  /// Adds a finished request whose user_id is `id`.
  Request add(Batch& batch, int64_t id) {
    Request request = batch.add_request().ids(layout_.ids("user_id"), {id});
    request.finish();
    return request;
  }
  Request add_wrong(Batch& batch) {
    Request request = batch.add_request().ids(layout_.ids("user_id"), {1, 2, 3});
    request.finish();
    return request;
  }
  int64_t user_id(const Batch& batch, int64_t r) { return batch.blob(r).ids(layout_.ids("user_id"))[0]; }

  const BatchLayout layout_{small_graph()};
  const Bytes blob_ = naive_blob(layout_, small_request(layout_));
  Batch batch_{layout_};
};

TEST_F(BatchOfFilms, NumbersItsRequests) {
  EXPECT_EQ(batch_.size(), 0);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(add(batch_, i).index(), i);
  EXPECT_EQ(batch_.size(), 5);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(user_id(batch_, i), i);
}

TEST_F(BatchOfFilms, GivesEveryRequestItsOwnStatus) {
  add(batch_, 1);
  add_wrong(batch_);
  add(batch_, 3);
  EXPECT_TRUE(batch_.status(0).ok());
  EXPECT_EQ(batch_.status(1).code, StatusCode::inconsistent);
  EXPECT_TRUE(batch_.status(2).ok());
  EXPECT_EQ(user_id(batch_, 2), 3);
  EXPECT_THROW(batch_.blob(1), invalid_argument);
  EXPECT_THROW(batch_.status(3), invalid_argument);
  EXPECT_THROW(batch_.blob(-1), invalid_argument);
}

TEST_F(BatchOfFilms, HoldsAllBlobsAndTheirIndexInOneRange) {
  add(batch_, 7);
  add_wrong(batch_);
  batch_.add_blob(blob_);
  batch_.close();
  const Span<const std::byte> bytes = batch_.bytes();
  ASSERT_EQ(batch_.num_scored(), 2);
  const std::byte* index = bytes.end() - batch_.index().bytes();
  EXPECT_EQ(index + batch_.positions()[0], batch_.blob(0).data());
  EXPECT_EQ(index + batch_.positions()[1], batch_.blob(2).data());
  EXPECT_EQ(index - bytes.data(), batch_.blob(0).bytes() + batch_.blob(2).bytes());
}

TEST_F(BatchOfFilms, PacksUnfinishedRequestsWhenItIsClosed) {
  Request request = batch_.add_request().ids(layout_.ids("user_id"), {9});
  Request wrong = batch_.add_request();
  EXPECT_THROW(batch_.bytes(), invalid_argument);
  EXPECT_THROW(batch_.index(), invalid_argument);
  EXPECT_THROW(batch_.num_rows({0}), invalid_argument);
  EXPECT_THROW(batch_.positions(), invalid_argument);
  EXPECT_THROW(batch_.row_starts({0}), invalid_argument);
  EXPECT_THROW(batch_.blob(0), invalid_argument);
  EXPECT_FALSE(batch_.closed());
  batch_.close();
  EXPECT_TRUE(batch_.closed());
  EXPECT_EQ(user_id(batch_, 0), 9);
  EXPECT_EQ(wrong.status().code, StatusCode::missing_input);
  EXPECT_THROW(request.ids(layout_.ids("seen"), {1}), invalid_argument);
}

TEST_F(BatchOfFilms, IsOpenAgainAfterAnotherRequest) {
  add(batch_, 1);
  batch_.close();
  add(batch_, 2);
  EXPECT_FALSE(batch_.closed());
  batch_.close();
  batch_.close();
  EXPECT_EQ(batch_.num_scored(), 2);
  EXPECT_EQ(user_id(batch_, 0), 1);
  EXPECT_EQ(user_id(batch_, 1), 2);
}

TEST_F(BatchOfFilms, MayBeEmpty) {
  batch_.close();
  EXPECT_EQ(batch_.num_scored(), 0);
  EXPECT_EQ(batch_.bytes().size(), batch_.index().bytes());
}

TEST_F(BatchOfFilms, TakesBlobsAsTheyAreFromAnyAddress) {
  Bytes shifted(blob_.size() + 3);
  std::copy(blob_.begin(), blob_.end(), shifted.begin() + 3);
  const Request request = batch_.add_blob({shifted.data() + 3, static_cast<int64_t>(blob_.size())});
  EXPECT_TRUE(request.status().ok());
  EXPECT_EQ(bytes_of(batch_, request.index()), blob_);
}

TEST_F(BatchOfFilms, GivesABadBlobAStatusAndNoBytes) {
  Bytes bad = blob_;
  bad[8] = std::byte{9};
  const Request request = batch_.add_blob(bad);
  EXPECT_EQ(request.status().code, StatusCode::wrong_version);
  EXPECT_EQ(batch_.add_blob({}).status().code, StatusCode::malformed);
  batch_.close();
  EXPECT_EQ(batch_.num_scored(), 0);
  EXPECT_EQ(batch_.bytes().size(), batch_.index().bytes());
}

TEST_F(BatchOfFilms, AppendsAnotherBatchBehindItsOwnRequests) {
  Batch other(layout_);
  add(other, 10);
  add_wrong(other);
  other.add_request().ids(layout_.ids("user_id"), {12});  // left unfinished
  add(batch_, 1);
  EXPECT_EQ(batch_.append(other), 1);
  EXPECT_EQ(batch_.append(other), 4);
  ASSERT_EQ(batch_.size(), 7);
  for (const int64_t first : {1, 4}) {
    EXPECT_EQ(bytes_of(batch_, first), bytes_of(other, 0));
    EXPECT_EQ(batch_.status(first + 1).message, other.status(1).message);
    EXPECT_EQ(user_id(batch_, first + 2), 12);
  }
  EXPECT_EQ(user_id(batch_, 0), 1);
  EXPECT_EQ(other.size(), 3);
  Batch empty(layout_);
  EXPECT_EQ(batch_.append(empty), 7);
  EXPECT_EQ(empty.append(batch_), 0);
  EXPECT_EQ(user_id(empty, 6), 12);
}

TEST_F(BatchOfFilms, IsOpenOnceAnotherIsAppended) {
  Batch other(layout_);
  add(other, 10);
  add(batch_, 1);
  batch_.close();
  other.close();
  batch_.append(other);
  EXPECT_FALSE(batch_.closed());
  batch_.close();
  EXPECT_EQ(batch_.num_scored(), 2);
  const std::byte* index = batch_.bytes().end() - batch_.index().bytes();
  EXPECT_EQ(index + batch_.positions()[1], batch_.blob(1).data());
  EXPECT_EQ(user_id(batch_, 1), 10);
  EXPECT_EQ(other.num_scored(), 1);
  EXPECT_EQ(user_id(other, 0), 10);
  Batch empty(layout_);
  batch_.append(empty);
  EXPECT_FALSE(batch_.closed()) << "the index may be overwritten";
}

TEST_F(BatchOfFilms, RefusesToAppendABatchOfAnotherPlanOrItself) {
  Graph graph = small_graph();
  graph.ids[0].name = "user";
  Batch other{BatchLayout(graph)};
  EXPECT_THROW(batch_.append(other), invalid_argument);
  EXPECT_THROW(batch_.append(batch_), invalid_argument);
  EXPECT_NE(batch_.fingerprint(), other.fingerprint());
  EXPECT_EQ(batch_.fingerprint(), layout_.fingerprint());
}

TEST_F(BatchOfFilms, MayMoveWhileItsRequestsAreFilled) {
  Request request = batch_.add_request();
  Batch moved = std::move(batch_);
  request.ids(layout_.ids("user_id"), {3}).finish();
  EXPECT_EQ(user_id(moved, 0), 3);
}

TEST_F(BatchOfFilms, StartsAnewWhenItIsCleared) {
  add(batch_, 1);
  add_wrong(batch_);
  batch_.add_request();
  batch_.close();
  batch_.clear();
  EXPECT_EQ(batch_.size(), 0);
  EXPECT_FALSE(batch_.closed());
  EXPECT_EQ(add(batch_, 5).index(), 0);
  EXPECT_EQ(user_id(batch_, 0), 5);
}

TEST_F(BatchOfFilms, TakesItsMemoryFromTheAllocatorItIsGiven) {
  std::vector<std::pair<void*, int64_t>> owned;
  int64_t calls = 0;
  {
    HostAllocator allocator;
    allocator.allocate = [&](int64_t bytes) {
      ++calls;
      owned.emplace_back(std::malloc(static_cast<size_t>(bytes)), bytes);
      return owned.back().first;
    };
    allocator.deallocate = [&](void* memory, int64_t bytes) {
      const auto found = std::find(owned.begin(), owned.end(), std::make_pair(memory, bytes));
      ASSERT_NE(found, owned.end());
      owned.erase(found);
      std::free(memory);
    };
    Batch batch(layout_, allocator);
    EXPECT_EQ(calls, 0);
    for (int64_t i = 0; i < 3000; ++i) add(batch, i);
    batch.close();
    ASSERT_EQ(owned.size(), 1u);
    EXPECT_GE(batch.bytes().data(), owned[0].first);
    EXPECT_LE(batch.bytes().end(), static_cast<std::byte*>(owned[0].first) + owned[0].second);
    for (int64_t i = 0; i < 3000; ++i) EXPECT_EQ(user_id(batch, i), i);
  }
  EXPECT_TRUE(owned.empty());
  EXPECT_GT(calls, 1);
}

TEST_F(BatchOfFilms, LosesNothingWhenMemoryRunsOut) {
  bool exhausted = false;
  HostAllocator allocator;
  allocator.allocate = [&](int64_t bytes) { return exhausted ? nullptr : std::malloc(static_cast<size_t>(bytes)); };
  Batch batch(layout_, allocator);
  add(batch, 1);
  exhausted = true;
  const auto fill_up = [&] {
    for (;;) batch.add_blob(blob_);
  };
  EXPECT_THROW(fill_up(), std::bad_alloc);
  Request last = batch.add_request();
  last.ids(layout_.ids("user_id"), {2})
      .ids(layout_.ids("film_id"), std::vector<int64_t>(100))
      .dense(layout_.dense("context"), std::vector<float>(200));
  EXPECT_THROW(last.finish(), std::bad_alloc);
  exhausted = false;
  EXPECT_TRUE(last.finish().ok());
  batch.close();
  EXPECT_EQ(user_id(batch, 0), 1);
  EXPECT_EQ(user_id(batch, last.index()), 2);
}

TEST(Batch, IsFilledByManyThreadsAtOnce) {
  constexpr int num_threads = 8, per_thread = 150;
  Random random(11);
  Graph graph = random_graph(random);
  while (graph.axes.size() < 5 || graph.ids.size() < 4) graph = random_graph(random);
  const BatchLayout layout(graph);
  Batch batch(layout);
  for (int round = 0; round < 3; ++round) {
    batch.clear();
    std::vector<std::vector<std::pair<int64_t, Bytes>>> expected(num_threads);
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t)
      threads.emplace_back([&, t] {
        Random own(static_cast<uint32_t>(100 * round + t));
        for (int i = 0; i < per_thread; ++i) {
          const RequestData data = random_request(layout, own);
          Bytes bytes = naive_blob(layout, after_keep_last(layout, data));
          int64_t index;
          if (i % 10 == 0) {
            index = batch.add_blob(span_of(bytes)).index();
          } else if (i % 10 == 1) {
            Batch other(layout);
            other.add_blob(span_of(bytes));
            index = batch.append(other);
          } else {
            Request request = batch.add_request();
            fill(request, layout, data, own);
            if (i % 10 != 2) request.finish();
            index = request.index();
          }
          expected[static_cast<size_t>(t)].emplace_back(index, std::move(bytes));
        }
      });
    for (std::thread& thread : threads) thread.join();
    batch.close();
    ASSERT_EQ(batch.size(), num_threads * per_thread);
    std::vector<int> seen(static_cast<size_t>(batch.size()), 0);
    for (const auto& of_thread : expected)
      for (const auto& [index, bytes] : of_thread) {
        ++seen[static_cast<size_t>(index)];
        ASSERT_EQ(bytes_of(batch, index), bytes);
      }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), batch.size());
  }
}

}  // namespace
