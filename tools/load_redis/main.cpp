// SPDX-License-Identifier: Apache-2.0

// Puts a table's rows into a Redis Cluster, as docs/TIERS.md says.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "loader.hpp"
#include "row_source.hpp"
#include "warprank/store/redis_cluster.hpp"

namespace {

using load_redis::Loader;
using load_redis::Verified;

/// Says how far it is, with the rate since it began.
class Progress {
 public:
  void operator()(const char* what, int64_t done, int64_t of) {
    if (what != what_) {
      what_ = what;
      begin_ = std::chrono::steady_clock::now();
      first_ = done;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double rate = seconds > 0 ? static_cast<double>(done - first_) / seconds : 0;
    std::fprintf(stderr, "%s %lld of %lld rows (%.1f %%)", what, static_cast<long long>(done),
                 static_cast<long long>(of), 100.0 * static_cast<double>(done) / static_cast<double>(of));
    if (rate > 0) std::fprintf(stderr, ", %.0f rows/s, %.0f s left", rate, static_cast<double>(of - done) / rate);
    std::fprintf(stderr, "\n");
  }

 private:
  const char* what_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
  int64_t first_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Puts the rows of a table into a Redis Cluster, and reads them back.");
  std::string file, table;
  std::vector<std::string> nodes = {"127.0.0.1:6379"};
  load_redis::LoadOptions options;
  int64_t patience = options.patience.count();
  bool only_verifies = false;
  app.add_option("table", table, "The table's name")->required();
  app.add_option("file", file, "An image (NAME.hash_table), or a safetensors file with the table's tensors")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--node", nodes, "HOST:PORT of some of the cluster; the others are found")->capture_default_str();
  app.add_option(
      "--state", options.state,
      "A file that tells how far it has come: a run that was ended goes on from there, and one that has ended "
      "well removes it");
  app.add_option("--batch", options.batch, "Rows of a call")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--patience", patience, "Seconds without a row that is taken, then it ends")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--only-verify", only_verifies, "Put nothing");
  app.footer("A password is taken from REDIS_PASSWORD, a user's name from REDIS_USER.");
  CLI11_PARSE(app, argc, argv);
  try {
    warprank::RedisCluster::Options cluster;
    for (const std::string& node : nodes) cluster.nodes.push_back(warprank::redis::Address::from(node));
    if (const char* user = std::getenv("REDIS_USER")) cluster.user = user;
    if (const char* password = std::getenv("REDIS_PASSWORD")) cluster.password = password;
    warprank::RedisCluster store(cluster);
    const std::unique_ptr<load_redis::RowSource> source = load_redis::open_rows(file, table);
    options.identity = load_redis::identity_of(file);
    options.patience = std::chrono::seconds(patience);
    options.progress = Progress();
    Loader loader(store, {table, source->rows()}, *source, options);
    if (!only_verifies) loader.load();
    const Verified verified = loader.verify();
    std::printf("%lld rows, %lld in the store as they are in the file; checksums %016llx and %016llx\n",
                static_cast<long long>(verified.rows), static_cast<long long>(verified.same),
                static_cast<unsigned long long>(verified.file_checksum),
                static_cast<unsigned long long>(verified.store_checksum));
    if (!verified.is_whole()) {
      std::fprintf(stderr, "load_redis: %lld rows are absent, %lld damaged, %lld others\n",
                   static_cast<long long>(verified.absent), static_cast<long long>(verified.damaged),
                   static_cast<long long>(verified.different));
      return 1;
    }
    if (!only_verifies) loader.remove_state();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "load_redis: %s\n", error.what());
    return 1;
  }
}
