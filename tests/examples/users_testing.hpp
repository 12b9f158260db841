// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model whose users are asked about again, and servers of it.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "examples/server_testing.hpp"
#include "support/divided.hpp"
#include "support/plain_request.hpp"
#include "support/random_data.hpp"

namespace kserve {

using warprank::test_support::add_to;
using warprank::test_support::part_of;
using warprank::test_support::PlainRequest;

/// A history of sessions that a user has, and films of these sessions that a page shows, with genres.
inline Outputs page_model(Builder& b) {
  const auto user = b.axis("user"), event = b.axis("event", user, warprank::keep_last(6));
  const auto session = b.axis("session", user), item = b.axis("item", session), genres = b.axis("genres", item);
  const auto films = b.table("films", {.dim = 8, .rows = 40});
  const auto age = b.mlp("tower", b.dense("age", user, 3), {8, 4}, warprank::relu);
  const auto seen = b.pool(b.embed(b.ids("seen", event), films), warprank::sum);
  const auto of_user = b.mlp("user_tower", b.concat({seen, age}), {16, 8}, warprank::relu);
  const auto mood = b.linear("mood_tower", b.dense("mood", session, 1), 2);
  const auto film = b.embed(b.ids("film", item), films);
  const auto genre = b.embed_bag(b.ids("genre", genres), films, warprank::mean);
  const auto all = b.concat({film, genre, b.expand(of_user, item), b.expand(mood, item)});
  return {{"score", b.mlp("top", all, {8, 1})}};
}

/// Pages of users, whose user's side is the same for all pages.
inline PlainRequest page_of(int user, int page) {
  PlainRequest request;
  std::mt19937 random(static_cast<uint32_t>(user));
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % static_cast<uint32_t>(end)); };
  const auto id = [&] { return below(40); };
  const int64_t events = user % 4, sessions = 1 + user % 2;  // some have no history
  request.lengths["event"] = {events};
  request.lengths["session"] = {sessions};
  request.ids["seen"] = {};
  for (int64_t e = 0; e < events; ++e) request.ids["seen"].push_back(id());
  for (int i = 0; i < 3; ++i) request.dense["age"].push_back(static_cast<float>(below(100)) / 50);
  for (int64_t s = 0; s < sessions; ++s) request.dense["mood"].push_back(static_cast<float>(below(100)) / 50);
  random.seed(static_cast<uint32_t>(1000 + page));
  request.ids["film"] = request.ids["genre"] = {};
  for (int64_t s = 0; s < sessions; ++s) {
    request.lengths["item"].push_back(2 + below(3));
    for (int64_t i = 0; i < request.lengths["item"].back(); ++i) {
      request.ids["film"].push_back(id());
      request.lengths["genres"].push_back(below(3));
      for (int64_t g = 0; g < request.lengths["genres"].back(); ++g) request.ids["genre"].push_back(id());
    }
  }
  return request;
}

/// The inputs that a layout has of a request, as named tensors.
inline ModelInferRequest named(const PlainRequest& plain, const warprank::BatchLayout& layout) {
  ModelInferRequest request;
  request.set_model_name("model");
  const PlainRequest part = part_of(plain, layout);
  for (const auto& [axis, lengths] : part.lengths) {
    std::vector<int64_t> offsets = {0};
    for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
    add_raw(request, axis + ".offsets", "INT64", {static_cast<int64_t>(offsets.size())}, bytes(offsets));
  }
  for (const auto& [name, ids] : part.ids)
    add_raw(request, name, "INT64", {static_cast<int64_t>(ids.size())}, bytes(ids));
  for (const auto& [name, values] : part.dense) {
    const int64_t width = layout.dense(layout.dense(name)).width;
    add_raw(request, name, "FP32", {static_cast<int64_t>(values.size()) / width, width}, bytes(values));
  }
  return request;
}
inline std::string blob_of(const PlainRequest& plain, const warprank::BatchLayout& layout) {
  warprank::Batch batch(layout);
  add_to(batch, part_of(plain, layout));
  const warprank::BlobView view = batch.blob(0);
  return {reinterpret_cast<const char*>(view.data()), static_cast<size_t>(view.bytes())};
}
inline ModelInferRequest packed(const std::vector<std::string>& blobs) {
  ModelInferRequest request;
  request.set_model_name("model");
  std::string raw;
  for (const std::string& blob : blobs) raw += bytes(std::vector<uint32_t>{static_cast<uint32_t>(blob.size())}) + blob;
  add_raw(request, blobs_name, "BYTES", {static_cast<int64_t>(blobs.size())}, raw);
  return request;
}
inline ModelInferRequest about(const std::string& user, ModelInferRequest request) {
  (*request.mutable_parameters())[user_state].set_string_param(user);
  return request;
}

struct Answer {
  grpc::Status status;
  std::string scores, version;
  bool is_kept;
};

/// The servers of one model, the one divided and the other not.
class UsersTest : public testing::Test {
 protected:
  /// What each server needs.
  class Running {
   public:
    Running(warprank::Servable model, warprank::Tables tables, warprank::UserStates* states, const UsersTest& test)
        : served_(std::move(model), std::move(tables), {.contexts = 2}),
          hosted_(served_, [&test] { return test.model(test.next_); }, {.users = states}),
          server_(hosted_, {.address = "127.0.0.1:0"}) {}

    std::shared_ptr<grpc::Channel> channel() const {
      return grpc::CreateChannel("127.0.0.1:" + std::to_string(server_.port()), grpc::InsecureChannelCredentials());
    }
    Answer ask(const ModelInferRequest& request) const {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
      ModelInferResponse response;
      const grpc::Status status = stub_->ModelInfer(&context, request, &response);
      const auto found = response.parameters().find("user_state");
      const bool is_kept = found != response.parameters().end();
      EXPECT_EQ(is_kept ? found->second.string_param() : "kept", "kept");
      return {status, raw_outputs(response)["score"], response.model_version(), is_kept};
    }
    void load(warprank::SwapMode mode) { hosted_.load(mode, warprank::LoaderPriority::as_caller); }
    warprank::ServiceCounters counters() { return hosted_.service().counters(); }
    warprank::ServedModel& served() { return served_; }
    HostedModel& hosted() { return hosted_; }
    Server& server() { return server_; }

   private:
    warprank::ServedModel served_;
    HostedModel hosted_;
    Server server_;
    const std::unique_ptr<GRPCInferenceService::Stub> stub_ = GRPCInferenceService::NewStub(channel());
  };

  warprank::NextModel model(size_t number) const { return {.dense = dense_[number], .tables = rows_[number]}; }
  std::unique_ptr<Running> divided(warprank::UserStates& states) const {
    warprank::Tables tables = warprank::Tables::load(plan_, rows_[0], warprank::host());
    warprank::Servable both = warprank::Servable::bind(warprank::divide(plan_, "item"), dense_[0], tables);
    return std::make_unique<Running>(std::move(both), std::move(tables), &states, *this);
  }
  std::unique_ptr<Running> undivided() const {
    warprank::Tables tables = warprank::Tables::load(plan_, rows_[0], warprank::host());
    warprank::Model model = warprank::Model::bind(plan_, dense_[0], tables);
    return std::make_unique<Running>(std::move(model), std::move(tables), nullptr, *this);
  }

  ModelInferRequest whole(int user, int page) const { return named(page_of(user, page), plan_.layout()); }
  ModelInferRequest later(int user, int page) const { return named(page_of(user, page), later_layout_); }
  const warprank::Plan plan_ = warprank::compile(
      page_model,
      {.capacities = {{.requests = 4, .items = 40, .rows = {{"event", 24}, {"session", 8}, {"genres", 80}}}}});
  const warprank::BatchLayout later_layout_ = warprank::divide(plan_, "item").later_requests;
  const std::vector<warprank::Weights> dense_ = {warprank::test_support::random_weights(plan_, 1),
                                                 warprank::test_support::random_weights(plan_, 2)};
  const std::vector<warprank::Weights> rows_ = {warprank::test_support::random_tables(plan_, 40, 1),
                                                warprank::test_support::random_tables(plan_, 40, 2)};
  size_t next_ = 1;  // the number of the model that a load gives
  warprank::UserStates states_;
  const std::unique_ptr<Running> divided_ = divided(states_), undivided_ = undivided();
};

}  // namespace kserve
