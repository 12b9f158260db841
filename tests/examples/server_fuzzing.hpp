// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What fuzz targets of the server ask.

#include <grpcpp/support/status.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "../../examples/server/infer.hpp"
#include "support/fuzz_input.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace kserve::fuzzing {

using namespace warprank;

/// What a call is answered; a refusal says why.
inline grpc::Status answer_of(HostedModel& hosted, const inference::ModelInferRequest& request,
                              inference::ModelInferResponse& response) {
  std::promise<grpc::Status> answered;
  infer(hosted, request, response, std::chrono::steady_clock::time_point::max(),
        [&](const grpc::Status& status) { answered.set_value(status); });
  grpc::Status status = answered.get_future().get();
  test_support::require(status.ok() || !status.error_message().empty());
  return status;
}

/// A model of nested axes, direct and hashed tables, with its queue.
class Service {
 public:
  const Plan& plan() const { return plan_; }
  /// Answered, or refused as invalid.
  grpc::Status infer(const inference::ModelInferRequest& request, inference::ModelInferResponse& response) {
    const grpc::Status status = answer_of(hosted_, request, response);
    test_support::require(status.ok() || status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    return status;
  }
  /// What inputs are called, and what is not an input.
  const std::vector<std::string>& names() const { return names_; }

 private:
  static Outputs describe(Builder& b) {
    const auto user = b.axis("user"), item = b.axis("item", user), genres = b.axis("genres", item, keep_last(3));
    const auto who = b.embed(b.ids("user_id", user), b.hashed_table("who", {.dim = 4}));
    const auto film =
        b.concat({b.embed(b.ids("film_id", item), b.table("film", {.dim = 4})),
                  b.embed_bag(b.ids("genre", genres, {.default_id = -1}), b.table("kind", {.dim = 4}), mean),
                  b.dense("x", item, 2), b.expand(b.dense("hour", user, 1, {.default_value = 1.0f}), item)});
    return {{"y", b.sigmoid(b.linear("top", b.concat({film, b.expand(who, item)}), 1))},
            {"u", b.linear("own", who, 2)}};
  }

  const Plan plan_ = compile(describe, {.capacities = {{.requests = 1, .items = 8}, {.requests = 16, .items = 64}}});
  Tables tables_ = Tables::load(plan_, test_support::random_tables(plan_, 20, 1), host());
  ServedModel served_{Model::bind(plan_, test_support::random_weights(plan_, 1), tables_), tables_, {.contexts = 1}};
  kserve::HostedModel hosted_{served_, [] { return NextModel(); }, {.most_requests = 8, .record_every = 2}};
  const std::vector<std::string> names_ = [this] {
    std::vector<std::string> names = hosted_.names().all();
    names.insert(names.end(), {kserve::blobs_name, "other", "y"});
    return names;
  }();
};

}  // namespace kserve::fuzzing
