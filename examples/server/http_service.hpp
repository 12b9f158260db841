// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The methods of the protocol by HTTP, at the paths that Triton has them, and pages for those who watch.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "http_infer.hpp"
#include "http_server.hpp"
#include "message_json.hpp"
#include "warprank/core/error.hpp"

namespace kserve {

class HttpService {
 public:
  /// What a port has: health and metrics, or calls, too.
  enum class Has { pages, calls };

  /// `calls` outlives it.
  HttpService(Calls& calls, Has has) : calls_(calls), has_(has) {}

  /// Any threads at once.
  void answer(HttpCall& http) const {
    Call call{http, {}, {}};
    const Route* route = find(call);
    if (route == nullptr || (route->who == Who::with_token && has_ == Has::pages))
      return http.refuse(404, "path: expected one of the protocol, got '" + http.path.substr(0, 200) + "'");
    if (http.method != route->method) {
      http.response.set_header("Allow", route->method);
      return http.refuse(405, "method: expected " + std::string(route->method) + ", got " + http.method);
    }
    try {
      if (route->who == Who::with_token) check(calls_.allowed(http.request.get_header_value("authorization")));
      (this->*route->answer)(call);
    } catch (const Refused& refused) {
      http.refuse(http_status(refused.status.error_code()), refused.status.error_message());
    } catch (const warprank::invalid_argument& error) {
      http.refuse(400, shortened(error.what()));
    }
  }

 private:
  using Json = nlohmann::ordered_json;
  using Status = grpc::Status;
  enum class Who { with_token, anybody };
  struct Call {
    HttpCall& http;
    std::string name, version;  // of a model; the name of a region of memory
  };
  struct Route {
    const char* method;
    const char* path;  // with a star for a name
    void (HttpService::*answer)(Call&) const;
    Who who = Who::with_token;
  };
  /// Thrown where a call is not answered.
  struct Refused {
    Status status;
  };

  static void check(const Status& status) {
    if (!status.ok()) throw Refused{status};
  }
  static int http_status(grpc::StatusCode code) {
    switch (code) {
      case grpc::StatusCode::INVALID_ARGUMENT:
        return 400;
      case grpc::StatusCode::UNAUTHENTICATED:
        return 401;
      case grpc::StatusCode::NOT_FOUND:
        return 404;
      case grpc::StatusCode::FAILED_PRECONDITION:
        return 409;
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
      case grpc::StatusCode::UNAVAILABLE:
        return 503;
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return 504;
      default:
        return 500;
    }
  }

  /// The route of a path, whatever the method; the call gets the names in it.
  static const Route* find(Call& call) {
    std::vector<std::string_view> parts = split(call.http.path);
    if (parts.size() > 4 && parts[0] == "v2" && parts[1] == "models" && parts[3] == "versions") {
      call.version = parts[4];
      parts.erase(parts.begin() + 3, parts.begin() + 5);
    }
    for (const Route& route : routes()) {
      const std::vector<std::string_view> pattern = split(route.path);
      const auto fits = [](std::string_view part, std::string_view of_pattern) {
        return part == of_pattern || (of_pattern == "*" && !part.empty());
      };
      if (!std::equal(parts.begin(), parts.end(), pattern.begin(), pattern.end(), fits)) continue;
      for (size_t p = 0; p < parts.size(); ++p)
        if (pattern[p] == "*") call.name = parts[p];
      return &route;
    }
    return nullptr;
  }
  static std::vector<std::string_view> split(std::string_view path) {
    std::vector<std::string_view> parts;
    for (size_t begin = 1; begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      parts.push_back(path.substr(begin, end - begin));
      begin = end + 1;
    }
    return parts;
  }
  static const std::vector<Route>& routes() {
    using Self = HttpService;
    static const std::vector<Route> all = {
        {"GET", "/healthz", &Self::healthz, Who::anybody},
        {"GET", "/metrics", &Self::metrics, Who::anybody},
        {"GET", "/v2/health/live", &Self::live, Who::anybody},
        {"GET", "/v2/health/ready", &Self::ready, Who::anybody},
        {"GET", "/v2", &Self::metadata},
        {"GET", "/v2/models/stats", &Self::statistics},
        {"GET", "/v2/models/*", &Self::model_metadata},
        {"GET", "/v2/models/*/ready", &Self::model_ready},
        {"GET", "/v2/models/*/config", &Self::config},
        {"GET", "/v2/models/*/stats", &Self::statistics},
        {"POST", "/v2/models/*/infer", &Self::infer},
        {"POST", "/v2/repository/index", &Self::index},
        {"POST", "/v2/repository/models/*/load", &Self::load},
        {"POST", "/v2/repository/models/*/unload", &Self::unload},
        {"GET", "/v2/systemsharedmemory/status", &Self::system_memory},
        {"GET", "/v2/systemsharedmemory/region/*/status", &Self::system_memory},
        {"POST", "/v2/systemsharedmemory/region/*/register", &Self::register_system_memory},
        {"POST", "/v2/systemsharedmemory/region/*/unregister", &Self::nothing},
        {"POST", "/v2/systemsharedmemory/unregister", &Self::nothing},
        {"GET", "/v2/cudasharedmemory/status", &Self::cuda_memory},
        {"GET", "/v2/cudasharedmemory/region/*/status", &Self::cuda_memory},
        {"POST", "/v2/cudasharedmemory/region/*/register", &Self::register_cuda_memory},
        {"POST", "/v2/cudasharedmemory/region/*/unregister", &Self::nothing},
        {"POST", "/v2/cudasharedmemory/unregister", &Self::nothing},
    };
    return all;
  }

  /// The answer of a method that answers at once.
  template <class Request, class Response>
  Json ask(Status (Calls::*method)(const Request&, Response&), const Request& request) const {
    Response response;
    check((calls_.*method)(request, response));
    return to_json(response);
  }
  template <class Request>
  static Request of_model(const Call& call) {
    Request request;
    request.set_name(call.name);
    request.set_version(call.version);
    return request;
  }
  template <class Request>
  static Request of_region(const Call& call) {
    Request request;
    request.set_name(call.name);
    return request;
  }
  static void answer_ready(const Call& call, bool is_ready) {
    if (is_ready) return nothing_said(call);
    call.http.refuse(503, "not ready");
  }
  static void nothing_said(const Call& call) { call.http.response.status = 200; }

  void healthz(Call& call) const {
    const bool is_ready = calls_.is_ready();
    call.http.answer(is_ready ? 200 : 503, is_ready ? "ready\n" : "not ready\n", "text/plain; charset=utf-8");
  }
  void metrics(Call& call) const {
    call.http.answer(200, calls_.model().metrics(), "text/plain; version=0.0.4; charset=utf-8");
  }
  void live(Call& call) const { nothing_said(call); }
  void ready(Call& call) const { answer_ready(call, calls_.is_ready()); }
  void nothing(Call& call) const { nothing_said(call); }

  void metadata(Call& call) const { call.http.answer(ask(&Calls::metadata, {})); }
  void model_metadata(Call& call) const {
    call.http.answer(ask(&Calls::model_metadata, of_model<inference::ModelMetadataRequest>(call)));
  }
  void model_ready(Call& call) const {
    answer_ready(call, ask(&Calls::model_ready, of_model<inference::ModelReadyRequest>(call)).at("ready").get<bool>());
  }
  void config(Call& call) const {
    call.http.answer(ask(&Calls::model_config, of_model<inference::ModelConfigRequest>(call)).at("config"));
  }
  void statistics(Call& call) const {
    call.http.answer(ask(&Calls::model_statistics, of_model<inference::ModelStatisticsRequest>(call)));
  }

  void infer(Call& call) const {
    size_t json_bytes = call.http.body.size();
    if (const std::string length = call.http.request.get_header_value("Inference-Header-Content-Length");
        call.http.request.has_header("Inference-Header-Content-Length")) {
      const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), json_bytes);
      if (error != std::errc() || end != length.data() + length.size())
        throw warprank::invalid_argument("Inference-Header-Content-Length", "bytes of JSON", "'" + length + "'");
    }
    HttpInfer wanted = read_infer(call.http.body, json_bytes);
    wanted.request.set_model_name(call.name);
    wanted.request.set_model_version(call.version);
    inference::ModelInferResponse response;
    warprank::RankingService& service = calls_.model().service();
    const uint64_t number = service.new_call();
    const auto answered = std::make_shared<std::promise<Status>>();  // also of whoever still sets it
    calls_.infer(
        wanted.request, response, std::chrono::steady_clock::time_point::max(),
        [answered](const Status& status) { answered->set_value(status); }, number);
    std::future<Status> status = answered->get_future();
    while (status.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout)
      if (call.http.is_gone()) service.cancel(number);
    check(status.get());
    const HttpAnswer answer = write_infer(wanted, response);
    if (answer.json_bytes == answer.body.size()) return call.http.answer(200, answer.body, "application/json");
    call.http.response.set_header("Inference-Header-Content-Length", std::to_string(answer.json_bytes));
    call.http.answer(200, answer.body, "application/octet-stream");
  }

  /// The body of a call that may have one.
  static nlohmann::json body_of(const Call& call) {
    const detail::CallJson body(call.http.body.empty() ? "{}" : call.http.body);
    if (!body.root().is_object()) throw warprank::invalid_argument("body", "an object", body.root().type_name());
    return body.root();
  }
  void index(Call& call) const {
    inference::RepositoryIndexRequest request;
    const nlohmann::json body = body_of(call);
    request.set_ready(detail::flag(&body, "ready", "body").value_or(false));
    call.http.answer(ask(&Calls::index, request).at("models"));
  }
  void load(Call& call) const {
    inference::RepositoryModelLoadRequest request;
    request.set_model_name(call.name);
    const nlohmann::json body = body_of(call);
    if (const nlohmann::json* parameters =
            detail::optional_member(body, "parameters", nlohmann::json::value_t::object, "body"))
      for (const auto& [name, value] : parameters->items())
        (*request.mutable_parameters())[name].set_string_param(value.is_string() ? value.get<std::string>()
                                                                                 : detail::shown(value));
    inference::RepositoryModelLoadResponse response;
    const auto answered = std::make_shared<std::promise<Status>>();
    calls_.load(request, response, [answered](const Status& status) { answered->set_value(status); });
    check(answered->get_future().get());
    nothing_said(call);
  }
  void unload(Call& call) const {
    inference::RepositoryModelUnloadRequest request;
    request.set_model_name(call.name);
    ask(&Calls::unload, request);
    nothing_said(call);
  }

  void system_memory(Call& call) const {
    ask(&Calls::system_memory, of_region<inference::SystemSharedMemoryStatusRequest>(call));
    call.http.answer(Json::array());
  }
  void register_system_memory(Call& call) const {
    ask(&Calls::register_system_memory, of_region<inference::SystemSharedMemoryRegisterRequest>(call));
  }
  void cuda_memory(Call& call) const {
    ask(&Calls::cuda_memory, of_region<inference::CudaSharedMemoryStatusRequest>(call));
    call.http.answer(Json::array());
  }
  void register_cuda_memory(Call& call) const {
    ask(&Calls::register_cuda_memory, of_region<inference::CudaSharedMemoryRegisterRequest>(call));
  }

  Calls& calls_;
  const Has has_;
};

}  // namespace kserve
