// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The methods of the protocol. None of them waits: replies come from the threads of the model, and models are
/// exchanged on a thread of its own, so one thread for calls does for any number of them.

#include <grpcpp/server_context.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "call_queues.hpp"
#include "hosted_model.hpp"
#include "infer.hpp"
#include "infer_stream.hpp"
#include "inference.grpc.pb.h"
#include "unary_call.hpp"
#include "worker_thread.hpp"

namespace kserve {

class GrpcService {
 public:
  using Protocol = inference::GRPCInferenceService::AsyncService;
  using Context = grpc::ServerContext;
  using Status = grpc::Status;
  using Done = std::function<void(const Status&)>;

  /// With a `token`, calls but those that ask for health need "authorization: Bearer TOKEN". `model` outlives it.
  GrpcService(HostedModel& model, std::string token = {}) : model_(model), token_(std::move(token)) {}
  GrpcService(const GrpcService&) = delete;
  GrpcService& operator=(const GrpcService&) = delete;

  /// What the server registers.
  Protocol& protocol() { return protocol_; }
  /// Calls of the protocol are answered from now on.
  void accept(CallQueues& queues) {
    at_once(queues, &Protocol::RequestServerLive, &GrpcService::live);
    at_once(queues, &Protocol::RequestServerReady, &GrpcService::ready);
    at_once(queues, &Protocol::RequestServerMetadata, &GrpcService::metadata);
    at_once(queues, &Protocol::RequestModelReady, &GrpcService::model_ready);
    at_once(queues, &Protocol::RequestModelMetadata, &GrpcService::model_metadata);
    at_once(queues, &Protocol::RequestModelConfig, &GrpcService::model_config);
    at_once(queues, &Protocol::RequestModelStatistics, &GrpcService::model_statistics);
    at_once(queues, &Protocol::RequestRepositoryIndex, &GrpcService::index);
    at_once(queues, &Protocol::RequestRepositoryModelUnload, &GrpcService::unload);
    later(queues, &Protocol::RequestRepositoryModelLoad, &GrpcService::load);
    later(queues, &Protocol::RequestModelInfer, &GrpcService::infer_allowed);
    for (const auto& queue : queues.list()) InferStream::await(protocol_, score_, queues, *queue);
  }

  /// Health checks fail from now on, so that load balancers send nothing more; calls are still answered.
  void begin_drain() { is_draining_ = true; }
  bool is_ready() const { return model_.is_ready() && !is_draining_; }

 private:
  /// A method that answers at once, on the thread of the call's queue.
  template <class Base, class Request, class Response>
  void at_once(CallQueues& queues, Ask<Base, Request, Response> ask,
               Status (GrpcService::*answer)(const Context&, const Request&, Response&)) {
    accept<Base, Request, Response>(
        queues, ask,
        [this, answer](const Context& context, const Request& request, Response& response, const Done& done) {
          done((this->*answer)(context, request, response));
        });
  }
  /// A method that answers from another thread.
  template <class Base, class Request, class Response>
  void later(CallQueues& queues, Ask<Base, Request, Response> ask,
             void (GrpcService::*answer)(CallContext&, const Request&, Response&, const Done&)) {
    accept<Base, Request, Response>(
        queues, ask,
        [this, answer](CallContext& context, const Request& request, Response& response, const Done& done) {
          (this->*answer)(context, request, response, done);
        });
  }
  template <class Base, class Request, class Response, class Handle>
  void accept(CallQueues& queues, Ask<Base, Request, Response> ask, Handle handle) {
    const auto method = std::make_shared<const UnaryMethod<Base, Request, Response>>(
        UnaryMethod<Base, Request, Response>{ask, protocol_, std::move(handle)});
    for (const auto& queue : queues.list()) UnaryCall<Base, Request, Response>::await(method, queues, *queue);
  }

  Status live(const Context&, const inference::ServerLiveRequest&, inference::ServerLiveResponse& response) {
    response.set_live(true);
    return Status::OK;
  }
  Status ready(const Context&, const inference::ServerReadyRequest&, inference::ServerReadyResponse& response) {
    response.set_ready(is_ready());
    return Status::OK;
  }
  Status metadata(const Context& context, const inference::ServerMetadataRequest&,
                  inference::ServerMetadataResponse& response) {
    response.set_name("warprank");
    response.set_version(WARPRANK_VERSION);
    for (const char* extension : {"model_repository", "model_configuration", "statistics"})
      response.add_extensions(extension);
    return allowed(context);
  }
  Status model_ready(const Context& context, const inference::ModelReadyRequest& request,
                     inference::ModelReadyResponse& response) {
    const Status status = find(context, request.name(), request.version());
    if (status.ok()) response.set_ready(is_ready());
    return status;
  }
  Status model_metadata(const Context& context, const inference::ModelMetadataRequest& request,
                        inference::ModelMetadataResponse& response) {
    const Status status = find(context, request.name(), request.version());
    if (status.ok()) model_.describe(response);
    return status;
  }
  Status model_config(const Context& context, const inference::ModelConfigRequest& request,
                      inference::ModelConfigResponse& response) {
    const Status status = find(context, request.name(), request.version());
    if (status.ok()) model_.describe(*response.mutable_config());
    return status;
  }
  Status model_statistics(const Context& context, const inference::ModelStatisticsRequest& request,
                          inference::ModelStatisticsResponse& response) {
    const bool is_all = request.name().empty();
    const Status status = is_all ? allowed(context) : find(context, request.name(), request.version());
    if (status.ok()) {
      inference::ModelStatistics& statistics = *response.add_model_stats();
      statistics.set_name(model_.name());
      statistics.set_version(model_.version());
      model_.statistics().write(statistics);
    }
    return status;
  }
  Status index(const Context& context, const inference::RepositoryIndexRequest& request,
               inference::RepositoryIndexResponse& response) {
    const Status status = allowed(context);
    if (status.ok() && (model_.is_ready() || !request.ready())) {
      auto& entry = *response.add_models();
      entry.set_name(model_.name());
      entry.set_version(model_.version());
      entry.set_state(model_.is_ready() ? "READY" : "UNAVAILABLE");
      if (!model_.is_ready()) entry.set_reason("unloaded");
    }
    return status;
  }
  Status unload(const Context& context, const inference::RepositoryModelUnloadRequest& request,
                inference::RepositoryModelUnloadResponse&) {
    const Status status = find(context, request.model_name(), "");
    if (status.ok()) model_.unload();
    return status;
  }
  void load(CallContext& context, const inference::RepositoryModelLoadRequest& request,
            inference::RepositoryModelLoadResponse&, const Done& done) {
    Status status = find(context, request.model_name(), "");
    warprank::SwapMode mode = warprank::SwapMode::full;
    warprank::LoaderPriority priority = model_.options().loader;
    if (status.ok()) status = read_parameters(request, mode, priority);
    if (!status.ok()) return done(status);
    loader_.add([this, done, mode, priority] { done(exchange(mode, priority)); });
  }
  void infer_allowed(CallContext& context, const inference::ModelInferRequest& request,
                     inference::ModelInferResponse& response, const Done& done) {
    Status status = allowed(context);
    if (status.ok()) status = find(request.model_name(), request.model_version());
    if (status.ok() && !model_.is_ready()) status = {grpc::StatusCode::UNAVAILABLE, "the model is unloaded"};
    if (!status.ok()) return done(status);
    if (context.number == 0) {
      context.number = model_.service().new_call();
      context.cancelled = [this, call = context.number] { model_.service().cancel(call); };
    }
    infer(model_, request, response, deadline_of(context), done, context.number);
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
      const auto choose = [&, &name = name](auto& chosen, const auto& all) {
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

  grpc::Status exchange(warprank::SwapMode mode, warprank::LoaderPriority priority) {
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
  Protocol protocol_;
  const InferStream::Score score_ = [this](CallContext& context, const inference::ModelInferRequest& request,
                                           inference::ModelInferResponse& response,
                                           const Done& done) { infer_allowed(context, request, response, done); };
  std::atomic<bool> is_draining_{false};
  WorkerThread loader_;
};

}  // namespace kserve
