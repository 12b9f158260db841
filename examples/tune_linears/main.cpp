// SPDX-License-Identifier: Apache-2.0

// Measures on the card of this machine which kernels are fastest for the linear layers of a model, saves what it found,
// and binds the model with it.
//
//     tune_linears --capacity 1 256 --capacity 16 4096 --out tuning.json
//     tune_linears --graph graph.json --weights dense.safetensors --tables tables/ --out tuning.json

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../movielens/model.hpp"
#include "warprank/cuda_tuning.hpp"
#include "warprank/graph_json.hpp"

namespace {

#if defined(WARPRANK_EXAMPLE_CUDA)
void tune_and_bind(const warprank::Plan& plan, const warprank::Weights& weights, const std::string& table_path,
                   const std::string& out) {
  const warprank::Tables tables = warprank::Tables::load(plan, table_path, warprank::cuda());
  warprank::save_tuning(warprank::tune(plan, weights, tables), out);

  warprank::BindOptions bind_options;
  bind_options.tuning = std::make_shared<const warprank::Tuning>(warprank::load_tuning(out));
  const warprank::Model model = warprank::Model::bind(plan, weights, tables, bind_options);

  model.context();
  std::fputs(bind_options.tuning->to_string().c_str(), stdout);
}
#else
void tune_and_bind(const warprank::Plan&, const warprank::Weights&, const std::string&, const std::string&) {
  throw warprank::invalid_argument("tune_linears", "a build with WARPRANK_CUDA", "one without");
}
#endif

int run(int argc, char** argv) {
  const std::string example = std::string(WARPRANK_EXAMPLE_FOLDER) + "/../movielens/weights/";
  std::string graph, weights = example + "dense.safetensors", tables = example + "tables.safetensors", out;
  std::vector<int64_t> capacities = {1, 256};  // by twos; a vector of pairs makes g++ warn of CLI11
  CLI::App app("Measures which kernels are fastest for the linear layers of a model. Without a graph: MovieLens'.");
  app.add_option("--graph", graph, "The model, as save_graph writes it");
  app.add_option("--weights", weights, "Its dense weights")->capture_default_str();
  app.add_option("--tables", tables, "Its tables, a file or a folder")->capture_default_str();
  app.add_option("--capacity", capacities, "Requests and items; once for each capacity that is served")
      ->check(CLI::PositiveNumber);
  app.add_option("--out", out, "Where to save what was found")->required();
  CLI11_PARSE(app, argc, argv);

  warprank::CompileOptions options;
  options.capacities.clear();
  if (capacities.size() % 2 != 0)
    throw warprank::invalid_argument("--capacity", "two numbers", std::to_string(capacities.size()) + " in all");
  for (size_t i = 0; i < capacities.size(); i += 2)
    options.capacities.push_back({capacities[i], capacities[i + 1], {}});
  const warprank::Plan plan =
      warprank::compile(graph.empty() ? warprank::build(movielens::din_mmoe) : warprank::load_graph(graph), options);
  tune_and_bind(plan, warprank::Weights::open(weights), tables, out);
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
