// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A client of a warprank server: requests are packed here, as docs/BATCH_FORMAT.md says, and sent as they are.
///
///     RankClient client(channel, "model");
///     warprank::Batch batch = client.batch();
///     batch.add_request().dense(client.layout().dense("x"), x);
///     const Ranking ranking = client.score(batch, std::chrono::seconds(20));
///     const warprank::Span<const float> scores = ranking.of("y", 0);
///
/// About a user who is asked about again, of whom the server keeps what it computes (docs/SERVER.md):
///
///     const Ranking page = client.score_about("user 42", batch, std::chrono::seconds(20));

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../server/layout_json.hpp"
#include "inference.grpc.pb.h"
#include "known_users.hpp"
#include "later_request.hpp"
#include "warprank/batch/batch.hpp"

namespace rank_client {

/// A call that has no answer; its status tells whether the same may be tried again (docs/SERVER.md).
class call_failed : public std::runtime_error {
 public:
  explicit call_failed(const grpc::Status& status) : std::runtime_error(status.error_message()), status_(status) {}
  const grpc::Status& status() const { return status_; }

 private:
  grpc::Status status_;
};

/// The scores of the requests of a call.
class Ranking {
 public:
  /// Throws std::runtime_error for a response that is not a warprank server's.
  Ranking(const inference::ModelInferResponse& response, int64_t num_requests)
      : version_(response.model_version()), errors_(static_cast<size_t>(num_requests)) {
    if (response.raw_output_contents_size() != response.outputs_size()) throw unexpected("outputs");
    const auto user = response.parameters().find("user_state");
    is_user_kept_ = user != response.parameters().end() && user->second.string_param() == "kept";
    std::map<std::string, std::vector<int64_t>> offsets;
    for (int o = 0; o < response.outputs_size(); ++o) {
      const auto& tensor = response.outputs(o);
      const std::string& bytes = response.raw_output_contents(o);
      if (tensor.datatype() == "FP32" && tensor.shape_size() == 2)
        outputs_[tensor.name()] = {tensor.shape(1), copied<float>(bytes), {}};
      else if (tensor.datatype() == "INT64")
        offsets[tensor.name()] = copied<int64_t>(bytes);
      else if (tensor.name() == "errors")
        read_errors(bytes);
    }
    for (auto& [name, output] : outputs_) {
      const auto rows = static_cast<int64_t>(output.values.size()) / output.width;
      output.offsets = num_requests == 1 ? std::vector<int64_t>{0, rows} : find_offsets(offsets, rows, num_requests);
    }
  }

  /// [rows * width], no rows where the request has an error. Throws std::out_of_range for an unknown name or request.
  warprank::Span<const float> of(const std::string& output, int64_t request) const {
    const Output& found = outputs_.at(output);
    const int64_t begin = found.offsets.at(static_cast<size_t>(request)),
                  end = found.offsets.at(static_cast<size_t>(request) + 1);
    return {found.values.data() + begin * found.width, (end - begin) * found.width};
  }
  std::vector<std::string> outputs() const {
    std::vector<std::string> names;
    for (const auto& [name, output] : outputs_) names.push_back(name);
    return names;
  }
  /// Why a request was not scored; empty: it was.
  const std::string& error(int64_t request) const { return errors_.at(static_cast<size_t>(request)); }
  /// Of the model that scored them.
  const std::string& version() const { return version_; }
  /// Whether the server keeps states of the user: of a call by RankClient::score_about.
  bool is_user_kept() const { return is_user_kept_; }

 private:
  struct Output {
    int64_t width = 1;
    std::vector<float> values;
    std::vector<int64_t> offsets;  // [requests + 1]
  };

  static std::runtime_error unexpected(const std::string& what) {
    return std::runtime_error("response: expected " + what + " as docs/SERVER.md says, got others");
  }
  template <class Value>
  static std::vector<Value> copied(const std::string& bytes) {
    std::vector<Value> values(bytes.size() / sizeof(Value));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Value));
    return values;
  }
  /// Those that fit an output: models whose outputs have rows of several axes have several.
  static std::vector<int64_t> find_offsets(const std::map<std::string, std::vector<int64_t>>& offsets, int64_t rows,
                                           int64_t num_requests) {
    for (const auto& [name, found] : offsets)
      if (static_cast<int64_t>(found.size()) == num_requests + 1 && found.back() == rows) return found;
    throw unexpected("offsets");
  }
  void read_errors(const std::string& bytes) {
    size_t at = 0;
    for (std::string& error : errors_) {
      uint32_t size = 0;
      if (bytes.size() - at < sizeof size) throw unexpected("errors");
      std::memcpy(&size, bytes.data() + at, sizeof size);
      at += sizeof size;
      if (bytes.size() - at < size) throw unexpected("errors");
      error = bytes.substr(at, size);
      at += size;
    }
  }

  std::string version_;
  bool is_user_kept_ = false;
  std::map<std::string, Output> outputs_;
  std::vector<std::string> errors_;
};

/// One model of one server. Any threads at once.
class RankClient {
 public:
  /// Asks the server what the model's requests are. It remembers that many users for score_about. Throws call_failed,
  /// and warprank::invalid_argument for a server that does not tell.
  RankClient(const std::shared_ptr<grpc::Channel>& channel, std::string model, std::string token = {},
             size_t most_users = 100'000)
      : stub_(inference::GRPCInferenceService::NewStub(channel)),
        model_(std::move(model)),
        token_(std::move(token)),
        known_(most_users) {
    inference::ModelConfigRequest request;
    request.set_name(model_);
    inference::ModelConfigResponse response;
    grpc::ClientContext context;
    prepare(context, Clock::now() + std::chrono::seconds(10));
    check(stub_->ModelConfig(&context, request, &response));
    layout_ = layout_of(response.config(), "layout");
    if (layout_ == nullptr)
      throw warprank::invalid_argument("model '" + model_ + "'", "a configuration with a parameter 'layout'", "none");
    later_layout_ = layout_of(response.config(), "later_layout");
  }

  const warprank::BatchLayout& layout() const { return *layout_; }
  /// For requests to this model; may be used again and again.
  warprank::Batch batch() const { return warprank::Batch(layout_); }

  /// Scores all requests of a batch, which it closes; `is_urgent`: before those of other callers. Throws call_failed,
  /// and warprank::invalid_argument for requests that are wrong, before anything is sent.
  Ranking score(warprank::Batch& batch, std::chrono::milliseconds timeout, bool is_urgent = false) const {
    const Clock::time_point deadline = Clock::now() + timeout;
    inference::ModelInferResponse response;
    check(send(batch, nullptr, is_urgent, deadline, response));
    return {response, batch.size()};
  }
  /// Scores the request of a batch, a whole one about the user who is called `user_state`. Of a user whom the server
  /// said it knows it sends the items' side alone and, if the server has forgotten the user, the whole request; both
  /// within `timeout`. Throws warprank::invalid_argument for other batches, too.
  Ranking score_about(const std::string& user_state, warprank::Batch& batch, std::chrono::milliseconds timeout,
                      bool is_urgent = false) const {
    const Clock::time_point deadline = Clock::now() + timeout;
    if (batch.size() != 1)
      throw warprank::invalid_argument("batch about a user", "one request", std::to_string(batch.size()));
    batch.close();
    inference::ModelInferResponse response;
    bool is_unknown = true;
    if (later_layout_ != nullptr && batch.status(0).ok() && known_.has(user_state)) {
      warprank::Batch later(later_layout_);
      add_later(later, *layout_, batch.blob(0));
      const grpc::Status status = send(later, &user_state, is_urgent, deadline, response);
      is_unknown = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
      if (!is_unknown) check(status);
    }
    if (is_unknown) check(send(batch, &user_state, is_urgent, deadline, response));
    Ranking ranking(response, 1);
    ranking.is_user_kept() ? known_.add(user_state) : known_.remove(user_state);
    return ranking;
  }

 private:
  using Clock = std::chrono::system_clock;

  static std::shared_ptr<const warprank::BatchLayout> layout_of(const inference::ModelConfig& config,
                                                                const char* parameter) {
    const auto found = config.parameters().find(parameter);
    if (found == config.parameters().end()) return nullptr;
    return std::make_shared<const warprank::BatchLayout>(kserve::layout_of(found->second.string_value()));
  }

  /// Closes the batch. `user_state`: null for none. Throws warprank::invalid_argument.
  grpc::Status send(warprank::Batch& batch, const std::string* user_state, bool is_urgent, Clock::time_point deadline,
                    inference::ModelInferResponse& response) const {
    batch.close();
    inference::ModelInferRequest request;
    request.set_model_name(model_);
    if (is_urgent) (*request.mutable_parameters())["priority"].set_int64_param(1);
    if (user_state != nullptr) (*request.mutable_parameters())["user_state"].set_string_param(*user_state);
    auto& tensor = *request.add_inputs();
    tensor.set_name("request_blobs");
    tensor.set_datatype("BYTES");
    tensor.add_shape(batch.size());
    std::string& bytes = *request.add_raw_input_contents();
    warprank::Problems problems;
    for (int64_t r = 0; r < batch.size(); ++r) {
      if (const warprank::Status status = batch.status(r); !status.ok()) {
        problems.add("request " + std::to_string(r), "a request of the model", status.message);
        continue;
      }
      const warprank::BlobView blob = batch.blob(r);
      const auto size = static_cast<uint32_t>(blob.bytes());
      bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
      bytes.append(reinterpret_cast<const char*>(blob.data()), size);
    }
    problems.throw_if_any();
    grpc::ClientContext context;
    prepare(context, deadline);
    return stub_->ModelInfer(&context, request, &response);
  }
  void prepare(grpc::ClientContext& context, Clock::time_point deadline) const {
    context.set_deadline(deadline);
    if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
  }
  static void check(const grpc::Status& status) {
    if (!status.ok()) throw call_failed(status);
  }

  const std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  const std::string model_, token_;
  std::shared_ptr<const warprank::BatchLayout> layout_, later_layout_;  // the second: null if no states are kept
  mutable KnownUsers known_;
};

}  // namespace rank_client
