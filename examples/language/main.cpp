// SPDX-License-Identifier: Apache-2.0

// Builds and plans every model of ops.hpp, and prints what it finds as JSON: tools/language_page.py makes
// docs/LANGUAGE.md of it.

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ops.hpp"

namespace {

using namespace warprank;

nlohmann::json facts_of(const ModelFunction& model) {
  const Plan plan = compile(model);
  nlohmann::json outputs, learned, tables, kernels;
  for (const OutputInfo& output : plan.source().outputs) {
    const Node& node = plan.source().node(output.node);
    outputs.push_back({output.name, plan.source().axes[static_cast<size_t>(node.axis)].name, node.width});
  }
  for (const Parameter& parameter : plan.parameters()) learned.push_back({parameter.name, to_string(parameter.shape)});
  for (const TableInfo& table : plan.source().tables) tables.push_back({table.name, table.dim});
  const std::vector<std::vector<int>>& steps = plan.storage().steps;
  for (const std::vector<int>& step : steps) kernels.push_back(plan::kernel_of(plan.graph(), step));
  return {{"outputs", outputs},
          {"learned", learned},
          {"tables", tables},
          {"kernels", kernels},
          {"launches", plan::launches_of(plan.graph(), steps)}};
}

int run() {
  const std::vector<std::pair<const char*, ModelFunction>> models = {{"axis", language::axis},
                                                                     {"table", language::table},
                                                                     {"hashed_table", language::hashed_table},
                                                                     {"ids", language::ids},
                                                                     {"dense", language::dense},
                                                                     {"embed", language::embed},
                                                                     {"embed_bag", language::embed_bag},
                                                                     {"pool", language::pool},
                                                                     {"expand", language::expand},
                                                                     {"concat", language::concat},
                                                                     {"slice", language::slice},
                                                                     {"linear", language::linear},
                                                                     {"mlp", language::mlp},
                                                                     {"experts", language::experts},
                                                                     {"scene_experts", language::scene_experts},
                                                                     {"mix", language::mix},
                                                                     {"ple", language::ple},
                                                                     {"din_attention", language::din_attention},
                                                                     {"target_attention", language::target_attention},
                                                                     {"self_attention", language::self_attention},
                                                                     {"gru", language::gru},
                                                                     {"augru", language::augru},
                                                                     {"hstu", language::hstu},
                                                                     {"mix_tokens", language::mix_tokens},
                                                                     {"rank_mixer", language::rank_mixer},
                                                                     {"field_linear", language::field_linear},
                                                                     {"cin", language::cin},
                                                                     {"field_attention", language::field_attention},
                                                                     {"auto_int", language::auto_int},
                                                                     {"wukong", language::wukong},
                                                                     {"fm", language::fm},
                                                                     {"dot", language::dot},
                                                                     {"dot_between", language::dot_between},
                                                                     {"cross", language::cross},
                                                                     {"wide", language::wide},
                                                                     {"batch_norm", language::batch_norm},
                                                                     {"layer_norm", language::layer_norm},
                                                                     {"softmax", language::softmax},
                                                                     {"reduce", language::reduce},
                                                                     {"activate", language::activate},
                                                                     {"select", language::select},
                                                                     {"custom", language::custom},
                                                                     {"label", language::label}};
  nlohmann::json facts;
  for (const auto& [name, model] : models) facts[name] = facts_of(model);
  std::puts(facts.dump(1).c_str());
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
