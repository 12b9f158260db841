// SPDX-License-Identifier: Apache-2.0

/// Sends requests to a warprank server and prints their scores. Each line of the standard input is a request as JSON,
/// as tools/client takes it: {"film_id": [7, 8], "context": [[0.5, 1], [0, 0]], "genres.offsets": [0, 2, 3], ...}.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client.hpp"
#include "json_request.hpp"

namespace rank_client {

/// A line of JSON for each request of a call.
void print(const Ranking& ranking, int64_t num_requests) {
  for (int64_t r = 0; r < num_requests; ++r) {
    nlohmann::json scores;
    for (const std::string& output : ranking.outputs()) {
      const warprank::Span<const float> values = ranking.of(output, r);
      scores[output] = std::vector<float>(values.begin(), values.end());
    }
    if (!ranking.error(r).empty()) scores["error"] = ranking.error(r);
    std::printf("%s\n", scores.dump().c_str());
  }
}

int run(int argc, char** argv) {
  CLI::App app("Sends the requests of the standard input, JSON, one a line, to a warprank server.");
  std::string url = "localhost:8001", model = "din_mmoe", token, user;
  int64_t timeout_ms = 1000;
  app.add_option("--url", url, "Host and port")->capture_default_str();
  app.add_option("--model", model, "Its name")->capture_default_str();
  app.add_option("--token", token, "The server's")->envname("WARPRANK_TOKEN");
  app.add_option("--timeout-ms", timeout_ms, "For each call")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option(
      "--user-state", user,
      "The user of all requests, each then a call of its own: the server keeps what it computes of the user");
  CLI11_PARSE(app, argc, argv);

  const RankClient client(grpc::CreateChannel(url, grpc::InsecureChannelCredentials()), model, token);
  const std::chrono::milliseconds timeout(timeout_ms);
  warprank::Batch batch = client.batch();
  for (std::string line; std::getline(std::cin, line);) {
    fill(batch.add_request(), client.layout(), nlohmann::json::parse(line));
    if (user.empty()) continue;
    print(client.score_about(user, batch, timeout), batch.size());
    batch.clear();
  }
  if (user.empty()) print(client.score(batch, timeout), batch.size());
  return 0;
}

}  // namespace rank_client

int main(int argc, char** argv) {
  try {
    return rank_client::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
