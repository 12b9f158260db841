// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The methods of the protocol, whether they come by gRPC or by HTTP. None of them waits: replies come from the threads
/// of the model, and models are exchanged on a thread of its own.

#include <grpcpp/support/status.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "hosted_model.hpp"
#include "infer.hpp"
#include "inference.pb.h"
#include "worker_thread.hpp"

namespace kserve {

class Calls {
 public:
  using Status = grpc::Status;
  using Done = std::function<void(const Status&)>;

  /// With a `token`, calls but those that ask for health need "authorization: Bearer TOKEN". `model` outlives it.
  Calls(HostedModel& model, std::string token) : model_(model), token_(std::move(token)) {}
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  HostedModel& model() { return model_; }

  /// Health checks fail from now on, so that load balancers send nothing more; calls are still answered.
  void begin_drain() { is_draining_ = true; }
  bool is_ready() const { return model_.is_ready() && !is_draining_; }

  /// Whether a caller may, by its header or metadata "authorization".
  Status allowed(std::string_view authorization) const {
    if (token_.empty() || is_equal(authorization, "Bearer " + token_)) return Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "expected 'authorization: Bearer' and the server's token"};
  }

  Status live(const inference::ServerLiveRequest&, inference::ServerLiveResponse& response) {
    response.set_live(true);
    return Status::OK;
  }
  Status ready(const inference::ServerReadyRequest&, inference::ServerReadyResponse& response) {
    response.set_ready(is_ready());
    return Status::OK;
  }
  Status metadata(const inference::ServerMetadataRequest&, inference::ServerMetadataResponse& response) {
    response.set_name("warprank");
    response.set_version(WARPRANK_VERSION);
    for (const char* extension : {"model_repository", "model_configuration", "statistics", "binary_tensor_data"})
      response.add_extensions(extension);
    return Status::OK;
  }
  Status model_ready(const inference::ModelReadyRequest& request, inference::ModelReadyResponse& response) {
    const Status status = find(request.name(), request.version());
    if (status.ok()) response.set_ready(is_ready());
    return status;
  }
  Status model_metadata(const inference::ModelMetadataRequest& request, inference::ModelMetadataResponse& response) {
    const Status status = find(request.name(), request.version());
    if (status.ok()) model_.describe(response);
    return status;
  }
  Status model_config(const inference::ModelConfigRequest& request, inference::ModelConfigResponse& response) {
    const Status status = find(request.name(), request.version());
    if (status.ok()) model_.describe(*response.mutable_config());
    return status;
  }
  Status model_statistics(const inference::ModelStatisticsRequest& request,
                          inference::ModelStatisticsResponse& response) {
    const Status status = request.name().empty() ? Status::OK : find(request.name(), request.version());
    if (status.ok()) {
      inference::ModelStatistics& statistics = *response.add_model_stats();
      statistics.set_name(model_.name());
      statistics.set_version(model_.version());
      model_.statistics().write(statistics);
    }
    return status;
  }
  Status index(const inference::RepositoryIndexRequest& request, inference::RepositoryIndexResponse& response) {
    if (!model_.is_ready() && request.ready()) return Status::OK;
    auto& entry = *response.add_models();
    entry.set_name(model_.name());
    entry.set_version(model_.version());
    entry.set_state(model_.is_ready() ? "READY" : "UNAVAILABLE");
    if (!model_.is_ready()) entry.set_reason("unloaded");
    return Status::OK;
  }
  Status unload(const inference::RepositoryModelUnloadRequest& request, inference::RepositoryModelUnloadResponse&) {
    const Status status = find(request.model_name(), "");
    if (status.ok()) model_.unload();
    return status;
  }
  /// Calls back once, from another thread where the model is exchanged.
  void load(const inference::RepositoryModelLoadRequest& request, inference::RepositoryModelLoadResponse&,
            const Done& done) {
    Status status = find(request.model_name(), "");
    warprank::SwapMode mode = warprank::SwapMode::full;
    warprank::LoaderPriority priority = model_.options().loader;
    if (status.ok()) status = read_parameters(request, mode, priority);
    if (!status.ok()) return done(status);
    loader_.add([this, done, mode, priority] { done(exchange(mode, priority)); });
  }
  /// Calls back once, from this thread or another. The messages live until then. `number`: CallOptions::call.
  void infer(const inference::ModelInferRequest& request, inference::ModelInferResponse& response,
             std::chrono::steady_clock::time_point deadline, const Done& done, uint64_t number) {
    Status status = find(request.model_name(), request.model_version());
    if (status.ok() && !model_.is_ready()) status = {grpc::StatusCode::UNAVAILABLE, "the model is unloaded"};
    if (!status.ok()) return done(status);
    kserve::infer(model_, request, response, deadline, done, number);
  }

  // There is no shared memory: no region can be registered, so none is known, and to forget all of them is no mistake.
  Status system_memory(const inference::SystemSharedMemoryStatusRequest& request,
                       inference::SystemSharedMemoryStatusResponse&) {
    return no_region("system", request.name());
  }
  Status register_system_memory(const inference::SystemSharedMemoryRegisterRequest& request,
                                inference::SystemSharedMemoryRegisterResponse&) {
    return no_register("system", request.name());
  }
  Status unregister_system_memory(const inference::SystemSharedMemoryUnregisterRequest&,
                                  inference::SystemSharedMemoryUnregisterResponse&) {
    return Status::OK;
  }
  Status cuda_memory(const inference::CudaSharedMemoryStatusRequest& request,
                     inference::CudaSharedMemoryStatusResponse&) {
    return no_region("CUDA", request.name());
  }
  Status register_cuda_memory(const inference::CudaSharedMemoryRegisterRequest& request,
                              inference::CudaSharedMemoryRegisterResponse&) {
    return no_register("CUDA", request.name());
  }
  Status unregister_cuda_memory(const inference::CudaSharedMemoryUnregisterRequest&,
                                inference::CudaSharedMemoryUnregisterResponse&) {
    return Status::OK;
  }

 private:
  static Status no_region(const std::string& kind, const std::string& name) {
    if (name.empty()) return Status::OK;
    return {grpc::StatusCode::NOT_FOUND, shortened("there is no " + kind + " shared memory region '" + name + "'")};
  }
  static Status no_register(const std::string& kind, const std::string& name) {
    return invalid(kind + " shared memory region '" + name.substr(0, 200) +
                   "': expected values in messages, as the server has no shared memory");
  }

  /// Takes as long wherever the first difference is.
  static bool is_equal(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned char difference = 0;
    for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
    return difference == 0;
  }

  Status find(const std::string& name, const std::string& version) const {
    if (name != model_.name())
      return {grpc::StatusCode::NOT_FOUND,
              shortened("model: expected '" + model_.name() + "', got '" + name.substr(0, 200) + "'")};
    if (!version.empty() && version != model_.version())
      return {grpc::StatusCode::NOT_FOUND, shortened("version of model '" + name + "': expected " + model_.version() +
                                                     " or none, got '" + version.substr(0, 200) + "'")};
    return Status::OK;
  }

  static Status read_parameters(const inference::RepositoryModelLoadRequest& request, warprank::SwapMode& mode,
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
            return Status::OK;
          }
          known += (known.empty() ? "" : ", ") + std::string(text);
        }
        return invalid(name + ": expected one of " + known + ", got '" + wanted.substr(0, 200) + "'");
      };
      Status status = invalid("parameter: expected swap_mode or loader, got '" + name.substr(0, 200) + "'");
      if (name == "swap_mode")
        status = choose(mode, std::array{std::pair{"full", SwapMode::full}, std::pair{"drain", SwapMode::drain},
                                         std::pair{"dense_and_rows", SwapMode::dense_and_rows}});
      if (name == "loader")
        status =
            choose(priority, std::array{std::pair{"idle", LoaderPriority::idle}, std::pair{"low", LoaderPriority::low},
                                        std::pair{"as_caller", LoaderPriority::as_caller}});
      if (!status.ok()) return status;
    }
    return Status::OK;
  }

  Status exchange(warprank::SwapMode mode, warprank::LoaderPriority priority) {
    try {
      model_.load(mode, priority);
      return Status::OK;
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
