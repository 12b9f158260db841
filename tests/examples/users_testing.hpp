// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Servers of a model whose users are asked about again.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/server_testing.hpp"
#include "examples/user_pages.hpp"
#include "support/random_data.hpp"

namespace kserve {

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
