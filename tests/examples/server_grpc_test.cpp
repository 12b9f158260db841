// SPDX-License-Identifier: Apache-2.0
//
// The server, called as clients call it.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../examples/server/server.hpp"
#include "inference.grpc.pb.h"
#include "warprank/host.hpp"

namespace kserve {
namespace {

using namespace inference;
using testing::ElementsAre;
using testing::HasSubstr;
using warprank::Builder;
using warprank::Outputs;

template <class Value>
std::string bytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}
template <class Value>
std::vector<Value> values(const std::string& bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Value));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

void add_raw(ModelInferRequest& request, const std::string& name, const std::string& datatype,
             const std::vector<int64_t>& shape, const std::string& raw) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype(datatype);
  for (const int64_t extent : shape) input.add_shape(extent);
  request.add_raw_input_contents(raw);
}

std::map<std::string, std::string> raw_outputs(const ModelInferResponse& response) {
  std::map<std::string, std::string> outputs;
  for (int o = 0; o < response.outputs_size(); ++o)
    outputs[response.outputs(o).name()] = response.raw_output_contents(o);
  return outputs;
}

/// Of the model below.
warprank::Weights weight_of(float weight) {
  return warprank::Weights::from_tensors({{"top.weight", warprank::make_tensor<float>({1, 1}, {weight})}});
}

/// A server of y = sigmoid(weight x), and a client of it.
class GrpcServerTest : public testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.address = "127.0.0.1:0";
    server_ = std::make_unique<Server>(hosted_, options);
    stub_ = GRPCInferenceService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials()));
  }
  grpc::Status infer(const ModelInferRequest& request, ModelInferResponse& response, const std::string& token = {}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!token.empty()) context.AddMetadata("authorization", token);
    response.Clear();
    return stub_->ModelInfer(&context, request, &response);
  }
  template <class Method, class Request, class Response>
  grpc::Status call(Method method, const Request& request, Response& response) {
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, &response);
  }
  static ModelInferRequest named(const std::vector<float>& x, const std::vector<int64_t>& offsets) {
    ModelInferRequest request;
    request.set_model_name("model");
    request.set_id("seven");
    add_raw(request, "x", "FP32", {static_cast<int64_t>(x.size()), 1}, bytes(x));
    add_raw(request, "item.offsets", "INT64", {static_cast<int64_t>(offsets.size())}, bytes(offsets));
    return request;
  }
  std::string blob(const std::vector<float>& x) const {
    warprank::Batch batch = plan_.batch();
    batch.add_request().dense(plan_.dense("x"), x);
    batch.close();
    const warprank::BlobView view = batch.blob(0);
    return {reinterpret_cast<const char*>(view.data()), static_cast<size_t>(view.bytes())};
  }

  const warprank::Plan plan_ = warprank::compile(
      [](Builder& b) -> Outputs {
        auto user = b.axis("user"), item = b.axis("item", user);
        return {{"y", b.sigmoid(b.linear("top", b.dense("x", item, 1), 1, {.bias = false}))}};
      },
      {.capacities = {{.requests = 8, .items = 100}}});
  warprank::Tables tables_ = warprank::Tables::load(plan_, warprank::Weights::from_tensors({}), warprank::host());
  warprank::ServedModel served_{warprank::bind(plan_, weight_of(1), tables_), std::move(tables_), {.contexts = 2}};
  bool load_fails_ = false;
  float next_weight_ = 1;
  HostedModel hosted_{served_,
                      [this] {
                        if (load_fails_) throw std::runtime_error("no such file");
                        return warprank::NextModel{.dense = weight_of(next_weight_)};
                      },
                      {.most_requests = 16, .record_every = 1, .most_difference = 0.125}};
  std::unique_ptr<Server> server_;
  std::unique_ptr<GRPCInferenceService::Stub> stub_;
};

TEST_F(GrpcServerTest, TellsWhatItIs) {
  start();
  ServerLiveResponse live;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::ServerLive, ServerLiveRequest(), live).ok());
  EXPECT_TRUE(live.live());
  ServerReadyResponse ready;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::ServerReady, ServerReadyRequest(), ready).ok());
  EXPECT_TRUE(ready.ready());
  ServerMetadataResponse server;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::ServerMetadata, ServerMetadataRequest(), server).ok());
  EXPECT_EQ(server.name(), "warprank");

  ModelMetadataRequest which;
  which.set_name("model");
  ModelMetadataResponse metadata;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::ModelMetadata, which, metadata).ok());
  std::vector<std::string> inputs;
  for (const auto& input : metadata.inputs()) inputs.push_back(input.name() + " " + input.datatype());
  EXPECT_THAT(inputs, ElementsAre("x FP32", "item.offsets INT64", "request_blobs BYTES"));
  EXPECT_THAT(metadata.inputs(0).shape(), ElementsAre(-1, 1));
  ASSERT_EQ(metadata.outputs_size(), 1);
  EXPECT_EQ(metadata.outputs(0).name(), "y");
  EXPECT_THAT(metadata.versions(), ElementsAre("1"));

  ModelConfigRequest wanted;
  wanted.set_name("model");
  ModelConfigResponse config;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::ModelConfig, wanted, config).ok());
  EXPECT_EQ(config.config().max_batch_size(), 0);
  EXPECT_EQ(config.config().input(0).data_type(), TYPE_FP32);
  EXPECT_EQ(config.config().input(2).data_type(), TYPE_STRING);
  EXPECT_TRUE(config.config().input(0).optional());
  EXPECT_EQ(config.config().parameters().at("layout").string_value(),
            R"({"axes":[{"name":"user","parent":-1},{"name":"item","parent":0}],)"
            R"("dense":[{"axis":1,"name":"x","width":1}],"ids":[]})");
}

TEST_F(GrpcServerTest, ScoresNamedTensorsAndBlobsAlike) {
  start();
  const std::vector<float> expected = {sigmoid(0.5f), sigmoid(-1), sigmoid(2)};
  ModelInferResponse response;
  ASSERT_TRUE(infer(named({0.5f, -1, 2}, {0, 2, 2, 3}), response).ok());
  EXPECT_EQ(response.id(), "seven");
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(3, 1));
  auto outputs = raw_outputs(response);
  EXPECT_THAT(values<float>(outputs.at("y")), testing::Pointwise(testing::FloatEq(), expected));
  EXPECT_THAT(values<int64_t>(outputs.at("item.offsets")), ElementsAre(0, 2, 2, 3));
  EXPECT_EQ(outputs.count("errors"), 0u);
  const std::string scores = outputs.at("y");

  ModelInferRequest typed;
  typed.set_model_name("model");
  auto& x = *typed.add_inputs();
  x.set_name("x");
  x.set_datatype("FP32");
  x.add_shape(3);
  for (const float value : {0.5f, -1.0f, 2.0f}) x.mutable_contents()->add_fp32_contents(value);
  ASSERT_TRUE(infer(typed, response).ok());
  EXPECT_EQ(raw_outputs(response).at("y"), scores);
  EXPECT_EQ(response.outputs_size(), 1) << "one request needs no offsets";

  ModelInferRequest blobs;
  blobs.set_model_name("model");
  auto& input = *blobs.add_inputs();
  input.set_name("request_blobs");
  input.set_datatype("BYTES");
  input.add_shape(3);
  for (const auto& values : {std::vector<float>{0.5f, -1}, {}, {2}})
    input.mutable_contents()->add_bytes_contents(blob(values));
  ASSERT_TRUE(infer(blobs, response).ok());
  EXPECT_EQ(raw_outputs(response).at("y"), scores);
  EXPECT_THAT(values<int64_t>(raw_outputs(response).at("item.offsets")), ElementsAre(0, 2, 2, 3));
}

TEST_F(GrpcServerTest, ScoresTheNeighboursOfAWrongRequest) {
  start();
  ModelInferResponse response;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(infer(named({0, nan, 0}, {0, 1, 2, 3}), response).ok());
  EXPECT_THAT(values<float>(raw_outputs(response).at("y")), ElementsAre(0.5f, 0.5f));
  EXPECT_THAT(values<int64_t>(raw_outputs(response).at("item.offsets")), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(raw_outputs(response).at("errors"), HasSubstr("'x'"));
  const grpc::Status alone = infer(named({nan}, {0, 1}), response);
  EXPECT_EQ(alone.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(alone.error_message(), HasSubstr("'x'"));
}

TEST_F(GrpcServerTest, SaysWhatIsWrongWithACall) {
  start();
  ModelInferResponse response;
  const auto status = [&](auto change) {
    ModelInferRequest request = named({1, 2}, {0, 2});
    change(request);
    const grpc::Status status = infer(request, response);
    return std::to_string(status.error_code()) + " " + status.error_message();
  };
  const std::string invalid = std::to_string(grpc::StatusCode::INVALID_ARGUMENT) + " ",
                    not_found = std::to_string(grpc::StatusCode::NOT_FOUND) + " ";
  EXPECT_EQ(status([](auto& r) { r.set_model_name("modell"); }), not_found + "model: expected 'model', got 'modell'");
  EXPECT_EQ(status([](auto& r) { r.set_model_version("7"); }),
            not_found + "version of model 'model': expected 1 or none, got '7'");
  EXPECT_EQ(status([](auto& r) { r.mutable_inputs(0)->set_datatype("FP64"); }),
            invalid + "tensor 'x': expected FP32, got FP64");
  EXPECT_EQ(status([](auto& r) { r.add_outputs()->set_name("z"); }),
            invalid + "output 'z': expected an output of the model, got an unknown name");
  EXPECT_EQ(status([](auto& r) { r.mutable_raw_input_contents()->RemoveLast(); }),
            invalid + "raw_input_contents: expected 2, one for each input, got 1");
  EXPECT_THAT(status([&](auto& r) {
                r.clear_inputs();
                r.clear_raw_input_contents();
                add_raw(r, "request_blobs", "BYTES", {1}, std::string("\4\0\0\0blob", 8));
              }),
              HasSubstr(invalid));
  EXPECT_THAT(status([&](auto& r) {
                r.clear_inputs();
                r.clear_raw_input_contents();
                add_raw(r, "request_blobs", "BYTES", {17}, std::string(4 * 17, '\0'));
              }),
              HasSubstr("expected 1 to 16 requests, got 17"));
}

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
            "swap_mode: expected full, dense_and_rows or drain, got 'slowly'");
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
  EXPECT_EQ(stats.version(), "5");
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
        "warprank_model_version{model=\"model\"} 5\n", "warprank_swaps_total{model=\"model\",result=\"done\"} 4\n",
        "warprank_request_seconds_count{model=\"model\"} 5\n",
        "warprank_swaps_total{model=\"model\",result=\"failed\"} 1\n", "warprank_ready{model=\"model\"} 1\n"})
    EXPECT_THAT(metrics, HasSubstr(line));
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

TEST_F(GrpcServerTest, AnswersEachRequestOfAStream) {
  start();
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  constexpr int count = 200;
  std::thread writer([&] {
    for (int i = 0; i < count; ++i) {
      ModelInferRequest request = named({static_cast<float>(i)}, {0, 1});
      request.set_id(std::to_string(i));
      if (i % 10 == 0) request.set_model_name("other");
      ASSERT_TRUE(stream->Write(request));
    }
    stream->WritesDone();
  });
  std::map<std::string, ModelStreamInferResponse> responses;
  for (ModelStreamInferResponse response; stream->Read(&response);)
    responses[response.infer_response().id()] = response;
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(responses.size(), size_t{count});
  for (int i = 0; i < count; ++i) {
    const ModelStreamInferResponse& response = responses.at(std::to_string(i));
    if (i % 10 == 0) {
      EXPECT_EQ(response.error_message(), "model: expected 'model', got 'other'");
    } else {
      EXPECT_THAT(values<float>(raw_outputs(response.infer_response()).at("y")),
                  ElementsAre(testing::FloatEq(sigmoid(static_cast<float>(i)))));
    }
  }
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
  server_->begin_drain();
  ServerReadyResponse ready;
  ASSERT_TRUE(call(&GRPCInferenceService::Stub::ServerReady, ServerReadyRequest(), ready).ok());
  EXPECT_FALSE(ready.ready());
  ModelInferResponse response;
  EXPECT_TRUE(infer(named({1}, {0, 1}), response).ok()) << "load balancers need a moment";
  server_->stop(std::chrono::seconds(5));
  EXPECT_EQ(infer(named({1}, {0, 1}), response).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THROW(Server(hosted_, {.address = "nowhere:no port"}), warprank::invalid_argument);
}

}  // namespace
}  // namespace kserve
