// SPDX-License-Identifier: Apache-2.0

/// Some calls in turn to a server that keeps states of users. None may crash it. Whole requests are answered as by a
/// server that is not divided, and so are later ones about users whom it knows; about others they are refused.

#include <grpcpp/support/status.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "examples/server_fuzzing.hpp"
#include "examples/user_pages.hpp"
#include "support/fuzz_input.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace kserve::fuzzing { namespace {

using test_support::FuzzInput;
using test_support::require;

constexpr int num_users = 4, num_pages = 3;

struct Call {
  ModelInferRequest request;
  bool is_intact = false;  ///< the page of the user, whole or later
  bool is_later = false;
  int user = 0, page = 0;
};

/// A server of the model of user_pages.hpp.
class Hosted {
 public:
  Hosted(const Plan& plan, UserStates* states)
      : dense_(test_support::random_weights(plan, 1)),
        rows_(test_support::random_tables(plan, 40, 1)),
        tables_(Tables::load(plan, rows_, host())),
        served_(states == nullptr ? Servable(Model::bind(plan, dense_, tables_))
                                  : Servable::bind(divide(plan, "item"), dense_, tables_),
                tables_, {.contexts = 1}),
        hosted_(served_, [this] { return NextModel{.dense = dense_, .tables = rows_}; },
                {.record_every = 2, .users = states}) {}

  grpc::Status ask(const ModelInferRequest& request, ModelInferResponse& response) {
    return answer_of(hosted_, request, response);
  }
  /// For the same model, whose version is another.
  void exchange() { hosted_.load(SwapMode::full, LoaderPriority::as_caller); }

 private:
  const Weights dense_, rows_;
  const Tables tables_;
  ServedModel served_;
  HostedModel hosted_;
};

/// The user that a call names, none or wrongly (an empty text).
std::optional<std::string> user_named(const ModelInferRequest& request) {
  const auto found = request.parameters().find(user_state);
  if (found == request.parameters().end()) return std::nullopt;
  const InferParameter& value = found->second;
  if (value.has_string_param()) return value.string_param();
  if (value.has_int64_param()) return std::to_string(value.int64_param());
  return value.has_uint64_param() ? std::to_string(value.uint64_param()) : std::string();
}

/// What an answer says of the model's outputs.
std::string outputs_of(ModelInferResponse response) {
  response.clear_id();
  response.clear_model_version();
  response.clear_parameters();
  return response.SerializeAsString();
}

/// Both servers, and what the divided one must know.
class Servers {
 public:
  const Plan& plan() const { return plan_; }
  const BatchLayout& later_layout() const { return later_layout_; }

  void forget() {
    states_.expire_after(std::chrono::milliseconds(0));
    known_.clear();
  }
  void exchange() {
    divided_.exchange();
    known_.clear();
  }

  void make(const Call& call) {
    ModelInferRequest without_user = call.request;
    without_user.mutable_parameters()->erase(user_state);
    ModelInferResponse response, as_whole;
    const bool is_whole = undivided_.ask(without_user, as_whole).ok();  // a later request is none of its
    const grpc::Status status = divided_.ask(call.request, response);
    require(status.ok() || status.error_code() == grpc::StatusCode::INVALID_ARGUMENT || is_unknown(status));
    const std::optional<std::string> user = user_named(call.request);
    require((response.parameters().count(user_state) != 0) == (status.ok() && user.has_value()));
    if (user && user->empty()) return require(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    if (!user) {
      require(status.ok() == (is_whole && !has_infinite_states(status)));
      require(!status.ok() || outputs_of(response) == outputs_of(as_whole));
      require(!call.is_intact || !call.is_later || is_unknown(status) == is_blob(call.request));
    } else if (is_whole) {
      check_whole(call, *user, status, outputs_of(response) == outputs_of(as_whole));
    } else {
      check_later(call, *user, status, outputs_of(response));
    }
  }

 private:
  /// Of whose side the states of a user are; unclear: of a request that is no page.
  static constexpr int unclear = -1;

  static bool is_unknown(const grpc::Status& status) {
    return status.error_code() == grpc::StatusCode::FAILED_PRECONDITION &&
           status.error_message() == "nothing is known of its user; send the whole request";
  }
  static bool is_blob(const ModelInferRequest& request) { return request.inputs(0).name() == blobs_name; }
  static bool has(const grpc::Status& status, const char* text) {
    return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
           status.error_message().find(text) != std::string::npos;
  }

  /// States are not kept, and then not scored by, where a sum on the user's side is above what FP32 has.
  static bool has_infinite_states(const grpc::Status& status) { return has(status, "NaN or infinity"); }

  void check_whole(const Call& call, const std::string& user, const grpc::Status& status, bool is_as_whole) {
    if (!status.ok())
      return require(!call.is_intact && (has(status, "a call of one request") || has_infinite_states(status)));
    const int side = call.is_intact ? call.user : unclear;
    const auto [known, is_new] = known_.emplace(user, side);
    require(is_as_whole || (!is_new && (side == unclear || known->second == unclear)));
    if (side == unclear) known->second = unclear;  // if the states did not fit, they are the request's now
  }
  void check_later(const Call& call, const std::string& user, const grpc::Status& status, const std::string& outputs) {
    const auto known = known_.find(user);
    const bool is_known = known != known_.end();
    require(is_known || !status.ok());
    require(!is_known || !is_unknown(status));
    if (!call.is_intact) return;
    require(is_known || is_unknown(status));
    if (!is_known || known->second == unclear) return;
    ModelInferResponse expected;
    require(undivided_.ask(named(page_of(known->second, call.page), plan_.layout()), expected).ok());
    require(status.ok() && outputs == outputs_of(expected));
  }

  const Plan plan_ =
      compile(page_model,
              {.capacities = {{.requests = 4, .items = 40, .rows = {{"event", 24}, {"session", 8}, {"genres", 80}}}}});
  const BatchLayout later_layout_ = divide(plan_, "item").later_requests;
  UserStates states_{{.most_bytes = int64_t{16} << 20}};
  Hosted divided_{plan_, &states_}, undivided_{plan_, nullptr};
  std::map<std::string, int> known_;  // for each user of whom states are kept
};

/// Names the user of a call, in one of the ways that there are, or wrongly. No two users have a name in common.
void take_name(FuzzInput& input, int user, ModelInferRequest& request) {
  const uint8_t kind = input.take<uint8_t>() % 9;
  if (kind == 0) return;
  InferParameter& name = (*request.mutable_parameters())[user_state];
  if (kind == 1) name.set_uint64_param(static_cast<uint64_t>(user));
  if (kind == 2) name.set_int64_param(user);
  if (kind == 3 || kind == 4) name.set_string_param(std::to_string(user));
  if (kind == 5) {
    const auto front = input.take<std::array<char, 9>>();
    name.set_string_param(std::string(front.data(), front.size()) + std::to_string(user));
  }
  if (kind == 6) name.set_string_param("");
  if (kind == 7) name.set_double_param(user);  // of kind 8 it is nothing
}

/// Changes one thing about a call, which may then be right or wrong.
void take_change(FuzzInput& input, const BatchLayout& layout, ModelInferRequest& request) {
  if (request.inputs_size() == 0) return;
  const int i = input.take<uint8_t>() % request.inputs_size();
  auto& tensor = *request.mutable_inputs(i);
  std::string& raw = *request.mutable_raw_input_contents(i);
  const uint8_t kind = input.take<uint8_t>() % 8, value = input.take<uint8_t>();
  if (kind == 0) raw.resize(value % (raw.size() + 9));
  if (kind == 1) tensor.set_name(layout.ids()[value % layout.ids().size()].name);
  if (kind == 2 && tensor.shape_size() > 0) tensor.set_shape(value % tensor.shape_size(), input.take<int8_t>());
  if (kind == 3) tensor.set_datatype(value % 2 == 0 ? "INT64" : "FP32");
  if (kind == 4) {
    request.mutable_inputs()->DeleteSubrange(i, 1);
    request.mutable_raw_input_contents()->DeleteSubrange(i, 1);
  }
  if (kind == 5) {
    const std::string copy = raw;
    const auto same = tensor;
    *request.add_inputs() = same;
    request.add_raw_input_contents(copy);
  }
  if (kind > 5 && !raw.empty()) raw[input.take<uint16_t>() % raw.size()] = static_cast<char>(value);
}

Call take_call(FuzzInput& input, const Servers& servers) {
  Call call;
  call.user = input.take<uint8_t>() % num_users;
  call.page = input.take<uint8_t>() % num_pages;
  const uint8_t form = input.take<uint8_t>();
  call.is_later = (form & 1) != 0;
  const BatchLayout& layout = call.is_later ? servers.later_layout() : servers.plan().layout();
  const PlainRequest page = page_of(call.user, call.page);
  call.request = form & 2 ? packed({blob_of(page, layout)}) : named(page, layout);
  take_name(input, call.user, call.request);
  int changes = input.take<uint8_t>() % 4;
  call.is_intact = changes == 0;
  for (; changes > 0; --changes) take_change(input, servers.plan().layout(), call.request);
  return call;
}

/// Any message.
Call take_message(FuzzInput& input) {
  Call call;
  std::string bytes(input.take<uint8_t>(), '\0');
  for (char& byte : bytes) byte = input.take<char>();
  if (!call.request.ParseFromString(bytes)) call.request.Clear();
  call.request.mutable_parameters()->erase("timeout");
  return call;
}

}}  // namespace kserve::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kserve::fuzzing;
  static Servers servers;
  servers.forget();
  FuzzInput input(data, size);
  for (int calls = 0; calls < 8 && !input.empty(); ++calls) {
    const uint8_t what = input.take<uint8_t>() % 16;
    if (what == 0)
      servers.forget();
    else if (what == 1)
      servers.exchange();
    else
      servers.make(what == 2 ? take_message(input) : take_call(input, servers));
  }
  return 0;
}
