// SPDX-License-Identifier: Apache-2.0
//
// The server, called as clients call it.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/server_testing.hpp"

namespace kserve { namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
  EXPECT_THAT(inputs, ElementsAre("x FP32")) << "what a call of one request needs";
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
  EXPECT_TRUE(config.config().input(0).optional());
  EXPECT_EQ(config.config().parameters().at("layout").string_value(),
            R"({"axes":[{"name":"user","parent":-1},{"name":"item","parent":0}],)"
            R"("dense":[{"axis":1,"name":"x","width":1}],"ids":[]})");
}

TEST_F(GrpcServerTest, DescribesTensorsThatItCanDoWithoutWhereItIsToldTo) {
  HostedModel hosted(served_, {}, {.describes_all = true});
  ModelMetadataResponse metadata;
  hosted.describe(metadata);
  std::vector<std::string> inputs;
  for (const auto& input : metadata.inputs()) inputs.push_back(input.name() + " " + input.datatype());
  EXPECT_THAT(inputs, ElementsAre("x FP32", "item.offsets INT64", "request_blobs BYTES"));
  ModelConfig config;
  hosted.describe(config);
  ASSERT_EQ(config.input_size(), 3);
  EXPECT_EQ(config.input(2).data_type(), TYPE_STRING);
}

TEST_F(GrpcServerTest, HasNoSharedMemory) {
  start();
  using Stub = GRPCInferenceService::Stub;
  SystemSharedMemoryStatusRequest which;
  SystemSharedMemoryStatusResponse status;
  EXPECT_TRUE(call(&Stub::SystemSharedMemoryStatus, which, status).ok());
  EXPECT_EQ(status.regions_size(), 0);
  which.set_name("a");
  EXPECT_EQ(call(&Stub::SystemSharedMemoryStatus, which, status).error_code(), grpc::StatusCode::NOT_FOUND);
  CudaSharedMemoryStatusRequest which_cuda;
  CudaSharedMemoryStatusResponse cuda_status;
  EXPECT_TRUE(call(&Stub::CudaSharedMemoryStatus, which_cuda, cuda_status).ok());
  which_cuda.set_name("a");
  EXPECT_EQ(call(&Stub::CudaSharedMemoryStatus, which_cuda, cuda_status).error_code(), grpc::StatusCode::NOT_FOUND);
  SystemSharedMemoryRegisterResponse registered;
  EXPECT_EQ(call(&Stub::SystemSharedMemoryRegister, SystemSharedMemoryRegisterRequest(), registered).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  CudaSharedMemoryRegisterResponse registered_cuda;
  EXPECT_EQ(call(&Stub::CudaSharedMemoryRegister, CudaSharedMemoryRegisterRequest(), registered_cuda).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  SystemSharedMemoryUnregisterResponse forgotten;
  EXPECT_TRUE(call(&Stub::SystemSharedMemoryUnregister, SystemSharedMemoryUnregisterRequest(), forgotten).ok());
  CudaSharedMemoryUnregisterResponse forgotten_cuda;
  EXPECT_TRUE(call(&Stub::CudaSharedMemoryUnregister, CudaSharedMemoryUnregisterRequest(), forgotten_cuda).ok());
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

TEST_F(GrpcServerTest, RefusesCallsThatSayTwoThings) {
  start();
  ModelInferResponse response;
  const auto problem = [&](auto change) {
    ModelInferRequest request;
    request.set_model_name("model");
    add_raw(request, "x", "FP32", {2, 1}, "");
    add_raw(request, "item.offsets", "INT64", {2}, "");
    request.clear_raw_input_contents();
    for (const float x : {1.0f, 2.0f}) request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(x);
    for (const int64_t x : {0, 2}) request.mutable_inputs(1)->mutable_contents()->add_int64_contents(x);
    change(request);
    const grpc::Status status = infer(request, response);
    if (status.ok()) return std::string("scored");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  EXPECT_EQ(problem([](auto&) {}), "scored");
  EXPECT_EQ(problem([](auto& r) {
              r.add_raw_input_contents(bytes<float>({1, 2}));
              r.add_raw_input_contents(bytes<int64_t>({0, 2}));
              r.mutable_inputs(1)->clear_contents();
            }),
            "tensor 'x': expected values in raw_input_contents, as the call has some there, got 2 in fp32_contents");
  EXPECT_EQ(problem([](auto& r) { r.mutable_inputs(0)->mutable_contents()->add_fp64_contents(1); }),
            "tensor 'x': expected values in fp32_contents, as it is FP32, got 1 in fp64_contents");
  EXPECT_EQ(problem([](auto& r) {
              auto& contents = *r.mutable_inputs(1)->mutable_contents();
              contents.clear_int64_contents();
              for (const int32_t x : {0, 1, 2}) contents.add_int_contents(x);
            }),
            "tensor 'item.offsets': expected values in int64_contents, as it is INT64, got 3 in int_contents");
  EXPECT_EQ(problem([](auto& r) { r.add_outputs()->set_name("y"); }), "scored");
  EXPECT_EQ(problem([](auto& r) {
              r.add_outputs()->set_name("y");
              r.add_outputs()->set_name("y");
            }),
            "output 'y': expected to be asked for once, got it twice");
  const auto with = [&](const char* name, auto set) {
    return problem([&](auto& r) { set((*r.mutable_parameters())[name]); });
  };
  EXPECT_EQ(with("timeout", [](auto& p) { p.set_uint64_param(60'000'000); }), "scored");
  EXPECT_EQ(with("priority", [](auto& p) { p.set_int64_param(1); }), "scored");
  EXPECT_EQ(with("timeout", [](auto& p) { p.set_string_param("1000"); }),
            "parameter 'timeout': expected an integer from 0 to 2^63 - 1, got text, '1000'");
  EXPECT_EQ(with("timeout", [](auto& p) { p.set_double_param(0.5); }),
            "parameter 'timeout': expected an integer from 0 to 2^63 - 1, got a number with a fraction, 0.500000");
  EXPECT_EQ(with("timeout", [](auto& p) { p.set_int64_param(-1); }),
            "parameter 'timeout': expected an integer from 0 to 2^63 - 1, got -1");
  EXPECT_EQ(with("priority", [](auto& p) { p.set_bool_param(true); }),
            "parameter 'priority': expected an integer from 0 to 2^63 - 1, got a truth value");
  EXPECT_EQ(with("other", [](auto& p) { p.set_string_param("x"); }), "scored") << "of somebody else";
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

}}  // namespace kserve
