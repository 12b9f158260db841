// SPDX-License-Identifier: Apache-2.0

/// Latency under load: a RankingService with the MovieLens model, at one rate of requests after the other.

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../movielens/inputs.hpp"
#include "../movielens/model.hpp"
#include "load.hpp"
#include "models.hpp"
#include "requests.hpp"
#include "swapper.hpp"
#include "warprank/host.hpp"
#include "warprank/serving.hpp"
#ifdef WARPRANK_EXAMPLE_CUDA
#include "warprank/cuda.hpp"
#endif

namespace serving {

/// Those that this program was built with.
const std::vector<std::string> engines = {"host",
#ifdef WARPRANK_EXAMPLE_CUDA
                                          "cuda"
#endif
};

warprank::Device device(const std::string& engine) {
#ifdef WARPRANK_EXAMPLE_CUDA
  if (engine == "cuda") return warprank::cuda();
#endif
  (void)engine;
  return warprank::host();
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

/// Null where no path is given.
File opened(const char* option, const std::string& path) {
  if (path.empty()) return nullptr;
  File file(std::fopen(path.c_str(), "w"));
  if (file == nullptr) throw warprank::invalid_argument(option, "a file that can be written", path);
  return file;
}

/// What began when, in seconds since the end of the warm-up, and the milliseconds that it took.
void write_events(std::FILE* file, double rate, const std::vector<Latency>& latencies,
                  const std::vector<Swapped>& swaps) {
  for (const Latency& latency : latencies) std::fprintf(file, "request,%g,%.6f,%.4f\n", rate, latency.at, latency.ms);
  for (const Swapped& swap : swaps)
    std::fprintf(file, "swap,%g,%.6f,%.4f\n", rate, swap.began, 1e3 * (swap.ended - swap.began));
}

/// Prints where the time of a batch goes.
void print_profile(const warprank::Model& model, const movielens::Inputs& inputs,
                   const std::vector<movielens::RequestFeatures>& requests, int64_t count,
                   const warprank::ContextOptions& options) {
  warprank::Batch batch = model.batch();
  for (int64_t r = 0; r < count; ++r)
    inputs.fill(batch.add_request(), requests[static_cast<size_t>(r) % requests.size()]);
  warprank::Context context = model.context(options);
  const warprank::Profile profile = context.profile(batch);
  std::printf("a batch of %lld requests:\n%s\n", static_cast<long long>(count), profile.to_string().c_str());
}

int run(int argc, char** argv) {
  CLI::App app("Measures the latency of a ranking service at rates of requests that do not depend on its answers.");
  std::string engine = "host", csv, latencies, weights = WARPRANK_EXAMPLE_FOLDER "/../movielens/weights";
  std::vector<double> rates = {100, 200, 400};
  int64_t items = 100;
  int contexts = 2;
  warprank::ServiceOptions options;
  options.most_merged = 16;
  SwapTimes swap_times;
  bool profile = false;
  int64_t film_rows = 0, swap_mb_per_second = 0;
  warprank::SwapOptions swapping;
  bool keep_memory = true;
  warprank::SwapMode swap_mode = warprank::SwapMode::full;
  LoadOptions load;
  warprank::ContextOptions context;
  app.add_option("--engine", engine, "What scores")->check(CLI::IsMember(engines))->capture_default_str();
  app.add_option("--contexts", contexts, "Batches at a time, each with a thread")->capture_default_str();
  app.add_option("--threads", context.threads, "Of each batch, on the host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rates", rates, "Requests per second")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seconds", load.seconds, "For each rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warm-up", load.warm_up, "Seconds that are not measured, for each rate")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--items", items, "Films to rank in each request")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--merge", options.most_merged, "Requests in a batch at most")->capture_default_str();
  app.add_option("--queue", options.most_waiting, "Requests that may wait")->capture_default_str();
  app.add_option("--clients", load.clients, "Threads that pack and send requests")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", load.seed, "Of requests and arrivals")->capture_default_str();
  app.add_option("--weights", weights, "Folder with dense.safetensors and tables.safetensors")->capture_default_str();
  CLI::Option* const swap_every =
      app.add_option("--swap-every", swap_times.every,
                     "Seconds between two swaps of the model for another, loaded anew; 0: none")
          ->check(CLI::NonNegativeNumber)
          ->capture_default_str();
  app.add_option("--swap-slots", swap_times.slot, "Or: seconds of a slot; each second one begins with a swap")
      ->check(CLI::PositiveNumber)
      ->excludes(swap_every);
  app.add_option("--swap-mode", swap_mode, "What is loaded, and when")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, warprank::SwapMode>{{"full", warprank::SwapMode::full},
                                                    {"dense_and_rows", warprank::SwapMode::dense_and_rows},
                                                    {"drain", warprank::SwapMode::drain}}));
  app.add_option("--loader", swapping.loader, "Which cores the thread gets that swaps")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, warprank::LoaderPriority>{{"as_caller", warprank::LoaderPriority::as_caller},
                                                          {"low", warprank::LoaderPriority::low},
                                                          {"idle", warprank::LoaderPriority::idle}}));
  app.add_option("--loader-share", swapping.loader_share, "What that thread takes of a core")->capture_default_str();
  app.add_flag("--keep-memory,!--free-memory", keep_memory, "Keep the memory of tables for the next ones");
  app.add_option("--swap-mb-per-second", swap_mb_per_second, "Megabytes that swaps copy in a second at most; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--film-rows", film_rows, "Rows of the largest table, for a model of any size; 0: as in the file")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--wait", context.wait, "How workers wait for a GPU")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, warprank::Wait>{{"spin", warprank::Wait::spin},
                                                {"spin_then_sleep", warprank::Wait::spin_then_sleep},
                                                {"sleep", warprank::Wait::sleep}}));
  app.add_option("--spin-seconds", context.spin_seconds, "How long they spin before they sleep")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--profile", profile, "Before that, show what the steps of a batch take");
  app.add_option("--csv", csv, "File for the figures; tools/plot_latency.py draws it");
  app.add_option("--latencies", latencies, "File for each request that was scored, and each swap");
  CLI11_PARSE(app, argc, argv);

  const bool swaps = swap_times.every > 0 || swap_times.slot > 0;
  File file = opened("--csv", csv), events = opened("--latencies", latencies);
  if (events != nullptr) std::fprintf(events.get(), "event,rate,at_s,ms\n");
  if (file != nullptr) {
    std::fprintf(file.get(),
                 "engine,contexts,items,asked,served,p50_ms,p90_ms,p99_ms,p99.9_ms,max_ms,per_batch,refused\n");
  }

  // Graphs for a single request and for the largest batch.
  const warprank::Plan plan = warprank::compile(
      movielens::din_mmoe, {.capacities = {{.requests = 1, .items = items},
                                           {.requests = options.most_merged, .items = options.most_merged * items}}});
  std::vector<warprank::NextModel> models = {load_model(weights, film_rows, false)};
  if (swaps) models.insert(models.begin(), load_model(weights, film_rows, true));
  warprank::LoadOptions loading;
  if (swaps && keep_memory) loading.pages = std::make_shared<warprank::PagePool>();
  warprank::Tables tables = warprank::Tables::load(plan, models.back().tables, device(engine), loading);
  if (loading.pages) loading.pages->double_up();
  warprank::Model model = warprank::Model::bind(plan, models.back().dense, tables);
  const movielens::Inputs inputs(plan);
  const std::vector<movielens::RequestFeatures> requests = random_requests(1000, items, load.seed);
  if (profile)
    for (const int64_t count : {int64_t{1}, options.most_merged})
      print_profile(model, inputs, requests, count, context);
  ExpectedScores expected;
  if (swaps) {
    warprank::Context scorer = model.context();
    expected.add(scorer, inputs, requests, plan.batch());
    const bool keeps_tables = swap_mode == warprank::SwapMode::dense_and_rows;
    const warprank::Tables others =
        keeps_tables ? tables : warprank::Tables::load(plan, models.front().tables, device(engine));
    scorer.rebind(warprank::Model::bind(plan, models.front().dense, others));
    expected.add(scorer, inputs, requests, plan.batch());
    for (warprank::NextModel& next : models) {
      if (keeps_tables)
        next.tables = warprank::Weights::from_tensors({});
      else
        next.load = warprank::LoadOptions{.most_bytes_per_second = swap_mb_per_second * 1'000'000};
    }
  }
  warprank::ServedModel served(std::move(model), std::move(tables), {.contexts = contexts, .context = context});
  warprank::Batch batch = plan.batch();
  for (int64_t r = 0; r < 20; ++r) inputs.fill(batch.add_request(), requests[static_cast<size_t>(r)]);
  batch.close();
  for (int64_t r = 0; r < batch.size(); ++r)
    swapping.recorded.emplace_back(batch.blob(r).data(), batch.blob(r).data() + batch.blob(r).bytes());

  std::printf("%s engine, %d contexts, %lld items in a request, at most %lld requests in a batch\n\n", engine.c_str(),
              contexts, static_cast<long long>(items), static_cast<long long>(options.most_merged));
  std::printf("   requests/s                      milliseconds              requests\n");
  std::printf("  asked   served      p50      p90      p99    p99.9      max  per batch  refused\n");
  for (const double rate : rates) {
    warprank::RankingService service(served, options);
    load.rate = rate;
    load.begin = Clock::now() + std::chrono::milliseconds(10);
    swap_times.begin = load.begin + to_duration(load.warm_up);
    Swapper swapper(served, models, swap_mode, swap_times, swapping);
    const LoadResult result = run_load(service, inputs, requests, expected, load);
    const std::vector<Swapped> swapped = swapper.stop();
    if (result.unscored > 0) throw std::runtime_error(std::to_string(result.unscored) + " requests were not scored");
    if (result.mixed > 0)
      throw std::runtime_error(std::to_string(result.mixed) + " answers are not of the model that they name");
    const double p50 = result.percentile(0.5), p90 = result.percentile(0.9), p99 = result.percentile(0.99),
                 p999 = result.percentile(0.999), max = result.percentile(1);
    const auto refused = static_cast<long long>(result.refused);
    std::printf("%7.0f  %7.0f  %7.2f  %7.2f  %7.2f  %7.2f  %7.2f  %9.2f  %7lld\n", rate, result.served, p50, p90, p99,
                p999, max, result.per_batch, refused);
    if (swaps) {
      double longest = 0;
      for (const Swapped& swap : swapped) longest = std::max(longest, swap.ended - swap.began);
      std::printf("         %zu swaps (%s), the longest took %.0f ms\n", swapped.size(), warprank::to_string(swap_mode),
                  1e3 * longest);
    }
    std::fflush(stdout);
    if (events != nullptr) {
      write_events(events.get(), rate, result.latencies, swapped);
      if (std::fflush(events.get()) != 0) throw std::runtime_error("cannot write to " + latencies);
    }
    if (file == nullptr) continue;
    std::fprintf(file.get(), "%s,%d,%lld,%g,%g,%.4f,%.4f,%.4f,%.4f,%.4f,%.3f,%lld\n", engine.c_str(), contexts,
                 static_cast<long long>(items), rate, result.served, p50, p90, p99, p999, max, result.per_batch,
                 refused);
    if (std::fflush(file.get()) != 0) throw std::runtime_error("cannot write to " + csv);
  }
  return 0;
}

}  // namespace serving

int main(int argc, char** argv) {
  try {
    return serving::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
