// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A server for tests, and a client of it.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/server/server.hpp"
#include "examples/infer_requests.hpp"
#include "inference.grpc.pb.h"
#include "warprank/host.hpp"

namespace kserve {

using warprank::Builder;
using warprank::Outputs;

template <class Value>
std::vector<Value> values(const std::string& bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Value));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
inline float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// Of the model below.
inline warprank::Weights weight_of(float weight) {
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
  warprank::ServedModel served_{
      warprank::Model::bind(plan_, weight_of(1), tables_), std::move(tables_), {.contexts = 2}};
  bool load_fails_ = false;
  float next_weight_ = 1;
  HostedModel hosted_{
      served_,
      [this] {
        if (load_fails_) throw std::runtime_error("no such file");
        return warprank::NextModel{.dense = weight_of(next_weight_)};
      },
      {.service = {.most_request_rows = 200}, .most_requests = 16, .record_every = 1, .most_difference = 0.125}};
  std::unique_ptr<Server> server_;
  std::unique_ptr<GRPCInferenceService::Stub> stub_;
};

}  // namespace kserve
