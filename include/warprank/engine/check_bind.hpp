// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The checks of a plan, weights, tables and options against one another: the same on every engine.

#include <string>
#include <variant>

#include "warprank/core/error.hpp"
#include "warprank/engine/engine.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Throws invalid_argument with every table of the plan that `tables` lacks or has in another form. `tables.find(name)`
/// gives null or a table with is_hashed() and view.dim.
template <class Tables>
void check_tables(const Plan& plan, const Tables& tables) {
  const auto text = [](bool hashed, int64_t dim) {
    return std::string(hashed ? "a hashed" : "a direct") + " table of dim " + std::to_string(dim);
  };
  Problems problems;
  for (const TableInfo& info : plan.source().tables) {
    const auto* table = tables.find(info.name);
    if (table == nullptr || table->view.dim != info.dim || table->is_hashed() != info.hashed)
      problems.add("table '" + info.name + "'", text(info.hashed, info.dim),
                   table == nullptr ? "none in these Tables" : text(table->is_hashed(), table->view.dim));
  }
  problems.throw_if_any();
}

/// Throws invalid_argument with every custom function that is not in `functions`, by name, and all errors of the
/// weights.
template <class Functions>
void check_parameters(const Plan& plan, const Weights& weights, const Functions& functions, const char* option,
                      ExtraTensors extra) {
  Problems problems;
  for (const Node& node : plan.source().nodes)
    if (const auto* custom = std::get_if<CustomOp>(&node.op);
        custom != nullptr && functions.count(custom->function) == 0)
      problems.add({node.where, "custom '" + custom->function + "'",
                    std::string("a function of that name in BindOptions::") + option, "none"});
  try {
    weights.check(plan.parameters(), extra);
  } catch (const invalid_argument& error) {
    for (const Problem& problem : error.problems()) problems.add(problem);
  }
  problems.throw_if_any();
}

}}}  // namespace warprank::v0::detail
