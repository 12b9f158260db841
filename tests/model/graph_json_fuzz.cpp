// SPDX-License-Identifier: Apache-2.0

/// No text may crash the reader of graphs; a graph that it accepts compiles with all passes and survives writing and
/// reading again. A pass that makes a wrong node throws std::logic_error, which ends the fuzzer.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "warprank/graph_json.hpp"
#include "warprank/plan/plan.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace warprank;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const Graph graph = graph_from_json(text);
    const std::string written = to_json(graph);
    if (to_json(graph_from_json(written)) != written) std::abort();
    const Plan plan = compile(graph);
    if (plan.describe().empty() || plan.dot().empty()) std::abort();
  } catch (const invalid_argument&) {
  }
  return 0;
}
