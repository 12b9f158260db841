// SPDX-License-Identifier: Apache-2.0

// The server's program with tables whose rows are in Redis, and follow what others change there.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/rank_client/client.hpp"
#include "examples/http_testing.hpp"
#include "inference.grpc.pb.h"
#include "store/followed_tables.hpp"
#include "support/program.hpp"
#include "support/redis_servers.hpp"
#include "support/store_testing.hpp"
#include "warprank/graph_json.hpp"
#include "warprank/store/redis_cluster.hpp"
#include "warprank/store/row_changes.hpp"
#include "warprank/weights/safetensors.hpp"

namespace kserve { namespace {

using namespace warprank;
using namespace warprank::test_support;
using table_update_testing::first_keys;
using table_update_testing::VersionedTable;
using testing::AllOf;
using testing::HasSubstr;

using Words = std::vector<std::string>;

/// A table of 40 rows in Redis, and a model's folder that has the default row alone.
class ServerStoresTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (has_redis_server()) redis_ = std::make_unique<RedisServers>("server_stores", 1);
  }
  static void TearDownTestSuite() { redis_ = nullptr; }
  void SetUp() override {
    if (redis_ == nullptr) GTEST_SKIP() << "redis-server is not installed";
    redis_->ask(0, {"FLUSHALL"});
    options_.nodes = redis_->addresses();
    options_.connect_timeout = options_.command_timeout = a_long_time;
    store_ = std::make_unique<RedisCluster>(options_);
    store_->create(stored_, soon());
    publisher_ = store_->publish_changes(stored_);
    const RowChanges all = FollowedModel::change(film_, film_.all(), {});
    ASSERT_TRUE(change_and_publish(*store_, *publisher_, stored_, all, soon()).empty());
    save_graph(table_update_testing::plan_of({film_}).source(), folder_.path() + "graph.json");
    const StoredTensor default_row = make_tensor<float>({film_.dim}, film_.default_row());
    write_safetensors(folder_.path() + "dense.safetensors", {});
    write_safetensors(folder_.path() + "tables.safetensors", {{"film.default", default_row.view()}});
  }

  std::unique_ptr<Program> run(const Words& more) const {
    Words words = {WARPRANK_SERVER, "--model",     folder_.path(), "--name", "model",
                   "--address",     "127.0.0.1:0", "--http-port",  "0"};
    words.insert(words.end(), more.begin(), more.end());
    return std::make_unique<Program>(std::move(words), folder_.path() + "output");
  }
  /// What a server that does not start says.
  std::string trouble_of(const Words& more) const {
    const Program::Ended ended = run(more)->end();
    EXPECT_GT(ended.status, 0);
    return ended.text;
  }
  std::string node() const { return options_.nodes[0].text(); }
  /// Whose silence nothing meets that answers.
  Words in_redis(const std::string& tables) const {
    return {"--in-redis", tables, "--redis", node(), "--redis-timeout-ms", std::to_string(a_long_time.count())};
  }

  Folder folder_{"server_stores_files"};
  VersionedTable film_ = table_update_testing::versioned_table("film", DType::f16, 8, true, first_keys(40));
  const StoredTable stored_ = FollowedModel::stored(film_);
  RedisCluster::Options options_;
  std::unique_ptr<RedisCluster> store_;
  std::unique_ptr<ChangePublisher> publisher_;
  static std::unique_ptr<RedisServers> redis_;
};
std::unique_ptr<RedisServers> ServerStoresTest::redis_;

/// A server that runs, and its clients.
class Served {
 public:
  explicit Served(std::unique_ptr<Program> program) : program_(std::move(program)) {
    wait_until([&] { return !program_->is_running() || !start().is_null(); });
    if (start().is_null()) throw std::runtime_error(program_->end().text);
    const std::string address = "127.0.0.1:" + std::to_string(start().at("grpc_port").get<int>());
    channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    client_ = std::make_unique<rank_client::RankClient>(channel_, "model");
  }

  /// Whether each key has the row that the table should have.
  bool has_rows(const VersionedTable& table, const std::vector<int64_t>& keys) const {
    Batch batch = client_->batch();
    batch.add_request().ids(client_->layout().ids("id_" + table.name), keys);
    const rank_client::Ranking ranking = client_->score(batch, std::chrono::minutes(2));
    const Span<const float> all = ranking.of("y_" + table.name, 0);
    table_update_testing::Row expected;
    for (const int64_t key : keys)
      for (const float element : table.expected(key)) expected.push_back(element);
    return table_update_testing::Row(all.begin(), all.end()) == expected;
  }
  /// The row of a user, by what the server keeps of the user.
  table_update_testing::Row row_of_user(int64_t key) const {
    Batch batch = client_->batch();
    batch.add_request()
        .ids(client_->layout().ids("id_film"), {key})
        .dense(client_->layout().dense("x"), std::vector<float>(8, 1.0f));
    const rank_client::Ranking ranking = client_->score_about(std::to_string(key), batch, std::chrono::minutes(2));
    EXPECT_TRUE(ranking.is_user_kept());
    const Span<const float> row = ranking.of("y", 0);
    return {row.begin(), row.end()};
  }
  void load() const {
    inference::RepositoryModelLoadRequest load;
    load.set_model_name("model");
    inference::RepositoryModelLoadResponse loaded;
    grpc::ClientContext context;
    const grpc::Status status =
        inference::GRPCInferenceService::NewStub(channel_)->RepositoryModelLoad(&context, load, &loaded);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  std::string metrics() const {
    const Connection connection(start().at("http_port").get<int>());
    connection.write("GET /metrics HTTP/1.1\r\n\r\n");
    return connection.read_answer();
  }
  /// Of a metric of the table "film".
  int64_t metric(const std::string& name, const std::string& labels = {}) const {
    return value_of(name, ",table=\"film\"" + labels);
  }
  /// Of the connections to Redis.
  int64_t redis(const std::string& name, const std::string& labels = {}) const {
    return value_of("redis_" + name, labels);
  }
  int64_t value_of(const std::string& name, const std::string& labels) const {
    const std::string text = metrics(), line = "\nwarprank_" + name + "{model=\"model\"" + labels + "} ";
    const size_t at = text.find(line);
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + line.size()));
  }
  std::string text() const { return program_->text(); }
  Program::Ended end() {
    client_ = nullptr;  // while it is connected the server waits for it to leave
    channel_ = nullptr;
    program_->signal(SIGTERM);
    return program_->end();
  }

 private:
  nlohmann::json start() const {
    const std::string text = program_->text();
    const size_t end = text.find('\n');
    return end == std::string::npos ? nlohmann::json() : nlohmann::json::parse(text.substr(0, end));
  }

  std::unique_ptr<Program> program_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<rank_client::RankClient> client_;
};

TEST_F(ServerStoresTest, ServesRowsOfRedisAndFollowsChanges) {
  Words words = in_redis("fil*=1");
  words.push_back("--follow-changes");
  Served served(run(words));
  const std::vector<int64_t> keys = first_keys(50);  // ten of them nowhere
  EXPECT_FALSE(served.has_rows(film_, keys));        // not yet
  EXPECT_TRUE(wait_until([&] { return served.has_rows(film_, keys); }));
  EXPECT_EQ(served.metric("store_keys_total", ",answer=\"row\""), 40);
  EXPECT_EQ(served.metric("store_rows"), 40);
  EXPECT_GE(served.redis("connections_total", ",event=\"opened\""), 1);
  EXPECT_EQ(served.redis("timeouts_total"), 0);
  EXPECT_EQ(served.redis("requests_total", ",result=\"refused\""), 0);
  EXPECT_EQ(served.redis("slots_total", ",event=\"moved\""), 0);

  const RowChanges changes = FollowedModel::change(film_, {{1, 5}, {2, 6}}, {3});
  ASSERT_TRUE(change_and_publish(*store_, *publisher_, stored_, changes, soon()).empty());
  EXPECT_TRUE(wait_until([&] { return served.has_rows(film_, keys); }));
  // What is erased is an entry of its own.
  EXPECT_TRUE(wait_until([&] { return served.metric("followed_entries_total", ",result=\"applied\"") == 2; }));
  EXPECT_EQ(served.metric("followed_keys_total", ",change=\"updated\""), 2);
  EXPECT_EQ(served.metric("followed_keys_total", ",change=\"erased\""), 1);

  redis_->ask(0, {"XADD", redis::stream_key("film"), "*", "who", "knows"});
  EXPECT_TRUE(wait_until([&] { return served.metric("followed_entries_total", ",result=\"garbage\"") == 1; }));

  // The next model's tables have their rows there, too, and follow.
  served.load();
  EXPECT_TRUE(wait_until([&] { return served.has_rows(film_, keys); }));
  const RowChanges more = FollowedModel::change(film_, {{4, 7}}, {});
  ASSERT_TRUE(change_and_publish(*store_, *publisher_, stored_, more, soon()).empty());
  EXPECT_TRUE(wait_until([&] { return served.has_rows(film_, keys); }));
  EXPECT_EQ(served.metric("followed_lost_total"), 0);

  // What was cut off before it was read.
  redis_->ask(0, {"DEL", redis::stream_key("film")});
  redis_->ask(0, {"SET", redis::last_entry_key("film"), "9999999999999-0"});
  EXPECT_TRUE(wait_until([&] { return served.metric("followed_lost_total") == 1; }));
  EXPECT_TRUE(wait_until([&] { return served.text().find("\"event\":\"changes_lost\"") != std::string::npos; }));
  EXPECT_TRUE(wait_until([&] { return served.has_rows(film_, keys); }));
  EXPECT_EQ(served.end().status, 0);
}

/// A model of one item whose scores are the user's row.
TEST_F(ServerStoresTest, ForgetsUsersWhoseRowsHaveChangedWhereItIsTold) {
  const Plan plan = compile([&](Builder& b) -> Outputs {
    const Axis user = b.axis("user"), item = b.axis("item", user);
    const auto row = b.embed(b.ids("id_film", user), b.hashed_table("film", {.dim = film_.dim}));
    return {{"y", b.expand(row, item) * b.dense("x", item, film_.dim)}};
  });
  save_graph(plan.source(), folder_.path() + "graph.json");
  Words words = in_redis("film=1:60000000");
  for (const char* word : {"--follow-changes", "--keep-users", "item", "--user-update-seconds", "0"})
    words.push_back(word);
  Served served(run(words));
  EXPECT_EQ(served.row_of_user(1), film_.expected(1));
  EXPECT_EQ(served.row_of_user(1), film_.expected(1));
  EXPECT_EQ(served.value_of("user_requests_total", ",user=\"known\""), 1);

  const RowChanges changes = FollowedModel::change(film_, {{1, 5}}, {});
  ASSERT_TRUE(change_and_publish(*store_, *publisher_, stored_, changes, soon()).empty());
  EXPECT_TRUE(wait_until([&] { return served.row_of_user(1) == film_.expected(1); }));
  EXPECT_EQ(served.value_of("refused_total", ",reason=\"unknown_user\""), 1);
  EXPECT_EQ(served.value_of("user_lookups_total", ",result=\"expired\""), 1);
  EXPECT_EQ(served.end().status, 0);
}

TEST_F(ServerStoresTest, ServesOnWhileRedisIsSilent) {
  Served served(run({"--in-redis", "film=1", "--redis", node(), "--follow-changes"}));
  EXPECT_TRUE(wait_until([&] { return served.has_rows(film_, first_keys(3)); }));
  redis_->pause(0);
  EXPECT_TRUE(wait_until([&] { return served.metric("followed_retries_total", ",by=\"store\"") > 0; }));
  EXPECT_TRUE(served.has_rows(film_, first_keys(3)));  // in memory
  EXPECT_TRUE(wait_until([&] { return served.redis("timeouts_total") > 0; }));
  EXPECT_TRUE(wait_until([&] { return served.redis("requests_total", ",result=\"refused\"") > 0; }));
  redis_->go_on(0);
  EXPECT_EQ(served.end().status, 0);
}

TEST_F(ServerStoresTest, WaitsForRowsWhereItIsTold) {
  Served served(run(in_redis("film=1:60000000")));
  EXPECT_TRUE(served.has_rows(film_, first_keys(50)));
  EXPECT_EQ(served.metric("store_late_total"), 0);
  EXPECT_EQ(served.metric("followed_lost_total"), -1);  // nobody follows
  EXPECT_EQ(served.end().status, 0);
}

TEST_F(ServerStoresTest, TellsWhatIsWrong) {
  for (const char* text : {"film", "film=", "=1", "film=0", "film=1x", "film=1:", "film=1:0", "film=1:2:3"})
    EXPECT_EQ(trouble_of({"--in-redis", text, "--redis", node()}),
              "--in-redis: expected PATTERN=MB or PATTERN=MB:US, got '" + std::string(text) + "'\n");
  for (const char* text : {"film", "film=card", "film=cached", "film=cached:0", "film=host:1", "=host"})
    EXPECT_EQ(trouble_of({"--place", text}),
              "--place: expected PATTERN=device, PATTERN=host or PATTERN=cached:MB, got '" + std::string(text) + "'\n");
  for (const char* text : {"host:", "host:x", "host:65536", ":6379"})
    EXPECT_EQ(trouble_of({"--in-redis", "film=1", "--redis", text}),
              "address of a Redis server: expected HOST:PORT or HOST, got '" + std::string(text) + "'\n");
  EXPECT_THAT(trouble_of({"--in-redis", "film=1"}), HasSubstr("--in-redis requires --redis"));
  EXPECT_THAT(trouble_of({"--redis", node()}), HasSubstr("--redis requires --in-redis"));
  EXPECT_THAT(trouble_of({"--follow-changes"}), HasSubstr("--follow-changes requires --in-redis"));
  EXPECT_THAT(trouble_of(in_redis("user*=1")),
              HasSubstr("LoadOptions::stores of 'user*': expected a table's name, or a pattern that fits one"));
  EXPECT_THAT(trouble_of({"--in-redis", "film=1", "--redis", "127.0.0.1:1", "--redis-timeout-ms", "500"}),
              AllOf(HasSubstr("table 'film': expected a description in its store"), HasSubstr("127.0.0.1:1: ")));
  const std::string description = RedisCluster::description_key("film");
  redis_->ask(0, {"SET", description, "warprank 1 F16 9"});
  EXPECT_THAT(trouble_of(in_redis("film=1")), HasSubstr("table 'film' in its store: dim: expected 8, got 9"));
  redis_->ask(0, {"DEL", description});
  EXPECT_THAT(trouble_of(in_redis("film=1")), HasSubstr("table 'film': expected a description in its store, got none"));
  EXPECT_THAT(trouble_of({}), HasSubstr("film"));  // whose rows are not in the files
}

}}  // namespace kserve
