// SPDX-License-Identifier: Apache-2.0
//
// What happens to a server: exchanges, clients that go away, limits, its end.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <future>
#include <limits>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "examples/server_testing.hpp"
#include "support/wait_until.hpp"

namespace kserve { namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(GrpcServerTest, ExchangesTheModelAndTellsWhatItHasDone) {
  start();
  ModelInferResponse response;
  ASSERT_TRUE(infer(named({1, 2}, {0, 1, 2}), response).ok());
  RepositoryModelLoadRequest load;
  load.set_model_name("model");
  RepositoryModelLoadResponse loaded;
  for (const char* mode : {"full", "dense_and_rows", "drain"}) {
    (*load.mutable_parameters())["swap_mode"].set_string_param(mode);
    const grpc::Status status = call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  ASSERT_TRUE(infer(named({1, 2}, {0, 1, 2}), response).ok());
  EXPECT_EQ(response.model_version(), "4");
  (*load.mutable_parameters())["swap_mode"].set_string_param("slowly");
  EXPECT_EQ(call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded).error_message(),
            "swap_mode: expected one of full, drain, dense_and_rows, got 'slowly'");
  load.clear_parameters();
  for (const char* loader : {"slow", "as_caller", "low", "idle"}) {
    (*load.mutable_parameters())["loader"].set_string_param(loader);
    EXPECT_EQ(call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded).error_message(),
              loader == std::string("slow") ? "loader: expected one of idle, low, as_caller, got 'slow'" : "");
  }
  load.clear_parameters();
  (*load.mutable_parameters())["speed"].set_string_param("fast");
  EXPECT_EQ(call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded).error_message(),
            "parameter: expected swap_mode or loader, got 'speed'");
  load.clear_parameters();
  load_fails_ = true;
  EXPECT_EQ(call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded).error_message(), "no such file");
  load_fails_ = false;

  RepositoryModelUnloadRequest unload;
  unload.set_model_name("model");
  RepositoryModelUnloadResponse unloaded;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::RepositoryModelUnload, unload, unloaded).ok());
  EXPECT_EQ(infer(named({1}, {0, 1}), response).error_code(), grpc::StatusCode::UNAVAILABLE);
  RepositoryIndexResponse index;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::RepositoryIndex, RepositoryIndexRequest(), index).ok());
  EXPECT_EQ(index.models(0).state(), "UNAVAILABLE");
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded).ok());
  ASSERT_TRUE(infer(named({1}, {0, 1}), response).ok());
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::RepositoryIndex, RepositoryIndexRequest(), index).ok());
  EXPECT_EQ(index.models(0).state(), "READY");

  ModelStatisticsResponse statistics;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::ModelStatistics, ModelStatisticsRequest(), statistics).ok());
  const inference::ModelStatistics& stats = statistics.model_stats(0);
  EXPECT_EQ(stats.version(), "8");
  EXPECT_EQ(stats.inference_count(), 5u);
  EXPECT_EQ(stats.inference_stats().success().count(), 5u);
  EXPECT_GT(stats.inference_stats().success().ns(), 0u);
  uint64_t batches = 0, requests = 0;
  for (const InferBatchStatistics& of_size : stats.batch_stats()) {
    batches += of_size.compute_infer().count();
    requests += of_size.batch_size() * of_size.compute_infer().count();
  }
  EXPECT_EQ(stats.execution_count(), batches);
  EXPECT_EQ(requests, 5u);
  const std::string metrics = hosted_.metrics();
  for (const char* line :
       {"warprank_requests_total{model=\"model\",outcome=\"scored\"} 5\n",
        "warprank_model_version{model=\"model\"} 8\n", "warprank_swaps_total{model=\"model\",result=\"done\"} 7\n",
        "warprank_request_seconds_count{model=\"model\"} 5\n",
        "warprank_swaps_total{model=\"model\",result=\"failed\"} 1\n", "warprank_ready{model=\"model\"} 1\n"})
    EXPECT_THAT(metrics, HasSubstr(line));
}

TEST_F(GrpcServerTest, WritesALineOfJsonForEachEvent) {
  std::FILE* const file = std::tmpfile();
  EventLog log(file);
  HostedModel hosted(served_,
                     [this] {
                       if (load_fails_) throw std::runtime_error("no \xff file");
                       return warprank::NextModel{.dense = weight_of(1)};
                     },
                     {.name = "logged", .service = {.most_request_rows = 3}, .log = &log});
  hosted.load(warprank::SwapMode::full, warprank::LoaderPriority::idle);
  load_fails_ = true;
  EXPECT_ANY_THROW(hosted.load(warprank::SwapMode::drain, warprank::LoaderPriority::idle));
  hosted.log_refusals();  // none
  hosted.service().stop();
  hosted.service().score([](warprank::Request) {}, [](const warprank::Reply&) {});
  hosted.log_refusals();
  hosted.log_refusals();  // none since
  hosted.unload();

  std::rewind(file);
  std::vector<nlohmann::json> events;
  for (char line[1000]; std::fgets(line, sizeof line, file) != nullptr;) events.push_back(nlohmann::json::parse(line));
  std::fclose(file);
  ASSERT_EQ(events.size(), 4u);
  for (const nlohmann::json& event : events) {
    EXPECT_THAT(event.at("time").get<std::string>(), testing::MatchesRegex("....-..-..T..:..:..\\....Z"));
    EXPECT_EQ(event.at("model"), "logged");
  }
  EXPECT_EQ(events[0].at("event"), "swap");
  EXPECT_EQ(events[0].at("result"), "done");
  EXPECT_EQ(events[0].at("version"), 2);
  EXPECT_GT(events[0].at("seconds"), 0);
  EXPECT_EQ(events[1].at("result"), "failed");
  EXPECT_EQ(events[1].at("mode"), "drain");
  EXPECT_EQ(events[1].at("version"), 2);
  EXPECT_THAT(events[1].at("error").get<std::string>(), HasSubstr("no "));
  EXPECT_EQ(events[2].at("event"), "refused");
  EXPECT_EQ(events[2].at("stopping"), 1);
  EXPECT_EQ(events[2].at("full"), 0);
  EXPECT_EQ(events[3].at("event"), "unload");
}

TEST_F(GrpcServerTest, TriesTheNextModelWithRequestsThatCame) {
  start();
  RepositoryModelLoadRequest load;
  load.set_model_name("model");
  RepositoryModelLoadResponse loaded;
  next_weight_ = 2;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded).ok()) << "nothing came";
  next_weight_ = 1;
  ModelInferResponse response;
  ASSERT_TRUE(infer(named({0, 1, 2}, {0, 1, 3}), response).ok());
  EXPECT_FALSE(infer(named({std::numeric_limits<float>::infinity()}, {0, 1}), response).ok());
  EXPECT_TRUE(infer(named(std::vector<float>(101), {0, 101}), response).ok()) << "above all capacities";
  ModelInferRequest blobs;
  blobs.set_model_name("model");
  auto& input = *blobs.add_inputs();
  input.set_name("request_blobs");
  input.set_datatype("BYTES");
  input.add_shape(1);
  input.mutable_contents()->add_bytes_contents(blob({3}));
  ASSERT_TRUE(infer(blobs, response).ok());
  EXPECT_EQ(hosted_.recorder().blobs().size(), 3u) << "two of the first call and a blob";
  const grpc::Status refused = call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("3 recorded requests"));
  EXPECT_EQ(hosted_.version(), "2");
  next_weight_ = 2.01f;
  EXPECT_TRUE(call(&GRPCInferenceService::Stub::RepositoryModelLoad, load, loaded).ok());
}

TEST_F(GrpcServerTest, SurvivesClientsThatGoAway) {
  start();
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    auto stream = stub_->ModelStreamInfer(&context);
    for (int r = 0; r < 10; ++r) stream->Write(named({1}, {0, 1}));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ModelInferResponse response;
  EXPECT_TRUE(infer(named({1}, {0, 1}), response).ok());
}

/// A call that nobody waits for.
struct AsyncCall {
  grpc::ClientContext context;
  ModelInferResponse response;
  std::promise<grpc::StatusCode> code;
};

TEST_F(GrpcServerTest, ForgetsCallsThatAreCancelled) {
  HostedModel hosted(served_, nullptr, {.service = {.most_merged = 1}});
  Server server(hosted, {.address = "127.0.0.1:0"});
  const auto stub = GRPCInferenceService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(server.port()), grpc::InsecureChannelCredentials()));
  const ModelInferRequest request = named({1}, {0, 1});
  std::list<AsyncCall> calls;
  const auto send = [&] {
    AsyncCall& call = calls.emplace_back();
    stub->async()->ModelInfer(&call.context, &request, &call.response,
                              [&call](const grpc::Status& status) { call.code.set_value(status.error_code()); });
  };
  const auto wait_for = [&](int64_t waiting) {
    return warprank::test_support::wait_until([&] { return hosted.service().waiting() == waiting; });
  };
  std::optional<warprank::ContextLease> first(served_.acquire()), second(served_.acquire());
  std::vector<std::future<warprank::Reply>> held;  // by workers, which wait for these
  for (int i = 0; i < 2; ++i)
    held.push_back(hosted.service().score(
        [&](warprank::Request filled) { filled.dense(plan_.dense("x"), std::vector<float>{1}); }));
  ASSERT_TRUE(wait_for(0));
  for (int i = 0; i < 100; ++i) send();
  ASSERT_TRUE(wait_for(100));
  grpc::ClientContext streaming;
  const auto stream = stub->ModelStreamInfer(&streaming);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(wait_for(110));
  send();
  ASSERT_TRUE(wait_for(111));

  AsyncCall& live = calls.back();
  for (AsyncCall& call : calls)
    if (&call != &live) call.context.TryCancel();
  streaming.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(wait_for(1)) << "the one that is live, though no context is free";
  EXPECT_EQ(hosted.service().counters().refused(warprank::Refusal::cancelled), 110);
  EXPECT_THAT(hosted.metrics(), HasSubstr("warprank_refused_total{model=\"model\",reason=\"cancelled\"} 110\n"));
  first.reset(), second.reset();
  for (AsyncCall& call : calls)
    EXPECT_EQ(call.code.get_future().get(), &call == &live ? grpc::StatusCode::OK : grpc::StatusCode::CANCELLED);
  for (std::future<warprank::Reply>& reply : held) EXPECT_EQ(reply.get().outcome, warprank::Outcome::scored);
  EXPECT_EQ(hosted.service().counters().scored, 3) << "nothing is computed in vain";
}

TEST_F(GrpcServerTest, RefusesWhatCannotMakeItsDeadline) {
  start();
  ModelInferRequest request = named({1}, {0, 1});
  (*request.mutable_parameters())["timeout"].set_int64_param(1);
  ModelInferResponse response;
  EXPECT_EQ(infer(request, response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(hosted_.service().counters().refused(warprank::Refusal::late), 1);
  EXPECT_THAT(hosted_.metrics(), HasSubstr("warprank_refused_total{model=\"model\",reason=\"late\"} 1\n"));
}

TEST_F(GrpcServerTest, AsksForItsTokenButNotForHealth) {
  start({.token = "secret"});
  ModelInferResponse response;
  for (const char* token : {"", "Bearer secre", "Bearer secreT", "secret"})
    EXPECT_EQ(infer(named({1}, {0, 1}), response, token).error_code(), grpc::StatusCode::UNAUTHENTICATED) << token;
  EXPECT_TRUE(infer(named({1}, {0, 1}), response, "Bearer secret").ok());
  ServerReadyResponse ready;
  EXPECT_TRUE(call(&GRPCInferenceService::Stub::ServerReady, ServerReadyRequest(), ready).ok());
  RepositoryModelUnloadRequest unload;
  unload.set_model_name("model");
  RepositoryModelUnloadResponse unloaded;
  EXPECT_EQ(call(&GRPCInferenceService::Stub::RepositoryModelUnload, unload, unloaded).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(hosted_.is_ready());
}

TEST_F(GrpcServerTest, RefusesMessagesThatAreTooLarge) {
  start({.most_message_bytes = 1000});
  ModelInferResponse response;
  EXPECT_EQ(infer(named(std::vector<float>(1000), {0, 1000}), response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(infer(named({1}, {0, 1}), response).ok());
}

TEST_F(GrpcServerTest, AnswersWhatItHasTakenWhenItStops) {
  start();
  server_->calls().begin_drain();
  ServerReadyResponse ready;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::ServerReady, ServerReadyRequest(), ready).ok());
  EXPECT_FALSE(ready.ready());
  ModelInferResponse response;
  EXPECT_TRUE(infer(named({1}, {0, 1}), response).ok()) << "load balancers need a moment";
  server_->stop(std::chrono::seconds(5));
  EXPECT_EQ(infer(named({1}, {0, 1}), response).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THROW(Server(hosted_, {.address = "nowhere:no port"}), warprank::invalid_argument);
}

TEST_F(GrpcServerTest, AnswersManyConnectionsBySeveralThreads) {
  start({.threads = 3});
  grpc::ChannelArguments own_connection;
  own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::vector<std::thread> clients;
  for (int c = 0; c < 24; ++c)
    clients.emplace_back([&, c] {
      const auto stub = GRPCInferenceService::NewStub(grpc::CreateCustomChannel(
          "127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials(), own_connection));
      for (int i = 0; i < 20; ++i) {
        const auto x = static_cast<float>(c) / 8 - static_cast<float>(i) / 16;
        grpc::ClientContext context;
        ModelInferResponse response;
        ASSERT_TRUE(stub->ModelInfer(&context, named({x}, {0, 1}), &response).ok());
        ASSERT_THAT(values<float>(raw_outputs(response).at("y")), ElementsAre(testing::FloatEq(sigmoid(x))));
      }
    });
  for (std::thread& client : clients) client.join();
}

TEST_F(GrpcServerTest, StopsWithCallsUnderWay) {
  start({.threads = 2});
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(named({1}, {0, 1})));
  ModelStreamInferResponse streamed;
  ASSERT_TRUE(stream->Read(&streamed)) << "and the server waits for more";
  std::atomic<int> num_answered{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 8; ++c)
    clients.emplace_back([&] {
      for (grpc::StatusCode code = grpc::StatusCode::OK; code == grpc::StatusCode::OK;) {
        ModelInferResponse response;
        code = infer(named({1}, {0, 1}), response).error_code();
        if (code == grpc::StatusCode::OK)
          ++num_answered;
        else
          EXPECT_THAT(code, testing::AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED));
      }
    });
  while (num_answered < 100) std::this_thread::yield();
  server_->stop(std::chrono::milliseconds(0));
  for (std::thread& client : clients) client.join();
  EXPECT_FALSE(stream->Read(&streamed));
  EXPECT_FALSE(stream->Finish().ok());
}

}}  // namespace kserve
