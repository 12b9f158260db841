// SPDX-License-Identifier: Apache-2.0

// Prints what the planner makes of a reference model, or of a folder with a graph.json: its steps with the time that
// they take at least on a card, or a picture of them for Graphviz.
//
//     show_plan wide_deep --card H200 --items 500
//     show_plan din_mmoe --dot | dot -Tsvg > plan.svg
//     show_plan user_heavy --divide item   (what is computed once for a user, and what it takes to keep)
//     show_plan model                      (a folder that `warprank convert` made)

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "../models/auto_int.hpp"
#include "../models/dcn_v2.hpp"
#include "../models/dien.hpp"
#include "../models/dlrm.hpp"
#include "../models/dlrm_hstu.hpp"
#include "../models/hstu.hpp"
#include "../models/meituan_like.hpp"
#include "../models/mtgr.hpp"
#include "../models/rank_mixer.hpp"
#include "../models/user_heavy.hpp"
#include "../models/wide_deep.hpp"
#include "../models/wukong.hpp"
#include "../models/xdeepfm.hpp"
#include "../movielens/model.hpp"
#include "warprank/graph_json.hpp"
#include "warprank/plan/divide.hpp"

namespace {

int run(int argc, char** argv) {
  const std::map<std::string, warprank::ModelFunction> models = {
      {"wide_deep", models::wide_deep},   {"dlrm", models::dlrm},
      {"dcn_v2", models::dcn_v2},         {"din_mmoe", movielens::din_mmoe},
      {"user_heavy", models::user_heavy}, {"meituan_like", models::meituan_like},
      {"rank_mixer", models::rank_mixer}, {"hstu", models::hstu},
      {"xdeepfm", models::xdeepfm},       {"auto_int", models::auto_int},
      {"wukong", models::wukong},         {"dien", models::dien},
      {"dlrm_hstu", models::dlrm_hstu},   {"mtgr", models::mtgr}};
  CLI::App app("Shows the plan of a model.");
  std::string model, card = "T4", items_axis;
  int64_t requests = 1, items = 256;
  bool dot = false;
  app.add_option("model", model, "A reference model, or a folder with graph.json")
      ->required()
      ->check(CLI::IsMember(models) | CLI::ExistingDirectory);
  app.add_option("--card", card, "Which card to predict times for")->capture_default_str();
  app.add_option("--requests", requests, "Requests in a batch")->capture_default_str();
  app.add_option("--items", items, "Items of all requests together")->capture_default_str();
  app.add_option("--divide", items_axis, "The axis of items: the plan as one of a user and one of the items instead");
  app.add_flag("--dot", dot, "A picture in Graphviz' language instead");
  CLI11_PARSE(app, argc, argv);

  warprank::CompileOptions options;
  options.capacities = {{requests, items, {}}};
  const auto known = models.find(model);
  const warprank::Plan plan = known == models.end()
                                  ? warprank::compile(warprank::load_graph(model + "/graph.json"), options)
                                  : warprank::compile(known->second, options);
  if (!items_axis.empty()) {
    std::fputs(warprank::divide(plan, items_axis).describe().c_str(), stdout);
    return 0;
  }
  std::fputs((dot ? plan.dot() : plan.describe(card)).c_str(), stdout);
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
