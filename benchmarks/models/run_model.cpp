// SPDX-License-Identifier: Apache-2.0

// A reference model for scripts that compare engines (tools/bench_torch.py, tools/bench_host_engines.py):
//
//     models_run_model MODEL FOLDER REQUESTS ITEMS TABLE_ROWS [host|cuda [fp32|bf16|int8_weights|automatic]]
//
// writes the model and a batch of it to a folder, says "ready", and then answers each line "CALLS CONTEXTS [THREADS]"
// on the standard input by scoring the batch CALLS times in each of CONTEXTS contexts at once, each with THREADS
// threads: it prints the seconds that took by the clock and in processor time of all threads. The folder gets
//     source.json, deduplicated.json   the graph as it is written, and after late broadcast
//     weights, tables.safetensors      as `bind` and `Tables::load` take them
//     batch.safetensors                "ids.<input>", "dense.<input>", "lengths.<axis>" of all requests, "requests" [n]
//     scores.safetensors               each output [rows, width]

#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reference_models.hpp"
#include "support/random_data.hpp"
#include "warprank/graph_json.hpp"
#include "warprank/host.hpp"
#ifdef WARPRANK_BENCH_CUDA
#include "warprank/cuda.hpp"
#endif

namespace {

using namespace warprank;

using Tensors = std::map<std::string, StoredTensor>;

template <class Value>
void append(std::map<std::string, std::vector<Value>>& to, const std::string& prefix,
            const std::map<std::string, std::vector<Value>>& from) {
  for (const auto& [name, values] : from) {
    std::vector<Value>& all = to[prefix + name];
    all.insert(all.end(), values.begin(), values.end());
  }
}

Tensors tensors_of(const Graph& graph, const std::vector<test_support::PlainRequest>& requests) {
  std::map<std::string, std::vector<int64_t>> integers;
  std::map<std::string, std::vector<float>> floats;
  integers["requests"].resize(requests.size());
  for (const test_support::PlainRequest& request : requests) {
    append(integers, "lengths.", request.lengths);
    append(integers, "ids.", request.ids);
    append(floats, "dense.", request.dense);
  }
  Tensors tensors;
  for (const auto& [name, values] : integers)
    tensors.emplace(name, make_tensor({static_cast<int64_t>(values.size())}, values));
  for (const DenseInfo& info : graph.dense) {
    const std::vector<float>& values = floats.at("dense." + info.name);
    tensors.emplace("dense." + info.name,
                    make_tensor({static_cast<int64_t>(values.size()) / info.width, info.width}, values));
  }
  return tensors;
}

Tensors tensors_of(const Plan& plan, const Scores& scores) {
  Tensors tensors;
  for (const OutputInfo& output : plan.source().outputs) {
    const Matrix<const float> all = scores[output.name].all();
    tensors.emplace(output.name,
                    make_tensor({all.rows, all.cols}, std::vector<float>(all.data, all.data + all.rows * all.cols)));
  }
  return tensors;
}

void save(const std::string& path, const Tensors& tensors) {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
  write_safetensors(path, views);
}
void save(const std::string& path, const Weights& weights) {
  std::map<std::string, TensorView> views;
  for (const std::string& name : weights.names()) views.emplace(name, *weights.find(name));
  write_safetensors(path, views);
}

Device device_of(const std::string& name) {
  if (name == "host") return host();
#ifdef WARPRANK_BENCH_CUDA
  if (name == "cuda" && num_cuda_devices() > 0) return cuda();
#endif
  throw invalid_argument("device", "host, or cuda where this is built with it and there is one", "'" + name + "'");
}

double process_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Answers until the input ends.
void answer(const Model& model, Batch& batch) {
  std::map<int, std::vector<Context>> contexts_by_threads;
  for (std::string line; std::getline(std::cin, line);) {
    int64_t calls = 0, num_contexts = 0;
    ContextOptions options;
    std::istringstream words(line);
    words >> calls >> num_contexts;
    if (!(words >> options.threads)) options.threads = 1;
    std::vector<Context>& contexts = contexts_by_threads[options.threads];
    while (static_cast<int64_t>(contexts.size()) < num_contexts) {
      contexts.push_back(model.context(options));
      contexts.back().run(batch);
    }
    const auto start = std::chrono::steady_clock::now();
    const double process_start = process_seconds();
    const auto work = [&](int64_t context) {
      for (int64_t i = 0; i < calls; ++i) contexts[static_cast<size_t>(context)].run(batch);
    };
    std::vector<std::thread> others;
    for (int64_t i = 1; i < num_contexts; ++i) others.emplace_back(work, i);
    work(0);
    for (std::thread& other : others) other.join();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    std::printf("%.9f %.9f\n", elapsed.count(), process_seconds() - process_start);
    std::fflush(stdout);
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 5 || arguments.size() > 7 || bench::reference_models().count(arguments[0]) == 0) {
    std::string known;
    for (const auto& [name, model] : bench::reference_models()) known += " " + name;
    std::fprintf(stderr,
                 "usage: models_run_model MODEL FOLDER REQUESTS ITEMS TABLE_ROWS [host|cuda "
                 "[fp32|bf16|int8_weights|automatic]]\n"
                 "models:%s\n",
                 known.c_str());
    return 2;
  }
  const std::string folder = arguments[1] + "/";
  bench::BatchShape shape;
  shape.requests = std::stoll(arguments[2]);
  shape.items = std::stoll(arguments[3]);
  const int64_t table_rows = std::stoll(arguments[4]);
  const Device device = device_of(arguments.size() > 5 ? arguments[5] : "host");

  const Graph source = build(bench::reference_models().at(arguments[0]));
  CompileOptions options;
  options.capacities = {shape.capacity(source)};
  const Plan plan = compile(source, options);
  CompileOptions deduplicated = options;
  deduplicated.passes = bench::only_deduplicated();

  const Weights weights = test_support::random_weights(plan, 1);
  const Weights rows = test_support::random_tables(plan, table_rows, 2);
  const auto requests = bench::random_requests(source, shape, table_rows, 3);
  save_graph(source, folder + "source.json");
  save_graph(compile(source, deduplicated).graph(), folder + "deduplicated.json");
  save(folder + "weights.safetensors", weights);
  save(folder + "tables.safetensors", rows);
  save(folder + "batch.safetensors", tensors_of(source, requests));

  BindOptions bind_options;
  if (arguments.size() > 6) bind_options.host_precision = host_precision_of(arguments[6], "precision");
  if (bind_options.host_precision == HostPrecision::int8_weights) bind_options.cuda_int8 = {"*"};
  const Model model = Model::bind(plan, weights, Tables::load(plan, rows, device), bind_options);
  Batch batch = model.batch();
  for (const test_support::PlainRequest& request : requests) add_to(batch, request);
  batch.close();
  Context context = model.context();
  save(folder + "scores.safetensors", tensors_of(plan, context.run(batch)));

  std::printf("ready\n");
  std::fflush(stdout);
  answer(model, batch);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
