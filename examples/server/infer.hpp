// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One ModelInfer: from the message to requests in the queue, and from their replies to the answer.

#include <grpcpp/support/status.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "call_user.hpp"
#include "hosted_model.hpp"
#include "inference.pb.h"

namespace kserve {

/// What a header of HTTP/2 can carry.
inline std::string shortened(std::string message) {
  constexpr size_t most = 3000;
  if (message.size() > most) message.resize(most);
  return message;
}

inline grpc::Status invalid(const std::string& message) {
  return {grpc::StatusCode::INVALID_ARGUMENT, shortened(message)};
}

/// Of a request that was not scored.
inline grpc::Status to_status(const warprank::Reply& reply) {
  grpc::StatusCode code = grpc::StatusCode::INTERNAL;
  if (reply.outcome == warprank::Outcome::bad_request) code = grpc::StatusCode::INVALID_ARGUMENT;
  if (reply.outcome == warprank::Outcome::refused)
    code = reply.refusal == warprank::Refusal::late        ? grpc::StatusCode::DEADLINE_EXCEEDED
           : reply.refusal == warprank::Refusal::stopping  ? grpc::StatusCode::UNAVAILABLE
           : reply.refusal == warprank::Refusal::cancelled ? grpc::StatusCode::CANCELLED
           : reply.refusal == warprank::Refusal::unknown_user
               ? grpc::StatusCode::FAILED_PRECONDITION  // another server does not help: send the whole request
               : grpc::StatusCode::RESOURCE_EXHAUSTED;
  return {code, shortened(reply.message)};
}

namespace detail {

inline std::string_view bytes_of(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }
template <class Values>
std::string_view bytes_of(const Values& values) {
  return bytes_of(values.data(), static_cast<size_t>(values.size()) * sizeof(*values.data()));
}

/// The field of InferTensorContents that has the values of a type; empty where no input takes it.
inline std::string_view field_of(std::string_view datatype) {
  if (datatype == "INT64") return "int64_contents";
  if (datatype == "UINT64") return "uint64_contents";
  if (datatype == "INT32") return "int_contents";
  if (datatype == "FP32") return "fp32_contents";
  return datatype == "BYTES" ? "bytes_contents" : "";
}

/// Adds a problem for each field of `input` that has values but those that are read.
inline void check_contents(const inference::ModelInferRequest::InferInputTensor& input, bool is_raw,
                           warprank::Problems& problems) {
  const inference::InferTensorContents& contents = input.contents();
  const std::string_view right = is_raw ? "raw_input_contents" : field_of(input.datatype());
  const auto see = [&](std::string_view field, int size) {
    if (size == 0 || field == right || right.empty()) return;
    problems.add("tensor '" + input.name().substr(0, 200) + "'",
                 "values in " + std::string(right) + (is_raw ? ", as the call has some there" : ", as it is ") +
                     (is_raw ? "" : input.datatype()),
                 std::to_string(size) + " in " + std::string(field));
  };
  see("bool_contents", contents.bool_contents_size());
  see("int_contents", contents.int_contents_size());
  see("int64_contents", contents.int64_contents_size());
  see("uint_contents", contents.uint_contents_size());
  see("uint64_contents", contents.uint64_contents_size());
  see("fp32_contents", contents.fp32_contents_size());
  see("fp64_contents", contents.fp64_contents_size());
  see("bytes_contents", contents.bytes_contents_size());
}

/// Adds a problem where a tensor, or an output, is to be elsewhere than in the message, or to be something else.
template <class Tensor>
void check_parameters(const char* kind, const Tensor& tensor, warprank::Problems& problems) {
  const std::string what = kind + (" '" + tensor.name().substr(0, 200) + "'");
  if (tensor.parameters().count("shared_memory_region") != 0)
    problems.add(what, "values in the message", "a shared memory region");
  if (tensor.parameters().count("classification") != 0) problems.add(what, "all scores to be wanted", "classification");
}

/// Throws warprank::invalid_argument, also where values are in a field that is not read.
inline std::vector<Tensor> tensors_of(const inference::ModelInferRequest& request) {
  const bool is_raw = request.raw_input_contents_size() > 0;
  warprank::Problems problems;
  for (const auto& input : request.inputs()) {
    check_contents(input, is_raw, problems);
    check_parameters("tensor", input, problems);
  }
  problems.throw_if_any();
  if (is_raw && request.raw_input_contents_size() != request.inputs_size())
    throw warprank::invalid_argument("raw_input_contents",
                                     std::to_string(request.inputs_size()) + ", one for each input",
                                     std::to_string(request.raw_input_contents_size()));
  std::vector<Tensor> tensors;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& input = request.inputs(i);
    Tensor& tensor = tensors.emplace_back();
    tensor.name = input.name();
    tensor.datatype = input.datatype();
    tensor.shape.assign(input.shape().begin(), input.shape().end());
    const inference::InferTensorContents& contents = input.contents();
    if (is_raw)
      tensor.bytes = request.raw_input_contents(i);
    else if (tensor.datatype == "INT64")
      tensor.bytes = bytes_of(contents.int64_contents());
    else if (tensor.datatype == "UINT64")
      tensor.bytes = bytes_of(contents.uint64_contents());
    else if (tensor.datatype == "INT32")
      tensor.bytes = bytes_of(contents.int_contents());
    else if (tensor.datatype == "FP32")
      tensor.bytes = bytes_of(contents.fp32_contents());
    else if (tensor.datatype == "BYTES")
      tensor.elements.assign(contents.bytes_contents().begin(), contents.bytes_contents().end());
  }
  return tensors;
}

/// Parameters of a call that Triton's clients set: `priority` 1 is high, `timeout` is in microseconds. And its user.
/// Throws warprank::invalid_argument where they are no such values.
inline warprank::CallOptions call_options(const inference::ModelInferRequest& request,
                                          std::chrono::steady_clock::time_point now,
                                          std::chrono::steady_clock::time_point deadline) {
  const auto number = [&](const char* name) -> int64_t {
    const auto found = request.parameters().find(name);
    if (found == request.parameters().end()) return 0;
    const inference::InferParameter& value = found->second;
    const auto refuse = [&](const std::string& got) {
      throw warprank::invalid_argument("parameter '" + std::string(name) + "'", "an integer from 0 to 2^63 - 1", got);
    };
    if (value.has_string_param()) refuse("text, '" + value.string_param().substr(0, 80) + "'");
    if (value.has_double_param()) refuse("a number with a fraction, " + std::to_string(value.double_param()));
    if (value.has_bool_param()) refuse("a truth value");
    const int64_t number = value.has_uint64_param() ? static_cast<int64_t>(value.uint64_param()) : value.int64_param();
    if (number < 0) refuse(value.has_uint64_param() ? std::to_string(value.uint64_param()) : std::to_string(number));
    return number;
  };
  warprank::CallOptions how;
  how.deadline = deadline;
  how.user = user_of(request);
  if (number("priority") == 1) how.priority = warprank::Priority::high;
  const int64_t timeout = number("timeout"), day = 86'400'000'000;
  if (timeout > 0 && timeout < day) how.deadline = std::min(deadline, now + std::chrono::microseconds(timeout));
  return how;
}

/// A call on its way: the last of its replies answers it.
class InferCall : public std::enable_shared_from_this<InferCall> {
 public:
  using Done = std::function<void(grpc::Status)>;

  InferCall(HostedModel& model, const inference::ModelInferRequest& request, inference::ModelInferResponse& response,
            Done done)
      : model_(model), request_(request), response_(response), done_(std::move(done)) {}

  void start(std::chrono::steady_clock::time_point deadline, uint64_t number) {
    warprank::CallOptions how = call_options(request_, begin_, deadline);
    how.call = number;
    if (how.user && !model_.later())
      throw warprank::invalid_argument("parameter '" + std::string(user_state) + "'",
                                       "a server that keeps states of users, by its option --keep-users",
                                       "one that does not");
    const std::vector<Tensor> tensors = tensors_of(request_);
    std::vector<std::string_view> wanted;
    warprank::Problems problems;
    for (const auto& output : request_.outputs()) {
      check_parameters("output", output, problems);
      wanted.push_back(output.name());
    }
    problems.throw_if_any();
    wanted_ = model_.outputs().find(wanted);
    if (tensors.size() == 1 && tensors[0].name == blobs_name) {
      const std::vector<std::string_view> blobs = byte_elements(tensors[0]);
      if (const auto most = model_.options().most_requests; blobs.empty() || static_cast<int64_t>(blobs.size()) > most)
        throw warprank::invalid_argument(std::string("tensor '") + blobs_name + "'",
                                         "1 to " + std::to_string(most) + " requests", std::to_string(blobs.size()));
      check_user(how, blobs.size());
      each(blobs.size(), [&](size_t r, warprank::ReplyCallback reply) {
        const warprank::Span<const std::byte> blob(reinterpret_cast<const std::byte*>(blobs[r].data()),
                                                   static_cast<int64_t>(blobs[r].size()));
        model_.recorder().offer([&](warprank::Batch& batch) { batch.add_blob(blob); });
        model_.service().score_blob(blob, std::move(reply), how);
      });
      return;
    }
    const int64_t most_requests = model_.options().most_requests;
    if (how.user && model_.later()->have_all(tensors)) {
      const NamedRequests requests(model_.later()->layout, model_.later()->names, tensors, most_requests);
      check_user(how, static_cast<size_t>(requests.size()));
      each(1, [&](size_t, warprank::ReplyCallback reply) {
        const auto fill = [&](warprank::Request request) { requests.fill(request, 0); };
        model_.service().score_later(fill, std::move(reply), how);
      });
      return;
    }
    const NamedRequests requests(model_.layout(), model_.names(), tensors, most_requests);
    check_user(how, static_cast<size_t>(requests.size()));
    each(static_cast<size_t>(requests.size()), [&](size_t r, warprank::ReplyCallback reply) {
      const auto fill = [&](warprank::Request request) { requests.fill(request, static_cast<int64_t>(r)); };
      model_.recorder().offer([&](warprank::Batch& batch) { fill(batch.add_request()); });
      model_.service().score(fill, std::move(reply), how);
    });
  }

 private:
  static void check_user(const warprank::CallOptions& how, size_t requests) {
    if (how.user && requests != 1)
      throw warprank::invalid_argument("parameter '" + std::string(user_state) + "'",
                                       "a call of one request, the user's", "one of " + std::to_string(requests));
  }

  template <class Score>
  void each(size_t count, const Score& score) {
    replies_.resize(count);
    left_ = count;
    for (size_t r = 0; r < count; ++r) {
      const auto reply = [self = shared_from_this(), r](warprank::Reply got) { self->take(r, std::move(got)); };
      try {
        score(r, reply);
      } catch (const std::exception& error) {  // then nobody calls `reply`
        warprank::Reply failed;
        failed.outcome = warprank::Outcome::failed;
        failed.message = error.what();
        take(r, std::move(failed));
      }
    }
  }

  void take(size_t r, warprank::Reply reply) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
    model_.statistics().add(reply, took.count());
    replies_[r] = std::move(reply);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) finish();
  }

  void finish() {
    const auto is_scored = [](const warprank::Reply& reply) { return reply.outcome == warprank::Outcome::scored; };
    const auto scored = std::find_if(replies_.begin(), replies_.end(), is_scored);
    if (scored == replies_.end()) return done_(to_status(replies_.front()));
    try {
      write(scored->version);
    } catch (const std::exception& error) {
      return done_({grpc::StatusCode::INTERNAL, shortened(error.what())});
    }
    done_(grpc::Status::OK);
  }

  void write(int64_t version) {
    response_.set_model_name(model_.name());
    response_.set_model_version(std::to_string(version));
    response_.set_id(request_.id());
    if (replies_.front().is_user_kept) (*response_.mutable_parameters())[user_state].set_string_param("kept");
    for (OutputTensor& tensor : answer(model_.outputs(), wanted_, replies_)) {
      auto& output = *response_.add_outputs();
      output.set_name(std::move(tensor.name));
      output.set_datatype(std::move(tensor.datatype));
      for (const int64_t extent : tensor.shape) output.add_shape(extent);
      response_.add_raw_output_contents(std::move(tensor.bytes));
    }
  }

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  HostedModel& model_;
  const inference::ModelInferRequest& request_;
  inference::ModelInferResponse& response_;
  const Done done_;
  std::vector<size_t> wanted_;
  std::vector<warprank::Reply> replies_;  // each written by whoever has it
  std::atomic<size_t> left_{0};
};

}  // namespace detail

/// Scores the requests of a call; `done` is called once, by this thread or by another. The messages live until then.
/// `number`: CallOptions::call.
inline void infer(HostedModel& model, const inference::ModelInferRequest& request,
                  inference::ModelInferResponse& response, std::chrono::steady_clock::time_point deadline,
                  const std::function<void(grpc::Status)>& done, uint64_t number = 0) {
  try {
    std::make_shared<detail::InferCall>(model, request, response, done)->start(deadline, number);
  } catch (const warprank::invalid_argument& error) {
    done(invalid(error.what()));
  } catch (const std::exception& error) {
    done({grpc::StatusCode::INTERNAL, shortened(error.what())});
  }
}

}  // namespace kserve
