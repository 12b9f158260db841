// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: batches above all capacities, models that are exchanged,
/// and what goes wrong.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "golden/cases.hpp"
#include "warprank/batch/most_blob_bytes.hpp"
#include "warprank/core/cuda_error.hpp"
#include "warprank/core/round_up.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/value_layout.hpp"
#include "warprank/plan/steps.hpp"

#if !defined(__CUDACC__)
#include "simt/installed.hpp"
#endif

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches
using testing::HasSubstr;
using testing::Not;

// --- batches above all capacities

/// Requests whose blobs lie in another order, and every third of which is followed by one that is refused.
struct MixedBatch {
  MixedBatch(const Model& model, const std::vector<PlainRequest>& plain) : batch(model.batch()) {
    for (const PlainRequest& request : plain) {
      requests.push_back(test_support::add_open_to(batch, request));
      if (requests.size() % 3 == 0) refused.push_back(batch.add_request());  // lacks inputs
    }
    for (const size_t first : {1, 0})
      for (size_t r = first; r < requests.size(); r += 2) requests[r].finish();
    batch.close();
    for (const Request& request : requests) EXPECT_TRUE(request.status().ok()) << request.status().message;
  }

  Batch batch;
  std::vector<Request> requests, refused;
};
const test_support::RequestShape few_rows{50, 3}, no_rows{50, 0};

/// That every request has the bits that it has by itself in `alone`.
void expect_bits_of_each(const MixedBatch& mixed, const Scores& scores, const std::vector<PlainRequest>& plain,
                         const Model& model, Context& alone) {
  for (size_t r = 0; r < plain.size(); ++r) {
    Batch one = batch_of(model, {plain[r]});
    EXPECT_TRUE(same_bits(scores_of_request(model.plan(), scores, mixed.requests[r].index()),
                          scores_of_request(model.plan(), alone.run(one), 0)))
        << "request " << r;
  }
  for (const Request& request : mixed.refused) {
    EXPECT_FALSE(scores.scored(request));
    EXPECT_TRUE(scores["score"].of(request).empty());
  }
}

TEST_F(CudaEngine, SplitsBatchesAboveAllCapacities) {
  for (const uint32_t seed : {3, 8}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomSetup s(seed, {{4, 24, {}}});
    std::vector<PlainRequest> plain = random_requests(s.plan, 18, seed, few_rows), huge = plain;
    for (const size_t r : {5, 17}) plain[r] = random_requests(s.plan, 1, seed, no_rows)[0];
    for (PlainRequest& request : huge)
      for (auto& [name, values] : request.dense)
        for (float& value : values) value = 3e38f;  // infinities and NaN everywhere behind
    ContextOptions copying;
    copying.fetch_bytes = 0;
    Context context = s.model.context(copying), fetching = s.model.context(), alone = s.model.context();
    MixedBatch mixed(s.model, plain);
#if !defined(__CUDACC__)
    simt::clear_calls();
#endif
    Pending pending = context.submit(mixed.batch);
#if !defined(__CUDACC__)
    const simt::Calls calls = simt::calls();
    const int64_t parts = calls.graph_launches, blobs = mixed.batch.bytes().size() - mixed.batch.index().bytes(),
                  index = BatchIndex(mixed.batch.index().num_axes(), 4).bytes();
    EXPECT_GE(parts, 5);
    EXPECT_LE(parts, 8);
    EXPECT_EQ(calls.copies_to_device, (simt::Calls::Transfers{2 * parts, blobs + parts * index}));
    EXPECT_EQ(calls.copies_to_host.count, 0);
    EXPECT_EQ(calls.unpinned_copies + calls.launches + calls.allocations.count + calls.releases, 0);
    EXPECT_EQ(calls.synchronizations + calls.objects_made + calls.fills.count + calls.copies_on_device.count, 0);
    EXPECT_FALSE(pending.ready()) << "nothing has run";
#endif
    const Scores scores = pending.wait();
    expect_bits_of_each(mixed, scores, plain, s.model, alone);
    for (const OutputInfo& output : s.plan.graph().outputs)
      EXPECT_EQ(scores[output.name].all().rows, mixed.batch.num_rows({s.plan.graph().node(output.node).axis}));
    const std::vector<float> all = all_scores(s.plan, scores);
    Batch poison = batch_of(s.model, huge);
    context.run(poison);
    EXPECT_TRUE(same_bits(all_scores(s.plan, context.run(mixed.batch)), all));
#if !defined(__CUDACC__)
    simt::clear_calls();
#endif
    EXPECT_TRUE(same_bits(all_scores(s.plan, fetching.run(mixed.batch)), all));
#if !defined(__CUDACC__)
    EXPECT_EQ(simt::calls().graph_launches, parts);
    EXPECT_EQ(simt::calls().copies_to_device.count, 0) << "each part is fetched, and an index of its own";
#endif
  }
}

#if !defined(__CUDACC__)
/// What its callers may read is there: no part of it is still to be scored.
TEST_F(CudaEngine, IsReadyWithTheLastPartOfABatch) {
  for (const int64_t requests : {int64_t{3}, int64_t{18}}) {
    const RandomSetup s(3, {{4, 24, {}}});
    Context context = s.model.context();
    Batch batch = batch_of(s.model, random_requests(s.plan, requests, 3, few_rows));
    const std::vector<float> expected = all_scores(s.plan, context.run(batch));
    simt::clear_calls();
    Pending pending = context.submit(batch);
    EXPECT_EQ(simt::calls().graph_launches > 1, requests > 4) << "parts";
    while (!pending.ready() && simt::run_one()) {
    }
    EXPECT_TRUE(pending.ready());
    EXPECT_EQ(simt::num_queued_launches(), 0);
    EXPECT_TRUE(same_bits(all_scores(s.plan, pending.wait()), expected));
  }
}
#endif

TEST_F(CudaEngine, RunsOrRefusesRequestsThatNoPartHolds) {
  const RandomSetup s(3, {{4, 24, {}}});
  std::vector<PlainRequest> plain = random_requests(s.plan, 7, 3, few_rows);
  test_support::RequestShape large = few_rows;
  large.rows = {{"session", 3}, {"item", 12}};
  plain[2] = random_requests(s.plan, 1, 4, large)[0];
  Context context = s.model.context(), alone = s.model.context();
  MixedBatch mixed(s.model, plain);
  expect_bits_of_each(mixed, context.run(mixed.batch), plain, s.model, alone);
  EXPECT_EQ(context.memory().back().first, "a batch above all capacities");

  ContextOptions options;
  options.oversize = Oversize::split_or_refuse;
  options.split_parts = 2;
  Context careful = s.model.context(options);
  const auto expect_refused = [&](Batch& batch, const char* what) {
    try {
      careful.run(batch);
      ADD_FAILURE() << "expected " << what;
    } catch (const invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  };
  expect_refused(mixed.batch, "request of a batch: expected at most the rows of a capacity: user 4, ");
  Batch many = batch_of(s.model, random_requests(s.plan, 9, 5, no_rows)),
        fitting = batch_of(s.model, random_requests(s.plan, 8, 5, no_rows));
  expect_refused(many, "at most 2 parts");
  EXPECT_TRUE(same_scores(careful, context, fitting));

  options.keep_intermediates = true;
  Context keeps = s.model.context(options);
  keeps.run(many);
  EXPECT_EQ(keeps.tap(s.plan.graph().node(s.plan.graph().outputs[1].node).name).rows, 9);
}

TEST_F(CudaEngine, RefusesABatchAboveAllCapacitiesWhereAsked) {
  const RandomSetup s(3, {{1, 8, {}}, {2, 16, {}}});
  ContextOptions options;
  options.oversize = Oversize::refuse;
  Context context = s.model.context(options);
  Batch batch = batch_of(s.model, random_requests(s.plan, 3, 1)), empty = s.model.batch();
  try {
    context.run(batch);
    FAIL();
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("batch: expected at most the rows of a capacity: user 1, session 8, "));
    EXPECT_THAT(error.what(), HasSubstr("; or user 2, "));
    EXPECT_THAT(error.what(), HasSubstr("got user 3, "));
  }
  EXPECT_EQ(context.run(empty)["score"].all().rows, 0);  // it is not in use
}

TEST_F(CudaEngine, KeepsTheMemoryOfLargeBatchesAndTheirBits) {
  const RandomSetup s(8, {{1, 8, {}}});
  ContextOptions options;
  options.oversize = Oversize::run;
  Context context = s.model.context(options);
  const auto requests = random_requests(s.plan, 9, 3);
  const std::vector<PlainRequest> fewer(requests.begin(), requests.begin() + 6);
  Batch large = batch_of(s.model, requests), less = batch_of(s.model, fewer);
  const std::vector<float> first = scores_of_request(s.plan, context.run(less), 5);
  context.run(large);
  const MemoryReport memory = context.memory();
  EXPECT_TRUE(same_bits(scores_of_request(s.plan, context.run(less), 5), first));
  EXPECT_EQ(context.memory(), memory);
  for (const char* size : {"user 6, ", "user 10, "})  // 9 is none of the sizes
    EXPECT_THAT(context.describe(), HasSubstr(std::string("above all capacities, up to ") + size));
}

// How a linear layer cuts its sums depends on the rows that it is prepared for.
TEST_F(CudaEngine, GivesARequestAboveAllCapacitiesTheSameBitsWhateverCameBefore) {
  const auto model_for = [](const Capacity& capacity) {
    const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                                 const auto user = b.axis("user"), item = b.axis("item", user);
                                 const auto x = b.dense("x", item, 200), u = b.dense("u", user, 72);
                                 const auto deep = b.mlp("deep", b.concat({x, b.expand(u, item)}), {136, 64, 1}, relu);
                                 return {{"score", b.sigmoid(deep)}, {"other", b.linear("other", x, 512)}};
                               }),
                               {}, {capacity});
    return Model::bind(plan, test_support::random_weights(plan, 1),
                       Tables::load(plan, Weights::from_tensors({}), cuda()));
  };
  const Model model = model_for({1, 2, {}}), wide = model_for({1, 768, {}});
  const auto scores_in = [](Context& context, int64_t items) {
    test_support::RequestShape shape;
    shape.rows = {{"item", items}};
    Batch batch = context.plan().batch();
    add_to(batch, random_requests(context.plan(), 1, 1, shape)[0]);
    return all_scores(context.plan(), context.run(batch));
  };
  Context context = model.context(), fresh = model.context(), prepared_for_many = wide.context();
  const std::vector<float> expected = scores_in(fresh, 4);
  EXPECT_FALSE(same_bits(scores_in(prepared_for_many, 4), expected)) << "or this test shows nothing";
  const std::vector<float> large = scores_in(context, 700);
  EXPECT_TRUE(same_bits(scores_in(context, 4), expected));
  EXPECT_TRUE(same_bits(scores_in(fresh, 700), large));
}

TEST(CudaEngineMemory, HasNoRoomForWhatStaysOnChip) {
  for (const auto model : {movielens::din_mmoe, models::meituan_like}) {
    const Plan plan = plan_for(warprank::build(model), {});
    const plan::Storage& storage = plan.storage();
    const cuda_backend::ValueLayout values(plan.graph(), storage);
    const std::vector<bool> in_memory = plan::in_memory(plan.graph(), storage.steps);
    const std::vector<int64_t> rows = plan::rows_at(plan.source(), plan.options().capacities[0]);
    std::vector<int64_t> needed(storage.slots.size()), with_all(storage.slots.size());  // bytes of a row
    for (size_t n = 0; n < in_memory.size(); ++n) {
      const auto slot = static_cast<size_t>(storage.placements[n].slot);
      const Node& root = plan.graph().node(storage.placements[n].root);
      const int64_t bytes = round_up(root.width * size_of(values.place(static_cast<int>(n)).type), 16);
      with_all[slot] = std::max(with_all[slot], bytes);
      if (in_memory[n]) needed[slot] = std::max(needed[slot], bytes);
    }
    int64_t saved = 0;
    for (size_t s = 0; s < needed.size(); ++s) {
      EXPECT_LE(values.slot_row_bytes()[s], needed[s]) << "slot " << s;
      saved += (with_all[s] - needed[s]) * rows[static_cast<size_t>(storage.slots[s].axis)];
    }
    EXPECT_GT(saved, 0);
  }
}

// --- models that are exchanged

/// A plan with two models of it that have nothing in common, and batches: of one request, of some, and of one that is
/// above all capacities.
struct TwoModels {
  TwoModels(const Graph& graph, std::vector<Capacity> capacities, const test_support::RequestShape& shape)
      : plan(plan_for(graph, {}, std::move(capacities))), first(model_of(1)), second(model_of(2)) {
    const auto most = static_cast<int>(plan.most_requests());
    for (const int count : {1, most, most + 1})
      if (batches.empty() || count > 1) batches.push_back(batch_of(*first, random_requests(plan, count, 1, shape)));
  }
  Model model_of(uint32_t seed) const {
    const std::vector<DType> types{DType::f32, DType::f16, DType::i8, DType::bf16};
    int64_t rows = 40 + seed;
    for (const TableInfo& table : plan.source().tables) rows = table.rows > 0 ? table.rows : rows;
    return Model::bind(plan, test_support::random_weights(plan, seed),
                       Tables::load(plan, test_support::random_tables(plan, rows, seed, types), cuda()));
  }

  Plan plan;
  std::optional<Model> first;
  Model second;
  std::vector<Batch> batches;
};

class CudaEngineModels : public testing::TestWithParam<golden::Case> {};

TEST_P(CudaEngineModels, AreExchangedWithoutANewCapture) {
  const bool is_large = GetParam().hashed_weights;
  if (is_sanitized && is_large) GTEST_SKIP() << "takes minutes; the plain build runs it";
  if (std::string(GetParam().name) == "dcn_v2") GTEST_SKIP() << "has steps as the others, and thrice their time";
  kernel_testing::reset(Config{});
  test_support::RequestShape shape = few_rows;
  if (is_large) shape.rows = {{"item", 1}, {"sample", 1}};
  const std::vector<Capacity> one = {{1, 100, {}}}, several = {{1, 30, {}}, {4, 60, {}}};
  TwoModels models(warprank::build(GetParam().model), is_large ? one : several, shape);
  ContextOptions options;
  options.oversize = Oversize::run;
  Context context = models.first->context(options), fresh = models.second.context(options);
  std::vector<std::vector<float>> expected;
  for (Batch& batch : models.batches) expected.push_back(all_scores(models.plan, fresh.run(batch)));
  const bool has_numbers = !models.plan.parameters().empty() || !models.plan.source().tables.empty();
  EXPECT_NE(same_bits(all_scores(models.plan, context.run(models.batches.back())), expected.back()), has_numbers);
  models.first.reset();
#if !defined(__CUDACC__)
  const int64_t bytes = simt::allocated_bytes();
  simt::clear_calls();
#endif
  context.rebind(models.second);
#if !defined(__CUDACC__)
  const simt::Calls& calls = simt::calls();
  EXPECT_EQ(calls.objects_made + calls.graph_launches + calls.launches + calls.allocations.count + calls.fills.count,
            0);
  EXPECT_EQ(simt::allocated_bytes() < bytes, has_numbers) << "the first model has gone";
#endif
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(same_bits(all_scores(models.plan, context.run(models.batches[i])), expected[i])) << "batch " << i;
  const MemoryReport memory = context.memory();
  EXPECT_EQ(memory.back().first, "a batch above all capacities");
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaEngineModels, testing::ValuesIn(golden::cases),
                         [](const testing::TestParamInfo<golden::Case>& info) { return std::string(info.param.name); });

TEST_F(CudaEngine, KeepsItsModelWhereAnotherDoesNotFit) {
  const RandomSetup s(5);
  Context context = s.model.context(), fresh = s.model.context();
  const Model other = Model::bind(
      s.plan, s.weights, Tables::load(s.plan, test_support::random_tables(s.plan, 50, 5, {DType::f16}), cuda()));
  try {
    context.rebind(other);
    FAIL();
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("table 'direct': expected F32 of 4 columns, got F16 of 4 columns"));
    EXPECT_THAT(error.what(), HasSubstr("table 'hashed': expected F32 of 4 columns, hashed, got F16"));
  }
  Batch batch = batch_of(s.model, random_requests(s.plan, 3, 5));
  EXPECT_TRUE(same_scores(context, fresh, batch));
  Pending pending = context.submit(batch);
  EXPECT_THROW(context.rebind(s.model), std::logic_error);
}

// --- what goes wrong

#if !defined(__CUDACC__)
/// A plan of few launches with a model of it.
struct SmallSetup {
  SmallSetup()
      : plan(plan_for(warprank::build([](Builder& b) -> Outputs {
                        const auto user = b.axis("user"), item = b.axis("item", user);
                        const auto who = b.embed(b.ids("who", user), b.hashed_table("users", {.dim = 8}));
                        const auto film = b.embed(b.ids("film", item), b.table("films", {.dim = 8}));
                        const auto x = b.concat({b.expand(who, item), film, b.dense("price", item, 2)});
                        return {{"score", b.sigmoid(b.mlp("tower", x, {16, 1}, relu))}, {"user", who}};
                      }),
                      {}, {{4, 12, {}}})),
        weights(test_support::random_weights(plan, 1)),
        tables(test_support::random_tables(plan, 50, 1)),
        model(Model::bind(plan, weights, Tables::load(plan, tables, cuda()))) {}

  /// The fifth, if there is one, is above all capacities.
  Batch batch(int count) const {
    std::vector<PlainRequest> plain = random_requests(plan, count, 1, few_rows);
    test_support::RequestShape large;
    large.rows = {{"item", 13}};
    if (count > 4) plain[4] = random_requests(plan, 1, 1, large)[0];
    return batch_of(model, plain);
  }

  Plan plan;
  Weights weights, tables;
  Model model;
};

/// What is held of the device, and on its behalf.
struct Held {
  int64_t bytes = simt::allocated_bytes(), pinned = simt::pinned_bytes(), streams = simt::num_streams();
  bool operator==(const Held& other) const {
    return bytes == other.bytes && pinned == other.pinned && streams == other.streams;
  }
};

/// Does act(subject) with each of its calls to the runtime failing in turn, on a subject of its own from prepare().
/// Calls after(subject, whether act threw). Returns how many calls have failed.
template <class Prepare, class Act, class After>
int64_t fail_each_call(Prepare prepare, Act act, After after) {
  for (int64_t n = 0;; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    auto subject = prepare();
    bool threw = false;
    simt::fail_call(n);
    try {
      act(subject);
    } catch (const cuda_error&) {
      threw = true;
    } catch (const out_of_device_memory&) {
      threw = true;
    }
    const bool all_were_good = simt::calls_before_failure() >= 0;
    simt::fail_call(-1);
    after(subject, threw);
    if (all_were_good || testing::Test::HasFailure()) return n;
  }
}

TEST_F(CudaEngine, LeaksNothingWhicheverCallFails) {
  const SmallSetup s;
  Context good = s.model.context();
  Batch batch = s.batch(7);
  const std::vector<float> expected = all_scores(s.plan, good.run(batch));
  const Held before;
  const int64_t failures =
      fail_each_call([] { return 0; },
                     [&](int) {
                       const Model model = Model::bind(s.plan, s.weights, Tables::load(s.plan, s.tables, cuda()));
                       Context context = model.context();
                       EXPECT_TRUE(same_bits(all_scores(s.plan, context.run(batch)), expected));
                     },
                     [&](int, bool) {
                       EXPECT_EQ(Held(), before);
                       EXPECT_TRUE(same_bits(all_scores(s.plan, good.run(batch)), expected)) << "others go on";
                     });
  EXPECT_GT(failures, 40);
}

TEST_F(CudaEngine, RunsTheNextBatchWhicheverCallOfOneFails) {
  const SmallSetup s;
  Batch batch = s.batch(7), small = s.batch(2);
  Context good = s.model.context();
  const std::vector<float> expected = all_scores(s.plan, good.run(small));
  const int64_t failures =
      fail_each_call([&] { return s.model.context(); }, [&](Context& context) { context.run(batch); },
                     [&](Context& context, bool) {
                       simt::clear_counters();
                       simt::synchronize();
                       EXPECT_EQ(simt::counters().blocks, 0) << "something still reads the batch";
                       EXPECT_TRUE(same_bits(all_scores(s.plan, context.run(small)), expected));
                       EXPECT_TRUE(same_scores(context, good, batch));
                     });
  EXPECT_GT(failures, 20);
}

TEST_F(CudaEngine, KeepsItsModelWhicheverCallOfAnExchangeFails) {
  const TwoModels models(warprank::build(test_support::RandomModel(4)), {{4, 24, {}}, {8, 48, {}}}, few_rows);
  Batch batch = batch_of(models.second, random_requests(models.plan, 9, 1, few_rows));
  Context first = models.first->context(), second = models.second.context();
  const int64_t failures = fail_each_call(
      [&] { return models.first->context(); }, [&](Context& context) { context.rebind(models.second); },
      [&](Context& context, bool threw) { EXPECT_TRUE(same_scores(context, threw ? first : second, batch)); });
  EXPECT_EQ(failures, 3) << "two copies, and one wait";
}

TEST_F(CudaEngine, KeepsItsModelAboveAllCapacitiesWhicheverCallOfAnExchangeFails) {
  const TwoModels models(warprank::build(test_support::RandomModel(4)), {{4, 24, {}}, {8, 48, {}}}, few_rows);
  Batch batch = batch_of(models.second, random_requests(models.plan, 9, 1, few_rows));
  ContextOptions at_once;
  at_once.keep_intermediates = true;
  const auto context_that_ran = [&](const Model& model) {
    Context context = model.context(at_once);
    context.run(batch);
    return context;
  };
  Context first = context_that_ran(*models.first), second = context_that_ran(models.second);
  const int64_t failures = fail_each_call(
      [&] { return context_that_ran(*models.first); }, [&](Context& context) { context.rebind(models.second); },
      [&](Context& context, bool threw) { EXPECT_TRUE(same_scores(context, threw ? first : second, batch)); });
  EXPECT_EQ(failures, 4) << "three copies, and one wait";
}

TEST_F(CudaEngine, KeepsTheLatestSizesAboveAllCapacitiesAlone) {
  const SmallSetup s;
  Context context = s.model.context();
  for (const int64_t items : {14, 16, 20, 24, 28, 32, 40, 48, 56, 64}) {
    test_support::RequestShape shape;
    shape.rows = {{"item", items}};
    Batch batch = batch_of(s.model, random_requests(s.plan, 1, 1, shape));
    context.run(batch);
  }
  const std::string text = context.describe(), above = "above all capacities, up to ";
  int num_kept = 0;
  for (size_t at = text.find(above); at != std::string::npos; at = text.find(above, at + 1)) ++num_kept;
  EXPECT_EQ(num_kept, 8);
  EXPECT_THAT(text, AllOf(HasSubstr("item 64, "), HasSubstr("item 20, "), Not(HasSubstr("item 16, "))));
}

TEST_F(CudaEngine, FetchesUpToAsManyBytesAsItIsTold) {
  const SmallSetup s;
  const std::vector<int64_t> rows = plan::rows_at(s.plan.source(), s.plan.options().capacities[0]);
  const BatchIndex index(static_cast<int64_t>(rows.size()), s.plan.most_requests());
  ContextOptions options;
  options.fetch_bytes = most_blob_bytes(s.plan.layout(), rows) + index.bytes();
  EXPECT_THAT(s.model.context(options).describe(), HasSubstr("  fetch: "));
  --options.fetch_bytes;
  EXPECT_THAT(s.model.context(options).describe(), Not(HasSubstr("  fetch: ")));
}

TEST_F(CudaEngine, ProfilesItsSteps) {
  const SmallSetup s;
  Context context = s.model.context(), good = s.model.context();
  Batch batch = s.batch(4), other = s.batch(2), large = s.batch(7);
  context.run(other);
  const auto ids_seen = [&] {
    int64_t ids = 0;
    for (const FeatureCounters& feature : context.counters()) ids += feature.counters.ids;
    return ids;
  };
  const int64_t seen = ids_seen();
  simt::clear_counters();
  good.run(batch);
  const int64_t launches = simt::counters().launches;
  const Profile profile = context.profile(batch, {2, 3});
  EXPECT_EQ(profile.launches() + 2, launches) << "without what fetches the batch and publishes the scores";
  EXPECT_EQ(profile.steps[0].kernel, "embedding_bag");
  EXPECT_THAT(profile.steps[0].name, HasSubstr(" more"));
  double sum = 0;
  for (const StepTime& step : profile.steps) {
    EXPECT_GT(step.launches, 0) << step.name;
    sum += step.seconds;
  }
  EXPECT_DOUBLE_EQ(profile.seconds, sum);
  EXPECT_GT(profile.empty_seconds, 0);
  EXPECT_LT(profile.empty_seconds, profile.seconds);
  EXPECT_GT(profile.batch_seconds, 0);
  const std::string count = std::to_string(profile.launches());
  EXPECT_THAT(profile.to_string(), testing::StartsWith("     %         us  launches  step\n"));
  EXPECT_THAT(profile.to_string(), HasSubstr("  " + count + "  all\n"));
  EXPECT_THAT(profile.to_string(), HasSubstr("  " + count + "  kernels that do nothing\n"));
  EXPECT_GT(seen, 0);
  EXPECT_EQ(ids_seen(), seen) << "of the run alone";
  EXPECT_TRUE(same_scores(context, good, batch));
  try {
    context.profile(large);
    ADD_FAILURE() << "a batch above all capacities has no graph";
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("profile: batch: expected at most the rows of a capacity: "));
  }
  EXPECT_TRUE(same_scores(context, good, large));
}

TEST_F(CudaEngine, RunsTheNextBatchWhicheverCallOfAProfileFails) {
  const SmallSetup s;
  Batch batch = s.batch(3), small = s.batch(2);
  Context context = s.model.context(), good = s.model.context();
  const Held before;
  const int64_t failures = fail_each_call([] { return 0; },
                                          [&](int) {
                                            context.profile(batch, {1, 1});
                                          },
                                          [&](int, bool) {
                                            EXPECT_EQ(Held(), before);
                                            simt::clear_counters();
                                            simt::synchronize();
                                            EXPECT_EQ(simt::counters().blocks, 0) << "something still runs";
                                            EXPECT_TRUE(same_scores(context, good, small));
                                          });
  EXPECT_GT(failures, 20);
}

/// Whichever call of a rebind between two models of a plan fails, the context has the one or the other.
int64_t fail_each_call_of_rebind(const Plan& plan, const Model (&models)[2]) {
  Batch batch = batch_of(models[0], random_requests(plan, 3, 1));
  std::vector<float> expected[2];
  for (size_t m = 0; m < 2; ++m) {
    Context context = models[m].context();
    expected[m] = all_scores(plan, context.run(batch));
  }
  EXPECT_FALSE(same_bits(expected[0], expected[1]));
  const device::OwnedStream other;
  return fail_each_call([&] { return models[0].context(); }, [&](Context& context) { context.rebind(models[1]); },
                        [&](Context& context, bool threw) {
                          Pending pending = context.submit(batch, reinterpret_cast<StreamHandle>(other.get()));
                          EXPECT_TRUE(same_bits(all_scores(plan, pending.wait()), expected[threw ? 0 : 1]));
                          simt::clear_counters();
                          simt::synchronize();
                          EXPECT_EQ(simt::counters().blocks, 0) << "something is still in flight";
                        });
}

TEST_F(CudaEngine, KeepsItsModelWhicheverCallOfAnExchangeFailsWhereCublasltReadsWeights) {
  const RandomSetup s(7);
  const Tables tables = Tables::load(s.plan, s.tables, cuda());
  BindOptions options;
  options.linear_kernel = LinearKernel::cublaslt;
  const Model models[] = {Model::bind(s.plan, s.weights, tables, options),
                          Model::bind(s.plan, test_support::random_weights(s.plan, 8), tables, options)};
  EXPECT_EQ(fail_each_call_of_rebind(s.plan, models), 3) << "descriptors, weights, and one wait";
}

/// The graphs may hold weights: they are captured again, and what they launch has run before.
TEST_F(CudaEngine, KeepsItsModelWhicheverCallOfAnExchangeWithANewCaptureFails) {
  const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                               const auto user = b.axis("user");
                               const auto deep = b.mlp("deep", b.dense("x", user, 8), {16, 8}, relu);
                               return {{"score", b.linear("last", b.custom("filled", {deep}, user, 8), 1)}};
                             }),
                             {});
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  BindOptions options;
  options.cuda_custom["filled"] = [](const CudaCustomCall& call) {
    const FloatMatrix<void>& y = call.output;
    device::fill(y.data, 0x3c, y.rows * y.stride * size_of(y.type), reinterpret_cast<device::Stream>(call.stream));
  };
  const Model models[] = {Model::bind(plan, test_support::random_weights(plan, 7), tables, options),
                          Model::bind(plan, test_support::random_weights(plan, 8), tables, options)};
  EXPECT_GT(fail_each_call_of_rebind(plan, models), 6);
}

TEST_F(CudaEngine, AsksForAllMemoryBeforeItTakesAny) {
  const RandomSetup s(6, {{2, 16, {}}, {4, 24, {}}});
  const int64_t before = simt::allocated_bytes();
  int64_t taken = 0;
  {
    Context context = s.model.context();
    taken = simt::allocated_bytes() - before;
    int64_t reported = 0;
    for (const auto& [what, bytes] : context.memory()) reported += what.rfind("pinned", 0) == 0 ? 0 : bytes;
    EXPECT_EQ(reported, taken);
  }
  simt::limit_memory(before + taken - 1, int64_t{1} << 40);
  simt::clear_calls();
  try {
    s.model.context();
    FAIL();
  } catch (const out_of_device_memory& error) {
    for (const char* part :
         {"a context (bytes: input ", ", arena ", ", outputs ", ", counters ", ", descriptors ", ", workspaces "})
      EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), Not(HasSubstr(" 0"))) << "everything needs something";
    EXPECT_EQ(error.needed_bytes(), taken);
    EXPECT_EQ(error.free_bytes(), taken - 1);
  }
  EXPECT_EQ(simt::calls().allocations.count, 0);
  simt::limit_memory(before + taken, int64_t{1} << 40);
  EXPECT_NO_THROW(s.model.context());
}

TEST_F(CudaEngine, RefusesWhatCannotRunAndStaysUsable) {
  const SmallSetup s;
  const RandomSetup other(7);
  Context context = s.model.context();
  Batch batch = s.batch(2), foreign = other.model.batch();
  const std::vector<float> expected = all_scores(s.plan, context.run(batch));
  const Held before;
  const auto expect_error = [&](const char* message, auto call) {
    SCOPED_TRACE(message);
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
    EXPECT_EQ(Held(), before);
    EXPECT_TRUE(same_bits(all_scores(s.plan, context.run(batch)), expected));
  };
  expect_error("use device 3: expected an index from 0 to ", [&] { Tables::load(s.plan, s.tables, cuda(3)); });
  expect_error("expected a tensor",
               [&] { Model::bind(s.plan, other.weights, Tables::load(s.plan, s.tables, cuda())); });
  expect_error("batch: expected one of this plan's axes and inputs", [&] { context.run(foreign); });
  expect_error("expected one batch at a time", [&] {
    const Pending pending = context.submit(batch);
    context.submit(batch);
  });
  const auto model_of = [&](int64_t items, int64_t width) {
    const Plan plan = plan_for(warprank::build([width](Builder& b) -> Outputs {
                                 return {{"y", b.linear("wide", b.dense("x", b.axis("user"), 8), width)}};
                               }),
                               {}, {{items, items, {}}});
    return Model::bind(plan, test_support::random_weights(plan, 1),
                       Tables::load(plan, Weights::from_tensors({}), cuda()));
  };
  constexpr int64_t most_rows = (int64_t{1} << 30) - 1;
  simt::limit_memory(before.bytes + (1 << 22), int64_t{1} << 40);
  expect_error("of device memory, got ", [&] { model_of(most_rows, 1).context(); });
  expect_error("expected at most 2^31 - 1 blocks", [&] { model_of(most_rows, 1 << 15).context(); });
  expect_error("number of bags: expected a capacity of less than 1073741824, got 1073741824",
               [&] { model_of(most_rows + 1, 1).context(); });
}

/// What loading tables says where that is installed.
std::string refusal(const Config& config, const simt::Installed& installed, int index = 0) {
  const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                               return {{"y", b.dense("x", b.axis("user"), 1)}};
                             }),
                             {});
  kernel_testing::reset(config);
  simt::install(installed);
  std::string text;
  try {
    Tables::load(plan, Weights::from_tensors({}), cuda(index));
  } catch (const cuda_error& error) {
    text = error.what();
  }
  EXPECT_EQ(why_no_cuda(index), text);
  if (!text.empty()) {
    EXPECT_EQ(simt::allocated_bytes() + simt::pinned_bytes() + simt::num_streams(), 0);
  }
  return text;
}

TEST(CudaEngineAlone, SaysThatThereIsNoDevice) {
  Config config;
  config.devices = 0;
  EXPECT_THAT(refusal(config, {}), testing::AllOf(HasSubstr("got none"), HasSubstr("cudaErrorInsufficientDriver")));
  EXPECT_EQ(num_cuda_devices(), 0);
}

TEST(CudaEngineAlone, SaysWhatTheDriverAndTheCardLack) {
  EXPECT_THAT(refusal({}, {12020, 13000}), testing::AllOf(HasSubstr("got one for CUDA 12.2"), HasSubstr("580.65.06")));
  EXPECT_THAT(refusal({}, {12000, 12040, 70}), HasSubstr("got executor of 7.0"));
  EXPECT_THAT(refusal({}, {}, 1), HasSubstr("cudaErrorInvalidDevice"));
  EXPECT_EQ(refusal({}, {12000, 12040}), "");
  EXPECT_EQ(refusal({}, {13010, 12040}), "");
}
#endif

}}  // namespace warprank
