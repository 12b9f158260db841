// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Plan::describe and Plan::dot.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/text.hpp"
#include "warprank/plan/cards.hpp"
#include "warprank/plan/plan.hpp"
#include "warprank/plan/predict.hpp"

namespace warprank { inline namespace v0 {

namespace plan {

/// "din_attention  attention [item, 40] <- q, k".
inline std::string one_line(const Graph& graph, const Node& node) {
  std::string text = std::string(kind_of(node.op)) + " " + node.name + " [" + graph.axis(node.axis).name + ", " +
                     std::to_string(node.width) + "]";
  constexpr size_t shown = 6;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i == shown && node.inputs.size() > shown + 1)
      return text + ", and " + std::to_string(node.inputs.size() - shown) + " more";
    text += (i == 0 ? " <- " : ", ") + graph.node(node.inputs[i]).name;
  }
  return text;
}

inline std::string columns_of(const Prediction& p) {
  using warprank::detail::padded;
  using warprank::detail::with_unit;
  char microseconds[32];
  std::snprintf(microseconds, sizeof microseconds, "%.1f us", p.seconds * 1e6);
  return padded(std::to_string(p.launches), 10, true) + padded(with_unit(p.cost.flops), 10, true) +
         padded(with_unit(p.cost.bytes), 10, true) + padded(microseconds, 12, true);
}

}  // namespace plan

WARPRANK_HOST_INLINE std::string Plan::describe(const std::string& card_name) const {
  using warprank::detail::padded;
  using warprank::detail::with_unit;
  const plan::Card& card = plan::card_named(card_name);
  const std::vector<int64_t> rows = plan::rows_at(source(), options().capacities[0]);
  std::string text = "At capacity:";
  for (size_t a = 0; a < rows.size(); ++a)
    text += " " + source().axes[a].name + " " + std::to_string(rows[a]) + (a + 1 < rows.size() ? "," : "\n");
  for (const std::string& warning : warnings()) text += "Warning: " + warning + ".\n";
  text += "Times are predicted for one " + card_name +
          ", not measured: what its memory and tensor cores allow, in FP16, and what launches and trips to memory take "
          "(plan/cards.hpp).\n";

  text += "\nstep  kernel          launches     FLOPs     bytes   predicted  operations\n";
  for (size_t s = 0; s < storage().steps.size(); ++s) {
    const std::vector<int>& step = storage().steps[s];
    text += padded(std::to_string(s), 4, true) + "  " + padded(plan::kernel_of(graph(), step), 14) +
            columns_of(plan::predict(graph(), step, rows, card));
    constexpr size_t shown = 8;
    for (size_t i = 0; i < step.size(); ++i) {
      text += i == 0 ? "  " : std::string(64, ' ');
      if (i == shown && step.size() > shown + 1) {
        text += "and " + std::to_string(step.size() - shown) + " more in the same launch\n";
        break;
      }
      text += plan::one_line(graph(), graph().node(step[i])) + "\n";
    }
  }
  text += "\n                    launches     FLOPs     bytes   predicted  with the copy in and the graph's start\n";
  text += padded("this plan", 20) + columns_of(plan::predict(graph(), storage(), rows, card)) + "\n";
  if (reports().empty()) return text;  // a part of a plan (plan/divide.hpp)
  CompileOptions unfused = options();
  unfused.passes = Passes::none();
  const Plan without(source(), unfused);
  text +=
      padded("without any pass", 20) + columns_of(plan::predict(without.graph(), without.storage(), rows, card)) + "\n";

  text += "\npass                 steps          FLOPs              bytes\n";
  for (const PassReport& r : reports())
    text += padded(r.name, 18) + padded(std::to_string(r.steps_before) + " -> " + std::to_string(r.steps_after), 13) +
            padded(with_unit(r.cost_before.flops) + " -> " + with_unit(r.cost_after.flops), 20) +
            with_unit(r.cost_before.bytes) + " -> " + with_unit(r.cost_after.bytes) + "\n";
  return text;
}

WARPRANK_HOST_INLINE std::string Plan::dot() const {
  const auto quoted = [](const std::string& text) {
    std::string escaped = "\"";
    for (char c : text)
      escaped += c == '"' || c == '\\' ? std::string("\\") + c : c == '\n' ? "\\n" : std::string(1, c);
    return escaped + "\"";
  };
  // Colours of neighbouring steps differ; values that stay on chip are dashed.
  const char* const colours[] = {"#dbe9f6", "#fde8cd", "#dff0d8", "#f6dfe8", "#e6e0f3", "#f7f3c9"};
  std::string text =
      "digraph plan {\n  rankdir=TB; node [shape=box, style=filled, fillcolor=white, fontname=\"sans-serif\"];\n";
  const std::vector<bool> in_memory = plan::in_memory(graph(), storage().steps);
  const auto draw = [&](int n) {
    const Node& node = graph().node(n);
    text += "  n" + std::to_string(n) + " [label=" +
            quoted(std::string(kind_of(node.op)) + " " + node.name + "\n" + graph().axis(node.axis).name + " x " +
                   std::to_string(node.width)) +
            (in_memory[static_cast<size_t>(n)] ? "];\n" : ", style=\"filled,dashed\"];\n");
  };
  std::vector<bool> launched(graph().nodes.size(), false);
  for (size_t s = 0; s < storage().steps.size(); ++s) {
    text += "  subgraph cluster_" + std::to_string(s) + " { label=\"" + std::to_string(s) + " " +
            plan::kernel_of(graph(), storage().steps[s]) + "\"; style=filled; color=\"" + colours[s % 6] + "\";\n";
    for (int n : storage().steps[s]) {
      draw(n);
      launched[static_cast<size_t>(n)] = true;
    }
    text += "  }\n";
  }
  for (size_t n = 0; n < graph().nodes.size(); ++n)  // inputs and views
    if (!launched[n]) draw(static_cast<int>(n));
  for (size_t n = 0; n < graph().nodes.size(); ++n)
    for (int input : graph().nodes[n].inputs)
      text += "  n" + std::to_string(input) + " -> n" + std::to_string(n) + ";\n";
  for (const OutputInfo& output : graph().outputs)
    text += "  " + quoted("out " + output.name) + " [shape=oval];\n  n" + std::to_string(output.node) + " -> " +
            quoted("out " + output.name) + ";\n";
  return text + "}\n";
}

}}  // namespace warprank::v0
