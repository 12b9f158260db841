// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of graph_json.hpp.

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/json.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/model/graph_json.hpp"
#include "warprank/model/validate.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

inline constexpr const char* graph_format = "warprank.graph";
inline constexpr int graph_version = 1;

inline Json json_of(const Node& node) {
  Json object = {{"name", node.name}, {"op", kind_of(node.op)}, {"inputs", node.inputs},
                 {"axis", node.axis}, {"width", node.width},    {"where", node.where}};
  std::visit(
      [&](const auto& op) {
        for_each_field(op, [&](const char* name, const auto& member) { object["settings"][name] = to_json(member); });
      },
      node.op);
  return object;
}

template <size_t Index>
bool emplace_op(const std::string& kind, Op& op) {
  if constexpr (Index < std::variant_size_v<Op>) {
    if (kind != std::variant_alternative_t<Index, Op>::kind) return emplace_op<Index + 1>(kind, op);
    op.emplace<Index>();
    return true;
  } else {
    return false;
  }
}

inline void read_node(JsonReader& reader, const Json& json, Node& node) {
  JsonReader::Members members(reader, json);
  std::string kind;
  members.get("name", node.name);
  members.get("op", kind);
  members.get("inputs", node.inputs);
  members.get("axis", node.axis);
  members.get("width", node.width);
  members.get("where", node.where);
  if (!emplace_op<0>(kind, node.op)) reader.fail("an op of the model language", "\"" + kind + "\"");
  std::visit(
      [&](auto& op) {
        if constexpr (std::tuple_size_v < decltype(fields_of(static_cast<decltype(&op)>(nullptr))) >> 0)
          members.get("settings", op);
      },
      node.op);
  members.finish();
}

}  // namespace detail

WARPRANK_HOST_INLINE std::string to_json(const Graph& graph) {
  detail::Json nodes = detail::Json::array();
  for (const Node& node : graph.nodes) nodes.push_back(detail::json_of(node));
  return detail::text_of({{"format", detail::graph_format},
                          {"version", detail::graph_version},
                          {"axes", detail::to_json(graph.axes)},
                          {"tables", detail::to_json(graph.tables)},
                          {"ids", detail::to_json(graph.ids)},
                          {"dense", detail::to_json(graph.dense)},
                          {"nodes", std::move(nodes)},
                          {"outputs", detail::to_json(graph.outputs)}},
                         "graph");
}

WARPRANK_HOST_INLINE Graph graph_from_json(const std::string& text, const std::string& source) {
  const detail::Json json = detail::parse_json(text, source);
  detail::JsonReader reader(source);
  detail::JsonReader::Members members(reader, json);
  Graph graph;
  reader.check_format(members, detail::graph_format, detail::graph_version);
  members.get("axes", graph.axes);
  members.get("tables", graph.tables);
  members.get("ids", graph.ids);
  members.get("dense", graph.dense);
  members.get_list("nodes", graph.nodes, detail::read_node);
  members.get("outputs", graph.outputs);
  members.finish();
  Problems problems;
  validate(graph, problems);
  problems.throw_if_any();
  return graph;
}

WARPRANK_HOST_INLINE void save_graph(const Graph& graph, const std::string& path) {
  detail::write_text(to_json(graph), path);
}

WARPRANK_HOST_INLINE Graph load_graph(const std::string& path) {
  return graph_from_json(detail::read_text(path), path);
}

}}  // namespace warprank::v0
