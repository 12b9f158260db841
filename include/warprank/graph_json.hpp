// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Graphs as JSON: a new architecture reaches a server as a file, without a rebuild. The round trip is exact (floats
/// are written with the digits that give back the same bits). A file is validated like hand-made input: anything
/// missing, unknown, mistyped or inconsistent is an invalid_argument that says where.

#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/model/graph.hpp"
#include "warprank/model/validate.hpp"

namespace warprank {

namespace detail {

using Json = nlohmann::ordered_json;

inline constexpr const char* graph_format = "warprank.graph";
inline constexpr int graph_version = 1;

// --- writing ---

template <class Value>
Json to_json(const Value& value);
Json to_json(const Node& node);

template <class Value>
Json to_json(const std::vector<Value>& values) {
  Json list = Json::array();
  for (const Value& value : values) list.push_back(to_json(value));
  return list;
}

template <class Value>
Json to_json(const std::optional<Value>& value) {
  return value ? to_json(*value) : Json(nullptr);
}

template <class Value>
Json to_json(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return name_of_enum(value);
  } else if constexpr (HasFields<Value>::value) {
    Json object = Json::object();
    for_each_field(value, [&](const char* name, const auto& member) { object[name] = to_json(member); });
    return object;
  } else if constexpr (std::is_same_v<Value, float>) {
    if (std::isfinite(value)) return static_cast<double>(value);
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";  // JSON has no such numbers
  } else {
    return value;
  }
}

inline Json to_json(const Node& node) {
  Json object = {{"name", node.name}, {"op", kind_of(node.op)}, {"inputs", node.inputs},
                 {"axis", node.axis}, {"width", node.width},    {"where", node.where}};
  std::visit(
      [&](const auto& op) {
        for_each_field(op, [&](const char* name, const auto& member) { object["settings"][name] = to_json(member); });
      },
      node.op);
  return object;
}

// --- reading ---

/// Reads values of the expected types; each mistake is thrown with the path to it.
class GraphReader {
 public:
  explicit GraphReader(std::string source) : path_(std::move(source)) {}

  Graph read(const Json& json) {
    Graph graph;
    Members members(*this, json);
    std::string format;
    int version = 0;
    members.get("format", format);
    members.get("version", version);
    if (format != graph_format) fail("format \"" + std::string(graph_format) + "\"", "\"" + format + "\"");
    if (version != graph_version) fail("version " + std::to_string(graph_version), std::to_string(version));
    members.get("axes", graph.axes);
    members.get("tables", graph.tables);
    members.get("ids", graph.ids);
    members.get("dense", graph.dense);
    members.get("nodes", graph.nodes);
    members.get("outputs", graph.outputs);
    members.finish();
    return graph;
  }

 private:
  [[noreturn]] void fail(std::string expected, std::string got) const {
    throw invalid_argument(path_, std::move(expected), std::move(got));
  }

  /// The members of a JSON object: each asked for must be there, and none else.
  class Members {
   public:
    Members(GraphReader& reader, const Json& json) : reader_(reader), json_(json) {
      if (!json.is_object()) reader.fail("an object", json.type_name());
    }
    template <class Value>
    void get(const std::string& name, Value& value) {
      const auto it = json_.find(name);
      if (it == json_.end()) reader_.fail("a member \"" + name + "\"", "none");
      known_.insert(name);
      const size_t length = reader_.path_.size();
      reader_.path_ += "." + name;
      reader_.read_value(*it, value);
      reader_.path_.resize(length);
    }
    void finish() const {
      for (const auto& item : json_.items())
        if (known_.count(item.key()) == 0) reader_.fail("no other members", "\"" + item.key() + "\"");
    }

   private:
    GraphReader& reader_;
    const Json& json_;
    std::set<std::string> known_;
  };

  void read_value(const Json& json, bool& value) const {
    if (!json.is_boolean()) fail("true or false", json.type_name());
    value = json.get<bool>();
  }
  void read_value(const Json& json, std::string& value) const {
    if (!json.is_string()) fail("a string", json.type_name());
    value = json.get<std::string>();
  }
  void read_value(const Json& json, float& value) const {
    if (json.is_string()) {
      const auto text = json.get<std::string>();
      if (text != "nan" && text != "inf" && text != "-inf") fail("a number", "\"" + text + "\"");
      value = text == "nan" ? NAN : text == "inf" ? INFINITY : -INFINITY;
      return;
    }
    if (!json.is_number()) fail("a number", json.type_name());
    const double wide = json.get<double>();
    value = std::abs(wide) > 3.4028235677973366e38 ? static_cast<float>(std::copysign(INFINITY, wide))
                                                   : static_cast<float>(wide);
  }
  void read_value(const Json& json, int64_t& value) const {
    if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX))
      fail("a 64-bit integer", json.dump());
    value = json.get<int64_t>();
  }
  void read_value(const Json& json, int& value) const {
    int64_t wide = 0;
    read_value(json, wide);
    if (wide < INT32_MIN || wide > INT32_MAX) fail("a 32-bit integer", std::to_string(wide));
    value = static_cast<int>(wide);
  }

  template <class Value>
  void read_value(const Json& json, std::vector<Value>& values) {
    if (!json.is_array()) fail("a list", json.type_name());
    for (size_t i = 0; i < json.size(); ++i) {
      const size_t length = path_.size();
      path_.append("[").append(std::to_string(i)).append("]");
      read_value(json[i], values.emplace_back());
      path_.resize(length);
    }
  }
  template <class Value>
  void read_value(const Json& json, std::optional<Value>& value) {
    if (!json.is_null()) read_value(json, value.emplace());
  }
  template <class Value>
  std::enable_if_t<std::is_enum_v<Value>> read_value(const Json& json, Value& value) const {
    std::string text;
    read_value(json, text);
    std::string known;
    for (const auto& [enumerator, name] : names_of(Value{})) {
      if (text == name) {
        value = enumerator;
        return;
      }
      known += std::string(known.empty() ? "" : ", ") + name;
    }
    fail("one of " + known, "\"" + text + "\"");
  }
  template <class Value>
  std::enable_if_t<HasFields<Value>::value> read_value(const Json& json, Value& value) {
    Members members(*this, json);
    for_each_field(value, [&](const char* name, auto& member) { members.get(name, member); });
    members.finish();
  }

  void read_value(const Json& json, Node& node) {
    Members members(*this, json);
    std::string kind;
    members.get("name", node.name);
    members.get("op", kind);
    members.get("inputs", node.inputs);
    members.get("axis", node.axis);
    members.get("width", node.width);
    members.get("where", node.where);
    if (!make_op<0>(kind, node.op)) fail("an op of the model language", "\"" + kind + "\"");
    std::visit(
        [&](auto& op) {
          if constexpr (std::tuple_size_v < decltype(fields_of(static_cast<decltype(&op)>(nullptr))) >> 0)
            members.get("settings", op);
        },
        node.op);
    members.finish();
  }

  template <size_t Index>
  static bool make_op(const std::string& kind, Op& op) {
    if constexpr (Index < std::variant_size_v<Op>) {
      if (kind != std::variant_alternative_t<Index, Op>::kind) return make_op<Index + 1>(kind, op);
      op.emplace<Index>();
      return true;
    } else {
      return false;
    }
  }

  std::string path_;
};

}  // namespace detail

/// The graph as indented JSON text. Throws invalid_argument when a name is not UTF-8.
inline std::string to_json(const Graph& graph) {
  const detail::Json json = {{"format", detail::graph_format},        {"version", detail::graph_version},
                             {"axes", detail::to_json(graph.axes)},   {"tables", detail::to_json(graph.tables)},
                             {"ids", detail::to_json(graph.ids)},     {"dense", detail::to_json(graph.dense)},
                             {"nodes", detail::to_json(graph.nodes)}, {"outputs", detail::to_json(graph.outputs)}};
  try {
    return json.dump(1);
  } catch (const nlohmann::json::exception& error) {
    throw invalid_argument("graph", "names in UTF-8", error.what());
  }
}

/// Reads and validates a graph; `source` names it in errors. Throws invalid_argument for anything that to_json would
/// not have written.
inline Graph graph_from_json(const std::string& text, const std::string& source = "graph") {
  detail::Json json;
  try {
    json = detail::Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw invalid_argument(source, "JSON in UTF-8", error.what());
  }
  Graph graph = detail::GraphReader(source).read(json);
  Problems problems;
  validate(graph, problems);
  problems.throw_if_any();
  return graph;
}

/// Writes to_json(graph) to a file. Throws invalid_argument when that fails.
inline void save_graph(const Graph& graph, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << to_json(graph);
  file.close();
  if (!file) throw invalid_argument(path, "a file that can be written", "an error while writing");
}

/// graph_from_json of a file; errors name its path.
inline Graph load_graph(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw invalid_argument(path, "a readable file", "none");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return graph_from_json(text, path);
}

}  // namespace warprank
