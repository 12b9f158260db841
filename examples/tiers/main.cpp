// SPDX-License-Identifier: Apache-2.0

// A model with a table of 100 M rows, of which those that are asked for most are near: in 1 GiB of device memory over
// the host's, which may be over a store, or, on the host engine, in the host's memory over a store.
//
//     tiers
//     tiers --engine cuda --near-mb 512
//     tiers --engine cuda --near-mb 512 --host-mb 4096
//     tiers --rows 1000000000 --near-mb 2048

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "run.hpp"
#include "warprank/host.hpp"
#ifdef WARPRANK_EXAMPLE_CUDA
#include "warprank/cuda.hpp"
#endif

namespace {

warprank::Device device_of(const std::string& engine) {
  if (engine == "host") return warprank::host();
#ifdef WARPRANK_EXAMPLE_CUDA
  return warprank::cuda();
#else
  throw warprank::invalid_argument("--engine", "host, as this is a build without WARPRANK_CUDA", engine);
#endif
}

int run(int argc, char** argv) {
  tiers::Options options;
  std::string engine = "host";
  int64_t near_mb = options.near_bytes >> 20, host_mb = 0;
  CLI::App app("Scores batches with a table of which some rows are near.");
  app.add_option("--engine", engine, "host or cuda")->check(CLI::IsMember({"host", "cuda"}))->capture_default_str();
  app.add_option("--rows", options.num_rows, "Of the table, 32 bytes each")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  app.add_option("--near-mb", near_mb, "MiB for those that are near")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--host-mb", host_mb,
                 "MiB of the host's memory, with --engine cuda, for rows of a table that lies in a store; 0: all are "
                 "in the host's memory")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--batches", options.num_batches, "That are timed; as many come before")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.near_bytes = near_mb << 20;
  options.host_bytes = host_mb << 20;
  if (host_mb > 0 && engine != "cuda")
    throw warprank::invalid_argument("--host-mb", "--engine cuda, as on the host rows near are in its memory", engine);

  const tiers::Report report = tiers::run(device_of(engine), engine == "cuda", options);
  std::printf("%s", report.tables.c_str());
  for (const auto& [what, bytes] : report.memory)
    std::printf("%-24s %10.1f MB\n", what.c_str(), static_cast<double>(bytes) / 1e6);
  std::printf("found near               %10.1f %%\n", 100 * report.hit_ratio);
  std::printf("a batch of %lld items     %9.1f us\n",
              static_cast<long long>(tiers::num_requests * (tiers::num_items + tiers::num_seen)),
              1e6 * report.seconds_per_batch);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
