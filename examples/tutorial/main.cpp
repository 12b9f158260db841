// SPDX-License-Identifier: Apache-2.0

// Writes the tutorial's model as JSON, which the server reads, and shows its plan: tutorial build/tutorial/model.json

#include <cstdio>
#include <exception>

#include "model.hpp"
#include "warprank/graph_json.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE.json\n", argv[0]);
    return 2;
  }
  try {
    const warprank::Graph graph = warprank::build(tutorial::watch);
    warprank::save_graph(graph, argv[1]);
    warprank::CompileOptions options;
    options.capacities = {{1, 100, {{"watched", 20}}}};
    std::fputs(warprank::compile(graph, options).describe().c_str(), stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
