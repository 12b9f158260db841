// SPDX-License-Identifier: Apache-2.0
//
// A server that keeps states of users: the protocol by gRPC and HTTP.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../../examples/server/http_ports.hpp"
#include "../../examples/server/user_options.hpp"
#include "examples/http_testing.hpp"
#include "examples/users_testing.hpp"

namespace kserve { namespace {

using namespace std::string_view_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using warprank::Refusal;
using warprank::ServiceCounters;
using warprank::UserStates;
using warprank::UserStatesCounters;
using warprank::Weights;

void expect_scores(const Answer& got, const Answer& expected) {
  ASSERT_TRUE(expected.status.ok()) << expected.status.error_message();
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_FALSE(expected.scores.empty());
  EXPECT_EQ(got.scores, expected.scores);
}
void expect_unknown(const Answer& got) {
  EXPECT_EQ(got.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(got.status.error_message(), "nothing is known of its user; send the whole request");
}
void expect_invalid(const Answer& got, const std::string& message) {
  EXPECT_EQ(got.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(got.status.error_message(), HasSubstr(message));
}

TEST_F(UsersTest, ScoresLaterRequestsAsAServerThatIsNotDivided) {
  for (int user = 0; user < 4; ++user) {
    const std::string key = "user " + std::to_string(user);
    expect_unknown(divided_->ask(about(key, later(user, 0))));
    const Answer first = divided_->ask(about(key, whole(user, 0)));
    expect_scores(first, undivided_->ask(whole(user, 0)));
    EXPECT_TRUE(first.is_kept);
    for (int page = 1; page < 3; ++page) {
      const Answer answer = divided_->ask(about(key, later(user, page)));
      expect_scores(answer, undivided_->ask(whole(user, page)));
      EXPECT_TRUE(answer.is_kept);
    }
    const Answer without_key = divided_->ask(whole(user, 0));
    expect_scores(without_key, first);
    EXPECT_FALSE(without_key.is_kept);
  }
  const ServiceCounters counters = divided_->counters();
  EXPECT_EQ(counters.known_users, 8);
  EXPECT_EQ(counters.refused(Refusal::unknown_user), 4);
}

TEST_F(UsersTest, TellsBlobsOfBothKindsApart) {
  const std::string whole_blob = blob_of(page_of(3, 0), plan_.layout()),
                    later_blob = blob_of(page_of(3, 1), later_layout_);
  expect_unknown(divided_->ask(about("user", packed({later_blob}))));
  expect_unknown(divided_->ask(packed({later_blob})));
  EXPECT_TRUE(divided_->ask(about("user", packed({whole_blob}))).is_kept);
  const Answer answer = divided_->ask(about("user", packed({later_blob})));
  expect_scores(answer, undivided_->ask(whole(3, 1)));
  EXPECT_TRUE(answer.is_kept);
}

TEST_F(UsersTest, TakesRequestsWithAnyTensorOfTheUsersSideForWholeOnes) {
  EXPECT_TRUE(divided_->ask(about("user", whole(0, 0))).is_kept);
  ModelInferRequest request = later(0, 1);
  add_raw(request, "seen", "INT64", {0}, "");
  expect_invalid(divided_->ask(about("user", request)), "'age'");  // has no default
  request = later(0, 1);
  add_raw(request, "agee", "FP32", {1, 3}, bytes(std::vector<float>(3)));
  expect_invalid(divided_->ask(about("user", request)), "did you mean 'age'");
  request = later(0, 1);
  add_raw(request, "event.offsets", "INT64", {2}, bytes(std::vector<int64_t>{0, 0}));
  expect_invalid(divided_->ask(about("user", request)), "'age'");
}

TEST_F(UsersTest, KnowsAUserByTextOrByNumber) {
  const auto by_number = [](auto number, ModelInferRequest request) {
    auto& parameter = (*request.mutable_parameters())[user_state];
    if constexpr (std::is_unsigned_v<decltype(number)>)
      parameter.set_uint64_param(number);
    else
      parameter.set_int64_param(number);
    return request;
  };
  EXPECT_TRUE(divided_->ask(by_number(int64_t{-7}, whole(1, 0))).is_kept);
  EXPECT_TRUE(divided_->ask(about("-7", later(1, 1))).is_kept);
  expect_unknown(divided_->ask(about("7", later(1, 1))));
  EXPECT_TRUE(divided_->ask(by_number(~uint64_t{0}, whole(1, 0))).is_kept);
  expect_unknown(divided_->ask(by_number(int64_t{-1}, later(1, 1))));
  const std::string long_key(5000, 'u');
  EXPECT_TRUE(divided_->ask(about(long_key, whole(2, 0))).is_kept);
  expect_scores(divided_->ask(about(long_key, later(2, 1))), undivided_->ask(whole(2, 1)));
  for (const size_t changed : {0, 7, 8, 4999}) {
    std::string other = long_key;
    other[changed] = 'v';
    expect_unknown(divided_->ask(about(other, later(2, 1))));
  }
  expect_unknown(divided_->ask(about(long_key + '\0', later(2, 1))));
}

TEST(UserKeys, DifferInBothHashes) {
  const warprank::UserKey key = user_key_of("user 1"), same = user_key_of(std::string("user 1"));
  EXPECT_TRUE(key == same);
  EXPECT_NE(key.low, key.high);
  for (const char* other : {"", "user 2", "user 1 ", "1 user", "vser 1"}) {
    EXPECT_NE(user_key_of(other).low, key.low) << other;
    EXPECT_NE(user_key_of(other).high, key.high) << other;
  }
  // Whose words are the same, but for how many bytes there are.
  EXPECT_NE(user_key_of("1\0"sv).high, user_key_of("1"sv).high);
}

TEST_F(UsersTest, SaysWhatIsWrongWithAUser) {
  const std::string expected = "parameter 'user_state': expected a text that is not empty, or an integer, got ";
  ModelInferRequest request = whole(1, 0);
  auto& parameter = (*request.mutable_parameters())[user_state];
  parameter.set_string_param("");
  expect_invalid(divided_->ask(request), expected + "an empty text");
  parameter.set_double_param(0.5);
  expect_invalid(divided_->ask(request), expected + "a number with a fraction, 0.5");
  parameter.set_bool_param(true);
  expect_invalid(divided_->ask(request), expected + "a truth value");
  parameter.clear_bool_param();
  expect_invalid(divided_->ask(request), expected + "nothing");
  expect_invalid(undivided_->ask(about("user", whole(1, 0))),
                 "parameter 'user_state': expected a server that keeps states of users, by its option --keep-users, "
                 "got one that does not");
  expect_invalid(undivided_->ask(packed({blob_of(page_of(1, 1), later_layout_)})), "blob");
  const std::string one = "parameter 'user_state': expected a call of one request, the user's, got one of 2";
  const std::string blob = blob_of(page_of(1, 0), plan_.layout());
  expect_invalid(divided_->ask(about("user", packed({blob, blob}))), one);
  ModelInferRequest two;
  two.set_model_name("model");
  add_raw(two, "age", "FP32", {2, 3}, bytes(std::vector<float>(6)));
  expect_invalid(divided_->ask(about("user", two)), one);
  two.clear_inputs();
  two.clear_raw_input_contents();
  add_raw(two, "session.offsets", "INT64", {3}, bytes(std::vector<int64_t>{0, 0, 0}));
  expect_invalid(divided_->ask(about("user", two)), one);
  EXPECT_EQ(states_.counters().kept, 0);
}

TEST_F(UsersTest, KnowsNobodyOfTheModelBefore) {
  for (const warprank::SwapMode mode : {warprank::SwapMode::full, warprank::SwapMode::dense_and_rows}) {
    EXPECT_TRUE(divided_->ask(about("user", whole(3, 0))).is_kept);
    const Answer before = divided_->ask(about("user", later(3, 1)));
    EXPECT_TRUE(before.is_kept);
    divided_->load(mode);
    undivided_->load(mode);
    expect_unknown(divided_->ask(about("user", later(3, 1))));
    const Answer after = divided_->ask(about("user", whole(3, 1)));
    expect_scores(after, undivided_->ask(whole(3, 1)));
    EXPECT_NE(after.version, before.version);
    EXPECT_NE(after.scores, before.scores);
    expect_scores(divided_->ask(about("user", later(3, 2))), undivided_->ask(whole(3, 2)));
    next_ = 0;
  }
}

TEST_F(UsersTest, TellsOfUsersInMetrics) {
  divided_->ask(about("user", later(1, 0)));
  divided_->ask(about("user", whole(1, 0)));
  divided_->ask(about("user", later(1, 1)));
  divided_->ask(about("user", later(1, 2)));
  divided_->load(warprank::SwapMode::full);
  divided_->ask(about("user", later(1, 2)));
  divided_->ask(about("user", whole(1, 2)));
  const std::string metrics = divided_->hosted().metrics();
  const UserStatesCounters counters = states_.counters();
  EXPECT_GE(counters.hits, 2);
  const auto line = [&](const std::string& metric, const std::string& labels, int64_t value) {
    EXPECT_THAT(metrics,
                HasSubstr("warprank_" + metric + "{model=\"model\"" + labels + "} " + std::to_string(value) + "\n"));
  };
  line("user_lookups_total", ",result=\"hit\"", counters.hits);
  line("user_lookups_total", ",result=\"absent\"", counters.misses - counters.outdated);
  line("user_lookups_total", ",result=\"outdated\"", counters.outdated);
  line("user_lookups_total", ",result=\"expired\"", 0);
  line("user_changes_total", ",change=\"kept\"", 2);
  line("user_changes_total", ",change=\"evicted\"", 0);
  line("user_changes_total", ",change=\"refused\"", 0);
  line("user_states", "", counters.states);
  line("user_state_bytes", "", counters.bytes);
  for (const char* result : {"hit", "miss"})
    line("user_device_lookups_total", std::string(",result=\"") + result + "\"", 0);  // no GPU
  line("user_device_state_bytes", "", 0);
  line("user_requests_total", ",user=\"known\"", 2);
  line("user_requests_total", ",user=\"changed\"", 0);
  line("refused_total", ",reason=\"unknown_user\"", 2);
  EXPECT_EQ(counters.outdated, 1);
  EXPECT_EQ(counters.states, 1);
  EXPECT_THAT(metrics, HasSubstr("warprank_user_hit_age_seconds_total{model=\"model\"} "));
  EXPECT_THAT(undivided_->hosted().metrics(), Not(HasSubstr("warprank_user_")));
}

TEST_F(UsersTest, TellsNoEventOfUnknownUsersAlone) {
  std::FILE* const file = std::tmpfile();
  EventLog log(file);
  HostedModel hosted(divided_->served(), [this] { return model(0); }, {.log = &log, .users = &states_});
  warprank::CallOptions how;
  how.user = user_key_of("user");
  const auto refused_by = [&] { return hosted.service().score_later([](warprank::Request) {}, how).get().refusal; };
  EXPECT_EQ(refused_by(), Refusal::unknown_user);
  hosted.log_refusals();
  EXPECT_EQ(refused_by(), Refusal::unknown_user);
  hosted.service().stop();
  EXPECT_EQ(refused_by(), Refusal::stopping);
  hosted.log_refusals();
  std::rewind(file);
  std::vector<nlohmann::json> events;
  for (char line[1000]; std::fgets(line, sizeof line, file) != nullptr;) events.push_back(nlohmann::json::parse(line));
  std::fclose(file);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("event"), "refused");
  EXPECT_EQ(events[0].at("unknown_user"), 1);
  EXPECT_EQ(events[0].at("stopping"), 1);
}

TEST_F(UsersTest, AnswersByHttpAsByGrpc) {
  const auto ports_of = [](Running& running) { return HttpPorts(running.server().calls(), HttpOptions{}, true, -1); };
  const HttpPorts divided = ports_of(*divided_), undivided = ports_of(*undivided_);
  const auto post = [](const HttpPorts& ports, const ModelInferRequest& request) {
    nlohmann::json head = {{"inputs", nlohmann::json::array()}, {"parameters", {{"user_state", 42}}}};
    for (int i = 0; i < request.inputs_size(); ++i) {
      const auto& input = request.inputs(i);
      const std::string& raw = request.raw_input_contents(i);
      nlohmann::json& tensor = head["inputs"].emplace_back(
          nlohmann::json{{"name", input.name()},
                         {"datatype", input.datatype()},
                         {"shape", std::vector<int64_t>(input.shape().begin(), input.shape().end())}});
      if (input.datatype() == "FP32")
        tensor["data"] = values<float>(raw);
      else
        tensor["data"] = values<int64_t>(raw);
    }
    const std::string body = head.dump();
    const Connection connection(ports.port());
    connection.write("POST /v2/models/model/infer HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) +
                     "\r\n\r\n" + body);
    return connection.read_answer();
  };
  EXPECT_THAT(post(divided, later(1, 0)),
              AllOf(HasSubstr(" 409 "), HasSubstr("nothing is known of its user; send the whole request")));
  EXPECT_THAT(post(undivided, whole(1, 0)), AllOf(HasSubstr(" 400 "), HasSubstr("--keep-users")));
  const std::string kept = "\"parameters\":{\"user_state\":\"kept\"}";
  EXPECT_THAT(post(divided, whole(1, 0)), AllOf(HasSubstr(" 200 "), HasSubstr(kept)));
  const std::string answer = post(divided, later(1, 1));
  EXPECT_THAT(answer, AllOf(HasSubstr(" 200 "), HasSubstr(kept)));
  const nlohmann::json body = nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  EXPECT_EQ(bytes(body["outputs"][0]["data"].get<std::vector<float>>()), undivided_->ask(whole(1, 1)).scores);
  // A user is the same by both.
  EXPECT_TRUE(divided_->ask(about("42", later(1, 2))).is_kept);
}

TEST_F(UsersTest, LayoutOfLaterRequestsIsThereForClientsThatLookForIt) {
  ModelConfigRequest request;
  request.set_name("model");
  const auto config_of = [&](const Running& running) {
    ModelConfigResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        GRPCInferenceService::NewStub(running.channel())->ModelConfig(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.config();
  };
  const ModelConfig config = config_of(*divided_), other = config_of(*undivided_);
  EXPECT_EQ(config.parameters().at("layout").string_value(), other.parameters().at("layout").string_value());
  EXPECT_EQ(layout_of(config.parameters().at("later_layout").string_value()).fingerprint(),
            later_layout_.fingerprint());
  EXPECT_EQ(other.parameters().count("later_layout"), 0u);
}

TEST_F(UsersTest, ForgetsUsersSomeTimeAfterRowsHaveChanged) {
  warprank::Tables tables = warprank::Tables::load(plan_, rows_[0], warprank::host(), {.updatable = true});
  warprank::Model model = warprank::Model::bind(plan_, dense_[0], tables);
  warprank::ServedModel served(std::move(model), std::move(tables));
  const auto keep = [&] {
    states_.keep({1, 1}, 1, std::make_shared<warprank::KeptStates>());
    return states_.find({1, 1}, 1) != nullptr;
  };
  const auto is_there_after = [&](std::chrono::seconds time) {
    return states_.find({1, 1}, 1, UserStates::Clock::now() + time) != nullptr;
  };
  const Weights none = warprank::Weights::from_tensors({});
  ASSERT_TRUE(keep());
  ChangedRows(served, &states_, std::nullopt).refresh(none);
  EXPECT_TRUE(is_there_after(std::chrono::seconds(1000)));
  ChangedRows(served, nullptr, std::chrono::seconds(0)).refresh(none);
  EXPECT_TRUE(is_there_after(std::chrono::seconds(1000)));
  ChangedRows(served, &states_, std::chrono::seconds(500)).refresh(none);
  EXPECT_TRUE(is_there_after(std::chrono::seconds(0)));
  EXPECT_FALSE(is_there_after(std::chrono::seconds(501)));
  ASSERT_TRUE(keep());
  ChangedRows(served, &states_, std::chrono::seconds(0)).refresh(none);
  EXPECT_FALSE(is_there_after(std::chrono::seconds(0)));
  ASSERT_TRUE(keep());
  ChangedRows(served, &states_, std::chrono::seconds(0)).forget_rows("films");
  EXPECT_FALSE(is_there_after(std::chrono::seconds(0)));
}

}}  // namespace kserve
