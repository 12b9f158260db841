// SPDX-License-Identifier: Apache-2.0

/// Serves a model by gRPC and HTTP, as KServe v2 (the Open Inference Protocol) says: docs/SERVER.md.

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "../movielens/model.hpp"
#include "hosted_model.hpp"
#include "http_ports.hpp"
#include "server.hpp"
#include "tier_options.hpp"
#include "user_options.hpp"
#include "warprank/graph_json.hpp"
#include "warprank/host.hpp"
#include "warprank/serving.hpp"
#ifdef WARPRANK_EXAMPLE_CUDA
#include "warprank/cuda.hpp"
#endif

namespace kserve {

warprank::Device device_of(const std::string& engine) {
#ifdef WARPRANK_EXAMPLE_CUDA
  if (engine == "cuda") return warprank::cuda();
#else
  if (engine == "cuda")
    throw warprank::invalid_argument("--engine", "host: this program was built without WARPRANK_CUDA", engine);
#endif
  return warprank::host();
}

warprank::NextModel load(const std::string& folder, warprank::HostPrecision precision) {
  const bool is_int8 = precision == warprank::HostPrecision::int8_weights;
  return {.dense = warprank::Weights::open(folder + "/dense.safetensors"),
          .tables = warprank::Weights::open(folder + "/tables.safetensors"),
          .bind = {.host_precision = precision,
                   .cuda_int8 = is_int8 ? std::vector<std::string>{"*"} : std::vector<std::string>{}}};
}

/// One usual request, and `merged` of them; `axis_rows`: "AXIS=N", of the usual one.
std::vector<warprank::Capacity> capacities_of(int64_t merged, int64_t items,
                                              const std::vector<std::string>& axis_rows) {
  warprank::Capacity one{1, items, {}}, all{merged, merged * items, {}};
  for (const std::string& text : axis_rows) {
    const size_t sign = text.rfind('=');
    const char *const begin = text.data() + (sign == std::string::npos ? text.size() : sign + 1), *const end =
                                                                                                      text.data() +
                                                                                                      text.size();
    int32_t rows = 0;
    const auto [read, error] = std::from_chars(begin, end, rows);
    if (error != std::errc() || read != end || rows < 1)
      throw warprank::invalid_argument("--axis-rows", "AXIS=N, N from 1 to 2147483647", "'" + text + "'");
    one.rows[text.substr(0, sign)] = rows;
    all.rows[text.substr(0, sign)] = merged * rows;
  }
  return {one, all};
}

/// What the engine chose, of each model; without the end of the last line.
std::string bound_text(const warprank::Servable& servable) {
  std::string text = servable.model().describe();
  if (servable.users()) text += "users: " + servable.users()->describe();
  if (!text.empty()) text.pop_back();
  return text;
}

int run(int argc, char** argv) {
  CLI::App app("Serves a ranking model by gRPC and HTTP, as KServe v2 (the Open Inference Protocol) says.");
  std::string engine = "host", precision_name = "fp32", whole, graph,
              weights = WARPRANK_EXAMPLE_FOLDER "/../movielens/weights";
  int64_t items = 200, most_wait_us = 0, load_mb_per_second = 0;
  std::vector<std::string> axis_rows;
  bool keep_memory = true;
  int contexts = 1, threads = 1, metrics_port = 8002;
  HttpOptions http_options{.port = 8000};
  double drain_seconds = 10, grace_seconds = 0;
  HostedOptions options{.name = "din_mmoe"};
  options.service.most_merged = 16;
  ServerOptions server_options;
  TierOptions tiers;
  UserOptions users;
  app.add_option("--engine", engine, "What scores")->check(CLI::IsMember({"host", "cuda"}))->capture_default_str();
  app.add_option("--precision", precision_name, "Of products on the host: docs/SERVING.md")
      ->check(CLI::IsMember({"fp32", "bf16", "int8_weights", "automatic"}))
      ->capture_default_str();
  auto* folder = app.add_option("--model", whole, "Folder with graph.json, dense.safetensors and tables.safetensors")
                     ->check(CLI::ExistingDirectory);
  app.add_option("--graph", graph, "JSON file of the model (warprank/graph_json.hpp); without it MovieLens' din_mmoe")
      ->excludes(folder);
  app.add_option("--name", options.name, "Of the model")->capture_default_str();
  app.add_option("--weights", weights, "Folder with dense.safetensors and tables.safetensors")
      ->capture_default_str()
      ->excludes(folder);
  app.add_option("--contexts", contexts, "Batches at a time, each with a thread")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", threads, "Of each batch, on the host")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--items", items, "Rows to rank in a usual request")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--axis-rows", axis_rows, "AXIS=N: rows of another axis of a usual request, such as a history");
  app.add_option("--merge", options.service.most_merged, "Requests in a batch at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--merge-rows", options.service.most_rows, "Rows of any axis in a batch of several requests at most")
      ->check(CLI::PositiveNumber);
  app.add_option("--merge-wait-us", most_wait_us, "Microseconds that a free worker waits for more requests")
      ->check(CLI::Range(0, 60'000'000))
      ->capture_default_str();
  app.add_option("--queue", options.service.most_waiting, "Requests that may wait")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--requests", options.most_requests, "Requests in a call at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--describe-all", options.describes_all,
               "Metadata has tensors, too, that calls of one request do without: request_blobs, some offsets");
  app.add_option(
         "--record-every", options.record_every,
         "Keep every so many-th request, 100 of them, which the next model scores before it takes over; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--most-difference", options.most_difference, "By which their scores may differ")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rows", options.service.most_request_rows, "Rows of any axis of a request at most")
      ->check(CLI::PositiveNumber);
  app.add_option("--loader", options.loader, "Which cores a load gets: docs/SERVING.md")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, warprank::LoaderPriority>{{"as_caller", warprank::LoaderPriority::as_caller},
                                                          {"low", warprank::LoaderPriority::low},
                                                          {"idle", warprank::LoaderPriority::idle}}));
  app.add_option("--loader-share", options.loader_share, "What a load takes of a core")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  app.add_flag("--keep-memory,!--free-memory", keep_memory, "Keep the memory of tables for the next ones");
  app.add_option("--load-mb-per-second", load_mb_per_second, "Megabytes that a load copies in a second at most; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  tiers.add_to(app);
  users.add_to(app);
  app.add_option("--address", server_options.address, "Where to listen")->capture_default_str();
  const auto* has_http_port = app.add_option("--http-port", http_options.port,
                                             "For HTTP, of all addresses unless the other is 127.0.0.1; -1: none")
                                  ->check(CLI::Range(-1, 65535))
                                  ->capture_default_str();
  const auto* has_metrics_port =
      app.add_option("--metrics-port", metrics_port,
                     "For /metrics and /healthz, which --http-port has, too; -1, the default with --http-port: none")
          ->check(CLI::Range(-1, 65535))
          ->capture_default_str();
  app.add_option("--http-threads", http_options.threads, "HTTP requests at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--message-bytes", server_options.most_message_bytes, "Of a call at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--calls", server_options.most_calls, "Under way at a time, for each connection")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--call-threads", server_options.threads, "That read, parse and answer calls, but do not score")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--token", server_options.token, "That clients must send")->envname("WARPRANK_TOKEN");
  auto* certificate =
      app.add_option("--tls-certificate", server_options.certificate, "PEM file")->check(CLI::ExistingFile);
  auto* key = app.add_option("--tls-key", server_options.key, "PEM file")->check(CLI::ExistingFile)->needs(certificate);
  certificate->needs(key);
  app.add_option("--grace-seconds", grace_seconds,
                 "Between the signal to stop, when health checks begin to fail, and the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--drain-seconds", drain_seconds, "For calls under way then")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (!whole.empty()) graph = (weights = whole) + "/graph.json";
  options.service.most_wait = std::chrono::microseconds(most_wait_us);

  // Before any thread is made, so that all of them leave the signals to the one that waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const warprank::CompileOptions capacities{.capacities = capacities_of(options.service.most_merged, items, axis_rows)};
  const warprank::Plan plan = graph.empty() ? warprank::compile(movielens::din_mmoe, capacities)
                                            : warprank::compile(warprank::load_graph(graph), capacities);
  warprank::LoadOptions loading;
  tiers.set(loading);
  const warprank::HostPrecision precision = warprank::host_precision_of(precision_name, "--precision");
  warprank::NextModel first = load(weights, precision);
  warprank::LoadOptions next_loading = loading;
  next_loading.most_bytes_per_second = load_mb_per_second * 1'000'000;
  if (keep_memory) loading.pages = std::make_shared<warprank::PagePool>();
  warprank::Tables tables = warprank::Tables::load(plan, first.tables, device_of(engine), loading);
  warprank::Servable servable =
      users.bind(plan, first, tables, engine == "cuda" ? warprank::StateType::as_on_a_gpu : warprank::StateType::f32);
  const std::string bound = bound_text(servable);
  const std::vector<warprank::PlacedTable> placed = tables.store()->placed();
  warprank::ContextOptions context;
  context.threads = threads;
  warprank::ServedModel served(std::move(servable), std::move(tables), {.contexts = contexts, .context = context});
  EventLog log(stdout);
  options.log = &log;
  const std::unique_ptr<warprank::UserStates> states = users.states();
  options.users = states.get();
  users.set(options.service);
  ChangedRows rows = users.changed_rows(served, states.get());
  const std::unique_ptr<warprank::ChangeFollower> follower = tiers.follow(served, rows, placed, log);
  options.follower = follower.get();
  options.redis = tiers.redis_counters();
  HostedModel hosted(
      served,
      [&] {
        warprank::NextModel next = load(weights, precision);
        next.load = next_loading;
        return next;
      },
      options);
  Server server(hosted, server_options);
  http_options.is_local = server_options.address.rfind("127.0.0.1:", 0) == 0;
  http_options.limits.body_bytes = static_cast<size_t>(server_options.most_message_bytes);
  if (has_http_port->count() > 0 && has_metrics_port->count() == 0) metrics_port = -1;
  // Calls are not taken in the clear where they are encrypted by gRPC.
  const HttpPorts http(server.calls(), http_options, server_options.certificate.empty(), metrics_port);
  log.write("start", {{"model", options.name},
                      {"version", served.version()},
                      {"engine", engine},
                      {"bound", bound},
                      {"grpc_port", server.port()},
                      {"http_port", http.port()},
                      {"metrics_port", http.metrics_port()},
                      {"warnings", plan.warnings()}});

  const timespec between_refusals = {10, 0};
  while (sigtimedwait(&signals, nullptr, &between_refusals) < 0) hosted.log_refusals();
  log.write("drain", {{"grace_seconds", grace_seconds}, {"drain_seconds", drain_seconds}});
  server.calls().begin_drain();
  std::this_thread::sleep_for(std::chrono::duration<double>(grace_seconds));
  server.stop(std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(drain_seconds)));
  hosted.log_refusals();
  const warprank::ServiceCounters counters = hosted.service().counters();
  log.write("stop", {{"scored", counters.scored},
                     {"bad_requests", counters.bad},
                     {"refused", counters.refused()},
                     {"failed", counters.failed}});
  return 0;
}

}  // namespace kserve

int main(int argc, char** argv) {
  try {
    return kserve::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
