// SPDX-License-Identifier: Apache-2.0
//
// From tensors of the Open Inference Protocol to requests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../examples/server/answer.hpp"
#include "../../examples/server/named_requests.hpp"
#include "../../examples/server/recorder.hpp"
#include "../../examples/server/tensor.hpp"
#include "meituan_like.hpp"
#include "support/message_of.hpp"
#include "warprank/model.hpp"
#include "warprank/serving.hpp"

namespace kserve { namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using warprank::test_support::message_of;
using namespace warprank;

/// Tensors and the bytes that they point to.
class Tensors {
 public:
  template <class Value>
  Tensors& add(std::string_view name, std::string_view datatype, std::vector<int64_t> shape,
               const std::vector<Value>& values) {
    std::string& bytes = bytes_->emplace_back(" ");  // so that values lie at odd addresses
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
    list_.push_back({name, datatype, std::move(shape), std::string_view(bytes).substr(1), {}});
    return *this;
  }
  Tensors& ids(std::string_view name, const std::vector<int64_t>& values) {
    return add(name, "INT64", {static_cast<int64_t>(values.size())}, values);
  }
  Tensors& dense(std::string_view name, int64_t width, const std::vector<float>& values) {
    return add(name, "FP32", {static_cast<int64_t>(values.size()) / width, width}, values);
  }
  Tensors& without(std::string_view name) {
    for (size_t i = list_.size(); i-- > 0;)
      if (list_[i].name == name) list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(i));
    return *this;
  }
  const std::vector<Tensor>& list() const { return list_; }

 private:
  std::shared_ptr<std::list<std::string>> bytes_ = std::make_shared<std::list<std::string>>();  // copies share them
  std::vector<Tensor> list_;
};

class NamedRequestsTest : public testing::Test {
 protected:
  std::string problem(const Tensors& tensors, int64_t most = 100) const {
    return message_of([&] { NamedRequests(layout_, names_, tensors.list(), most); });
  }
  /// The blobs of all requests, or their messages.
  std::vector<std::string> blobs(const Tensors& tensors) const {
    const NamedRequests requests(layout_, names_, tensors.list(), 100);
    Batch batch(layout_);
    for (int64_t r = 0; r < requests.size(); ++r) requests.fill(batch.add_request(), r);
    return blobs(batch);
  }
  static std::vector<std::string> blobs(Batch& batch) {
    batch.close();
    std::vector<std::string> blobs;
    for (int64_t r = 0; r < batch.size(); ++r) {
      if (!batch.status(r).ok()) {
        blobs.push_back(batch.status(r).message);
        continue;
      }
      const BlobView blob = batch.blob(r);
      blobs.emplace_back(reinterpret_cast<const char*>(blob.data()), static_cast<size_t>(blob.bytes()));
    }
    return blobs;
  }
  /// Three requests of 2, 0 and 1 items with 2 + 1 and 1 genres, and histories of 1, 2 and 0 films.
  static Tensors three() {
    return Tensors()
        .ids("user_id", {42, 43, 44})
        .dense("hour", 1, {1, 2, 3})
        .ids("item.offsets", {0, 2, 2, 3})
        .ids("film_id", {7, 8, 9})
        .dense("context", 2, {0.5f, 1, 1.5f, 2, 2.5f, 3})
        .ids("genres.offsets", {0, 2, 3, 4})
        .ids("genre", {1, 2, 3, 4})
        .ids("history.offsets", {0, 1, 3, 3})
        .ids("seen", {70, 80, 81});
  }
  std::vector<std::string> expected_three() const {
    Batch batch(layout_);
    const IdsSlot user = layout_.ids("user_id"), film = layout_.ids("film_id"), genre = layout_.ids("genre"),
                  seen = layout_.ids("seen");
    const DenseSlot hour = layout_.dense("hour"), context = layout_.dense("context");
    batch.add_request()
        .ids(user, {42})
        .dense(hour, {1})
        .ids(film, {7, 8})
        .dense(context, {0.5f, 1, 1.5f, 2})
        .ids(genre, {1, 2, 3}, Lengths{2, 1})
        .ids(seen, {70});
    batch.add_request()
        .ids(user, {43})
        .dense(hour, {2})
        .ids(film, {})
        .dense(context, {})
        .ids(genre, {}, Lengths{})
        .ids(seen, {80, 81});
    batch.add_request()
        .ids(user, {44})
        .dense(hour, {3})
        .ids(film, {9})
        .dense(context, {2.5f, 3})
        .ids(genre, {4}, Lengths{1})
        .ids(seen, {});
    return blobs(batch);
  }

  const Plan plan_ = compile([](Builder& b) -> Outputs {
    auto user = b.axis("user"), item = b.axis("item", user), genres = b.axis("genres", item);
    auto history = b.axis("history", user, keep_last(2));
    auto table = [&](const char* name) { return b.table(name, {.dim = 4}); };
    auto u =
        b.concat({b.embed(b.ids("user_id", user), table("users")), b.dense("hour", user, 1, {.default_value = 12.0f}),
                  b.embed_bag(b.ids("seen", history), table("seen_films"), sum)});
    auto i = b.concat({b.embed(b.ids("film_id", item), table("films")), b.dense("context", item, 2),
                       b.embed_bag(b.ids("genre", genres), table("all_genres"), mean)});
    return {{"y", b.sigmoid(b.mlp("top", b.concat({b.expand(u, item), i}), {1}, relu))}};
  });
  const BatchLayout& layout_ = plan_.layout();
  const TensorNames names_{plan_.source()};
};

TEST_F(NamedRequestsTest, MakesOfManyRequestsWhatEachOfThemWouldBePackedTo) {
  EXPECT_EQ(blobs(three()), expected_three());
}

TEST_F(NamedRequestsTest, TakesTheOrderAndTheShapesThatClientsSend) {
  Tensors tensors;
  tensors.add<int64_t>("seen", "INT64", {3, 1}, {70, 80, 81})
      .add<int32_t>("history.offsets", "INT32", {4}, {0, 1, 3, 3})
      .add<int32_t>("genre", "INT32", {4}, {1, 2, 3, 4})
      .ids("genres.offsets", {0, 2, 3, 4})
      .dense("context", 2, {0.5f, 1, 1.5f, 2, 2.5f, 3})
      .add<uint64_t>("film_id", "UINT64", {3, 1}, {7, 8, 9})
      .ids("item.offsets", {0, 2, 2, 3})
      .add<float>("hour", "FP32", {3}, {1, 2, 3})
      .ids("user_id", {42, 43, 44});
  EXPECT_EQ(blobs(tensors), expected_three());
}

TEST_F(NamedRequestsTest, NeedsNoOffsetsOfAxesInTheOutermostForOneRequest) {
  Tensors tensors;
  tensors.ids("user_id", {42}).dense("hour", 1, {1}).ids("film_id", {7, 8}).dense("context", 2, {0.5f, 1, 1.5f, 2});
  tensors.ids("genres.offsets", {0, 2, 3}).ids("genre", {1, 2, 3}).ids("seen", {70});
  EXPECT_EQ(blobs(tensors), std::vector<std::string>{expected_three()[0]});
}

TEST_F(NamedRequestsTest, LeavesOutWhatHasADefaultAndKeepsTheLastOfLongHistories) {
  Tensors tensors;
  tensors.ids("user_id", {42}).ids("film_id", {7}).dense("context", 2, {1, 2}).ids("seen", {1, 2, 3});
  const std::vector<std::string> got = blobs(tensors);
  Batch batch(layout_);
  batch.add_request()
      .ids(layout_.ids("user_id"), {42})
      .ids(layout_.ids("film_id"), {7})
      .dense(layout_.dense("context"), {1, 2})
      .ids(layout_.ids("seen"), {2, 3});
  EXPECT_EQ(got, blobs(batch));
}

TEST_F(NamedRequestsTest, LetsTheNeighboursOfAWrongRequestBeScored) {
  Tensors tensors = three().without("hour");
  tensors.dense("hour", 1, {1, std::numeric_limits<float>::quiet_NaN(), 3});
  const std::vector<std::string> got = blobs(tensors), expected = expected_three();
  EXPECT_EQ(got[0], expected[0]);
  EXPECT_THAT(got[1], HasSubstr("'hour'"));
  EXPECT_EQ(got[2], expected[2]);
}

TEST_F(NamedRequestsTest, RefusesTensorsThatAreNoInputs) {
  EXPECT_THAT(
      problem(three().ids("film_ids", {1})),
      HasSubstr("tensor 'film_ids': expected an input of the model, got an unknown name; did you mean 'film_id'?"));
  EXPECT_THAT(problem(three().ids("user.offsets", {0, 3})), HasSubstr("tensor 'user.offsets'"));
  EXPECT_THAT(problem(three().ids("film_id", {1, 2, 3})),
              HasSubstr("tensor 'film_id': expected one tensor of that name, got a second one"));
  EXPECT_THAT(problem(Tensors().ids(std::string(100'000, 'x'), {1})), HasSubstr("tensor 'xxx"));
  Tensors many;
  for (int i = 0; i < 19; ++i) many.ids("film_id", {1});
  EXPECT_EQ(problem(many), "tensors: expected the model's 9, got 19");
}

TEST_F(NamedRequestsTest, RefusesOtherTypesAndShapes) {
  const auto with = [](std::string_view name, auto add) {
    Tensors tensors = three().without(name);
    add(tensors);
    return tensors;
  };
  EXPECT_THAT(problem(with("film_id",
                           [](Tensors& t) {
                             t.add<float>("film_id", "FP32", {3}, {1, 2, 3});
                           })),
              HasSubstr("tensor 'film_id': expected INT64, got FP32"));
  EXPECT_THAT(problem(with("context",
                           [](Tensors& t) {
                             t.add<int64_t>("context", "INT64", {3}, {1, 2, 3});
                           })),
              HasSubstr("tensor 'context': expected FP32, got INT64"));
  EXPECT_THAT(problem(with("item.offsets", [](Tensors& t) { t.add<uint64_t>("item.offsets", "UINT64", {1}, {0}); })),
              HasSubstr("tensor 'item.offsets': expected INT64 or INT32, got UINT64"));
  EXPECT_THAT(problem(with("context",
                           [](Tensors& t) {
                             t.dense("context", 3, {1, 2, 3, 4, 5, 6});
                           })),
              HasSubstr("tensor 'context': expected the shape [rows, 2], got [2, 3]"));
  EXPECT_THAT(problem(with("film_id",
                           [](Tensors& t) {
                             t.add<int64_t>("film_id", "INT64", {1, 3}, {1, 2, 3});
                           })),
              HasSubstr("tensor 'film_id': expected the shape [rows], got [1, 3]"));
  EXPECT_THAT(problem(with("item.offsets",
                           [](Tensors& t) {
                             t.add<int64_t>("item.offsets", "INT64", {1, 1}, {1});
                           })),
              HasSubstr("tensor 'item.offsets': expected the shape [rows], got [1, 1]"));
  EXPECT_THAT(problem(with("film_id", [](Tensors& t) { t.add<int64_t>("film_id", "INT64", {-1}, {}); })),
              HasSubstr("got [-1]"));
  EXPECT_THAT(problem(with("film_id",
                           [](Tensors& t) {
                             t.add<int64_t>("film_id", "INT64", {3}, {1, 2});
                           })),
              HasSubstr("tensor 'film_id': expected the bytes of a INT64 of shape [3], got 16 bytes"));
  const int64_t huge = int64_t{1} << 61;  // times 8 is 0 in 64 bits
  EXPECT_THAT(problem(with("film_id", [&](Tensors& t) { t.add<int64_t>("film_id", "INT64", {huge}, {}); })),
              HasSubstr("got 0 bytes"));
}

TEST_F(NamedRequestsTest, RefusesOffsetsThatAreNone) {
  const auto with = [](std::string_view name, const std::vector<int64_t>& values) {
    return three().without(name).ids(name, values);
  };
  EXPECT_THAT(problem(with("genres.offsets", {0, 2, 1, 4})),
              HasSubstr("tensor 'genres.offsets': expected offsets that never decrease, got 1 behind 2"));
  EXPECT_THAT(problem(with("genres.offsets", {1, 2, 3, 4})),
              HasSubstr("tensor 'genres.offsets': expected 0 as the first offset, got 1"));
  EXPECT_THAT(problem(with("genres.offsets", {0, 4})),
              HasSubstr("tensor 'genres.offsets': expected 4 offsets, one more than rows of 'item', got 2"));
  EXPECT_THAT(problem(with("genres.offsets", {0, 2, 3, 5})),
              HasSubstr("tensor 'genre': expected 5 rows, as tensor 'genres.offsets' has, got 4"));
  EXPECT_THAT(problem(with("item.offsets", {0, 2, 3})),
              HasSubstr("tensor 'item.offsets': expected 3 requests, as tensor 'user_id' has, got 2"));
  EXPECT_THAT(problem(three().without("item.offsets")),
              HasSubstr("tensor 'item.offsets': expected where the rows of each 'user' begin, got no such tensor"));
  EXPECT_THAT(problem(three().without("genres.offsets")),
              HasSubstr("tensor 'genres.offsets': expected where the rows of each 'item' begin, got no such tensor"));
  EXPECT_THAT(problem(with("item.offsets", {})), HasSubstr("expected 3 requests, as tensor 'user_id' has, got -1"));
}

TEST_F(NamedRequestsTest, RefusesInputsOfAnAxisThatDisagree) {
  Tensors tensors;
  tensors.ids("user_id", {42}).ids("film_id", {7, 8}).dense("context", 2, {1, 2});
  EXPECT_THAT(problem(tensors), HasSubstr("tensor 'context': expected 2 rows, as tensor 'film_id' has, got 1"));
}

TEST_F(NamedRequestsTest, RefusesMoreRequestsThanAreAllowedAndNone) {
  EXPECT_EQ(problem(three(), 3), "");
  EXPECT_THAT(problem(three(), 2), HasSubstr("tensor 'user_id': expected 1 to 2 requests, got 3"));
  EXPECT_THAT(problem(Tensors().ids("user_id", {})), HasSubstr("tensor 'user_id': expected 1 to 100 requests, got 0"));
}

TEST_F(NamedRequestsTest, TellsAllProblemsTogether) {
  const std::string message = problem(three().ids("nobody", {1}).dense("none", 1, {1}));
  EXPECT_THAT(message, HasSubstr("'nobody'"));
  EXPECT_THAT(message, HasSubstr("'none'"));
}

TEST(TensorNames, RefusesInputsThatAreCalledAsTheServersOwnTensors) {
  const auto named = [](const std::string& name) {
    const Plan plan = compile([&](Builder& b) -> Outputs {
      auto user = b.axis("user"), item = b.axis("item", user);
      return {{"y", b.sigmoid(b.dense(name, item, 1))}};
    });
    return message_of([&] { TensorNames names(plan.source()); });
  };
  EXPECT_EQ(named("x"), "");
  EXPECT_EQ(named("offsets"), "");
  for (const char* name : {"item.offsets", "x.offsets", "request_blobs", "errors"})
    EXPECT_EQ(named(name),
              "input '" + std::string(name) + "': expected a name that is not the server's own, got one that is");
}

TEST(ModelOutputs, AreNotCalledAsTheServersOwnTensors) {
  const auto named = [](const std::string& name) {
    const Graph graph = build([&](Builder& b) -> Outputs {
      auto user = b.axis("user"), item = b.axis("item", user);
      return {{name, b.sigmoid(b.dense("x", item, 1))}};
    });
    return message_of([&] { ModelOutputs outputs(graph); });
  };
  EXPECT_EQ(named("y"), "");
  for (const char* name : {"item.offsets", "user.offsets", "request_blobs", "errors"})
    EXPECT_EQ(named(name),
              "output '" + std::string(name) + "': expected a name that is not the server's own, got one that is");
}

TEST(NamedRequests, TakeTheLargestIdWithoutASignForNoPadding) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    auto user = b.axis("user");
    const auto direct = b.table("direct", {.dim = 1});
    const auto both = b.ids("both", user);
    return {{"y", b.concat({b.embed(b.ids("direct_id", user), direct),
                            b.embed(b.ids("padded", user, {.padding = 7}), direct),
                            b.embed(b.ids("key", user), b.hashed_table("hashed", {.dim = 1})), b.embed(both, direct),
                            b.embed(both, b.hashed_table("hashed2", {.dim = 1}))})}};
  });
  const TensorNames names(plan.source());
  Tensors tensors;
  const uint64_t largest = std::numeric_limits<uint64_t>::max();
  for (const char* name : {"direct_id", "padded", "key", "both"})
    tensors.add<uint64_t>(name, "UINT64", {3}, {largest, largest - 1, 5});
  const NamedRequests requests(plan.layout(), names, tensors.list(), 3);
  const auto ids = [&](const char* name) {
    std::vector<int64_t> all;
    for (int64_t r = 0; r < 3; ++r) {
      Batch batch = plan.batch();
      requests.fill(batch.add_request(), r);
      batch.close();
      EXPECT_TRUE(batch.status(0).ok()) << batch.status(0).message;
      all.push_back(batch.blob(0).ids(plan.ids(name))[0]);
    }
    return all;
  };
  EXPECT_THAT(ids("direct_id"), ElementsAre(-2, -2, 5)) << "-1 would be padding";
  for (const char* name : {"padded", "key", "both"}) EXPECT_THAT(ids(name), ElementsAre(-1, -2, 5)) << name;
}

std::string with_lengths(const std::vector<std::string>& elements) {
  std::string bytes;
  for (const std::string& element : elements) {
    const auto size = static_cast<uint32_t>(element.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size).append(element);
  }
  return bytes;
}

TEST(ByteElements, AreFoundByTheirLengthsOrComeOneByOne) {
  const std::string bytes = with_lengths({"abc", "", "de"});
  EXPECT_THAT(byte_elements({"b", "BYTES", {3}, bytes, {}}), ElementsAre("abc", "", "de"));
  EXPECT_THAT(byte_elements({"b", "BYTES", {2}, {}, {"x", "yz"}}), ElementsAre("x", "yz"));
  EXPECT_THAT(byte_elements({"b", "BYTES", {0}, {}, {}}), ElementsAre());
}

TEST(ByteElements, RefuseWhatIsNoTensorOfThem) {
  const std::string bytes = with_lengths({"abc", "de"});
  const auto problem = [](const Tensor& tensor) { return message_of([&] { byte_elements(tensor); }); };
  EXPECT_EQ(problem({"b", "INT64", {1}, bytes, {}}), "tensor 'b': expected BYTES, got INT64");
  EXPECT_EQ(problem({"b", "BYTES", {2, 1}, bytes, {}}), "tensor 'b': expected one dimension, got [2, 1]");
  EXPECT_EQ(problem({"b", "BYTES", {3}, bytes, {}}), "tensor 'b': expected 3 elements, as its shape says, got 2");
  EXPECT_EQ(problem({"b", "BYTES", {2}, std::string_view(bytes).substr(0, bytes.size() - 1), {}}),
            "tensor 'b': expected an element of 2 bytes, as its length says, got 1 bytes at the end");
  EXPECT_EQ(problem({"b", "BYTES", {2}, std::string_view(bytes).substr(0, 9), {}}),
            "tensor 'b': expected a length of 4 bytes in front of each element, got 2 bytes at the end");
}

TEST(Recorder, KeepsTheLastOfEveryFewRequests) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    auto user = b.axis("user");
    return {{"y", b.sigmoid(b.dense("x", user, 1))}};
  });
  const auto kept = [&](int64_t every) {
    Recorder recorder(plan, every, 3);
    for (int i = 0; i < 11; ++i)
      recorder.offer([&](Batch& batch) {
        batch.add_request().dense(plan.dense("x"), {i == 4 ? std::nanf("") : static_cast<float>(i)});
      });
    std::vector<float> values;
    for (const std::vector<std::byte>& blob : recorder.blobs()) {
      Batch batch = plan.batch();
      batch.add_blob(blob);
      batch.close();
      values.push_back(batch.blob(0).dense(plan.dense("x"))[0]);
    }
    return values;
  };
  EXPECT_THAT(kept(0), ElementsAre());
  EXPECT_THAT(kept(5), ElementsAre(0, 5, 10));
  EXPECT_THAT(kept(4), ElementsAre(0, 8)) << "the one in between is wrong";
  EXPECT_THAT(kept(2), ElementsAre(8, 10, 6)) << "of 0, 2, 6, 8 and 10";
}

TEST(Blobs, AreLessThanHalfOfRequestsThatRepeatTheUser) {
  const Plan plan = compile(models::meituan_like, {.capacities = {{.requests = 1, .items = 200}}});
  Batch batch = plan.batch();
  Request request = batch.add_request();
  constexpr int64_t items = 200, history = 100;
  int64_t repeated = 0;  // bytes where every row has the user's features and padded histories
  for (size_t i = 0; i < plan.layout().ids().size(); ++i) {
    const AxisInfo& axis = plan.layout().axes()[static_cast<size_t>(plan.layout().ids()[i].axis)];
    const int64_t rows = axis.parent == -1 ? 1 : axis.keep_last > 0 ? history : items;
    request.ids(IdsSlot{static_cast<int>(i)}, std::vector<int64_t>(static_cast<size_t>(rows), 1));
    repeated += items * (axis.keep_last > 0 ? history : 1) * 8;
  }
  batch.close();
  EXPECT_EQ(repeated, 545'600);
  EXPECT_EQ(batch.blob(0).bytes(), 84'568);
}

class AnswerTest : public testing::Test {
 protected:
  static Reply scored(std::vector<std::vector<float>> scores) {
    Reply reply;
    reply.scores = std::move(scores);
    return reply;
  }
  static Reply wrong(const std::string& message) {
    Reply reply;
    reply.outcome = Outcome::bad_request;
    reply.message = message;
    return reply;
  }
  template <class Value>
  static std::vector<Value> values(const OutputTensor& tensor) {
    std::vector<Value> values(tensor.bytes.size() / sizeof(Value));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  static std::vector<std::string> names(const std::vector<OutputTensor>& tensors) {
    std::vector<std::string> names;
    for (const OutputTensor& tensor : tensors) names.push_back(tensor.name);
    return names;
  }

  const Plan plan_ = compile([](Builder& b) -> Outputs {
    auto user = b.axis("user"), item = b.axis("item", user);
    auto x = b.dense("x", item, 2);
    return {
        {"item_y", b.sigmoid(x)}, {"item_z", b.linear("z", x, 1)}, {"user_y", b.linear("u", b.dense("v", user, 1), 1)}};
  });
  const ModelOutputs outputs_{plan_.source()};
};

TEST_F(AnswerTest, HasTheOutputsOfOneRequest) {
  const auto tensors = answer(outputs_, outputs_.find({}), {scored({{1, 2, 3, 4}, {5, 6}, {7}})});
  EXPECT_THAT(names(tensors), ElementsAre("item_y", "item_z", "user_y"));
  EXPECT_EQ(tensors[0].datatype, "FP32");
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 2));
  EXPECT_THAT(tensors[1].shape, ElementsAre(2, 1));
  EXPECT_THAT(values<float>(tensors[0]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values<float>(tensors[2]), ElementsAre(7));
}

TEST_F(AnswerTest, TellsWhichRowsAreWhoseAndWhatWasNotScored) {
  const auto tensors =
      answer(outputs_, outputs_.find({"user_y", "item_z"}),
             {scored({{1, 2}, {3}, {4}}), wrong("no"), scored({{}, {}, {5}}), scored({{6, 7, 8, 9}, {10, 11}, {12}})});
  EXPECT_THAT(names(tensors), ElementsAre("user_y", "user.offsets", "item_z", "item.offsets", "errors"));
  EXPECT_THAT(values<float>(tensors[0]), ElementsAre(4, 5, 12));
  EXPECT_THAT(values<int64_t>(tensors[1]), ElementsAre(0, 1, 1, 2, 3));
  EXPECT_THAT(values<float>(tensors[2]), ElementsAre(3, 10, 11));
  EXPECT_THAT(values<int64_t>(tensors[3]), ElementsAre(0, 1, 1, 1, 3));
  EXPECT_THAT(tensors[3].shape, ElementsAre(5));
  EXPECT_EQ(tensors[4].bytes, with_lengths({"", "no", "", ""}));
}

TEST_F(AnswerTest, HasTheOffsetsOfAnAxisOnce) {
  const auto tensors = answer(outputs_, {0, 1}, {scored({{1, 2}, {3}, {4}}), scored({{1, 2}, {3}, {4}})});
  EXPECT_THAT(names(tensors), ElementsAre("item_y", "item.offsets", "item_z"));
  EXPECT_THAT(values<int64_t>(tensors[1]), ElementsAre(0, 1, 2));
}

TEST_F(AnswerTest, RefusesUnknownOutputs) {
  EXPECT_THAT(
      message_of([&] {
        outputs_.find({"item_y", "itemz"});
      }),
      HasSubstr("output 'itemz': expected an output of the model, got an unknown name; did you mean 'item_z'?"));
}

}}  // namespace kserve
