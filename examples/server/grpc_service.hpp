// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The calls of the protocol. None of them waits: replies come from the threads of the queue, and models are exchanged
/// on a thread of its own, so gRPC's few threads do for any number of calls.

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "hosted_model.hpp"
#include "infer.hpp"
#include "infer_stream.hpp"
#include "inference.grpc.pb.h"
#include "worker_thread.hpp"

namespace kserve {

class GrpcService final : public inference::GRPCInferenceService::CallbackService {
 public:
  /// With a `token`, calls but those that ask for health need "authorization: Bearer TOKEN". `model` outlives it.
  GrpcService(HostedModel& model, std::string token = {}) : model_(model), token_(std::move(token)) {}

  /// Health checks fail from now on, so that load balancers send nothing more; calls are still answered.
  void begin_drain() { is_draining_ = true; }
  bool is_ready() const { return model_.is_ready() && !is_draining_; }

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* ServerLive(Context* context, const inference::ServerLiveRequest*,
                      inference::ServerLiveResponse* response) override {
    response->set_live(true);
    return finish(context, grpc::Status::OK);
  }
  Reactor* ServerReady(Context* context, const inference::ServerReadyRequest*,
                       inference::ServerReadyResponse* response) override {
    response->set_ready(is_ready());
    return finish(context, grpc::Status::OK);
  }
  Reactor* ServerMetadata(Context* context, const inference::ServerMetadataRequest*,
                          inference::ServerMetadataResponse* response) override {
    response->set_name("warprank");
    response->set_version(WARPRANK_VERSION);
    for (const char* extension : {"model_repository", "model_configuration", "statistics"})
      response->add_extensions(extension);
    return finish(context, allowed(*context));
  }
  Reactor* ModelReady(Context* context, const inference::ModelReadyRequest* request,
                      inference::ModelReadyResponse* response) override {
    const grpc::Status status = find(*context, request->name(), request->version());
    if (status.ok()) response->set_ready(is_ready());
    return finish(context, status);
  }
  Reactor* ModelMetadata(Context* context, const inference::ModelMetadataRequest* request,
                         inference::ModelMetadataResponse* response) override {
    const grpc::Status status = find(*context, request->name(), request->version());
    if (status.ok()) model_.describe(*response);
    return finish(context, status);
  }
  Reactor* ModelConfig(Context* context, const inference::ModelConfigRequest* request,
                       inference::ModelConfigResponse* response) override {
    const grpc::Status status = find(*context, request->name(), request->version());
    if (status.ok()) model_.describe(*response->mutable_config());
    return finish(context, status);
  }
  Reactor* ModelStatistics(Context* context, const inference::ModelStatisticsRequest* request,
                           inference::ModelStatisticsResponse* response) override {
    const bool is_all = request->name().empty();
    const grpc::Status status = is_all ? allowed(*context) : find(*context, request->name(), request->version());
    if (status.ok()) {
      inference::ModelStatistics& statistics = *response->add_model_stats();
      statistics.set_name(model_.name());
      statistics.set_version(model_.version());
      model_.statistics().write(statistics);
    }
    return finish(context, status);
  }

  Reactor* ModelInfer(Context* context, const inference::ModelInferRequest* request,
                      inference::ModelInferResponse* response) override {
    Reactor* const reactor = context->DefaultReactor();
    if (const grpc::Status status = allowed(*context); !status.ok())
      reactor->Finish(status);
    else
      infer_on_model(*request, *response, deadline_of(*context),
                     [reactor](const grpc::Status& status) { reactor->Finish(status); });
    return reactor;
  }
  grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>* ModelStreamInfer(
      Context* context) override {
    constexpr size_t most_under_way = 64;
    const grpc::Status status = allowed(*context);
    const auto deadline = deadline_of(*context);
    return new InferStream(
        [this, status, deadline](const inference::ModelInferRequest& request, inference::ModelInferResponse& response,
                                 const std::function<void(grpc::Status)>& done) {
          if (!status.ok()) return done(status);
          infer_on_model(request, response, deadline, done);
        },
        most_under_way);
  }

  Reactor* RepositoryIndex(Context* context, const inference::RepositoryIndexRequest* request,
                           inference::RepositoryIndexResponse* response) override {
    const grpc::Status status = allowed(*context);
    if (status.ok() && (model_.is_ready() || !request->ready())) {
      auto& entry = *response->add_models();
      entry.set_name(model_.name());
      entry.set_version(model_.version());
      entry.set_state(model_.is_ready() ? "READY" : "UNAVAILABLE");
      if (!model_.is_ready()) entry.set_reason("unloaded");
    }
    return finish(context, status);
  }
  Reactor* RepositoryModelLoad(Context* context, const inference::RepositoryModelLoadRequest* request,
                               inference::RepositoryModelLoadResponse*) override {
    Reactor* const reactor = context->DefaultReactor();
    grpc::Status status = find(*context, request->model_name(), "");
    warprank::SwapMode mode = warprank::SwapMode::full;
    warprank::LoaderPriority priority = model_.options().loader;
    if (status.ok()) status = read_parameters(*request, mode, priority);
    if (status.ok())
      loader_.add([this, reactor, mode, priority] { reactor->Finish(load(mode, priority)); });
    else
      reactor->Finish(status);
    return reactor;
  }
  Reactor* RepositoryModelUnload(Context* context, const inference::RepositoryModelUnloadRequest* request,
                                 inference::RepositoryModelUnloadResponse*) override {
    const grpc::Status status = find(*context, request->model_name(), "");
    if (status.ok()) model_.unload();
    return finish(context, status);
  }

 private:
  static Reactor* finish(Context* context, const grpc::Status& status) {
    Reactor* const reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  grpc::Status allowed(const Context& context) const {
    if (token_.empty()) return grpc::Status::OK;
    const auto found = context.client_metadata().find("authorization");
    const std::string expected = "Bearer " + token_;
    if (found != context.client_metadata().end() && is_equal({found->second.data(), found->second.size()}, expected))
      return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "expected 'authorization: Bearer' and the server's token"};
  }
  /// Takes as long wherever the first difference is.
  static bool is_equal(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned char difference = 0;
    for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
    return difference == 0;
  }

  grpc::Status find(const Context& context, const std::string& name, const std::string& version) const {
    const grpc::Status status = allowed(context);
    return status.ok() ? find(name, version) : status;
  }
  grpc::Status find(const std::string& name, const std::string& version) const {
    if (name != model_.name())
      return {grpc::StatusCode::NOT_FOUND,
              shortened("model: expected '" + model_.name() + "', got '" + name.substr(0, 200) + "'")};
    if (!version.empty() && version != model_.version())
      return {grpc::StatusCode::NOT_FOUND, shortened("version of model '" + name + "': expected " + model_.version() +
                                                     " or none, got '" + version.substr(0, 200) + "'")};
    return grpc::Status::OK;
  }

  void infer_on_model(const inference::ModelInferRequest& request, inference::ModelInferResponse& response,
                      std::chrono::steady_clock::time_point deadline, const std::function<void(grpc::Status)>& done) {
    if (const grpc::Status status = find(request.model_name(), request.model_version()); !status.ok())
      return done(status);
    if (!model_.is_ready()) return done({grpc::StatusCode::UNAVAILABLE, "the model is unloaded"});
    infer(model_, request, response, deadline, done);
  }

  /// gRPC's deadline on the clock of the queue.
  static std::chrono::steady_clock::time_point deadline_of(const Context& context) {
    const auto left = context.deadline() - std::chrono::system_clock::now();
    if (left > std::chrono::hours(24)) return std::chrono::steady_clock::time_point::max();
    return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(left);
  }

  static grpc::Status read_parameters(const inference::RepositoryModelLoadRequest& request, warprank::SwapMode& mode,
                                      warprank::LoaderPriority& priority) {
    using warprank::LoaderPriority;
    using warprank::SwapMode;
    for (const auto& [name, value] : request.parameters()) {
      const std::string& wanted = value.string_param();
      const auto choose = [&](auto& chosen, const auto& all) {
        std::string known;
        for (const auto& [text, one] : all) {
          if (wanted == text) {
            chosen = one;
            return grpc::Status::OK;
          }
          known += (known.empty() ? "" : ", ") + std::string(text);
        }
        return invalid(name + ": expected one of " + known + ", got '" + wanted.substr(0, 200) + "'");
      };
      grpc::Status status = invalid("parameter: expected swap_mode or loader, got '" + name.substr(0, 200) + "'");
      if (name == "swap_mode")
        status = choose(mode, std::array{std::pair{"full", SwapMode::full}, std::pair{"drain", SwapMode::drain},
                                         std::pair{"dense_and_rows", SwapMode::dense_and_rows}});
      if (name == "loader")
        status =
            choose(priority, std::array{std::pair{"idle", LoaderPriority::idle}, std::pair{"low", LoaderPriority::low},
                                        std::pair{"as_caller", LoaderPriority::as_caller}});
      if (!status.ok()) return status;
    }
    return grpc::Status::OK;
  }

  grpc::Status load(warprank::SwapMode mode, warprank::LoaderPriority priority) {
    try {
      model_.load(mode, priority);
      return grpc::Status::OK;
    } catch (const warprank::invalid_argument& error) {
      return invalid(error.what());
    } catch (const warprank::swap_refused& error) {
      return {grpc::StatusCode::FAILED_PRECONDITION, shortened(error.what())};
    } catch (const std::exception& error) {
      return {grpc::StatusCode::INTERNAL, shortened(error.what())};
    }
  }

  HostedModel& model_;
  const std::string token_;
  std::atomic<bool> is_draining_{false};
  WorkerThread loader_;
};

}  // namespace kserve
