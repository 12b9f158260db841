// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model as plain data: what to compute, without weights or a device. Made by a Builder or read from JSON.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/model/op/list.hpp"

namespace warprank { inline namespace v0 {

/// A named dimension of dynamic length. Exactly one axis has no parent: it has one row per request.
struct AxisInfo {
  std::string name;
  int parent = -1;
  int64_t keep_last = 0;  ///< at most this many rows per parent row, the last ones kept; 0: all
};
constexpr auto fields_of(const AxisInfo*) {
  return std::make_tuple(field("name", &AxisInfo::name), field("parent", &AxisInfo::parent),
                         field("keep_last", &AxisInfo::keep_last));
}

/// An embedding table. Direct: id = row, -1 is padding. Hashed: any 64-bit id.
struct TableInfo {
  std::string name;
  int64_t dim = 0;
  bool hashed = false;
  int64_t rows = 0;  ///< rows, or keys of a hashed table; checked at load; 0: as many as the file has
};
constexpr auto fields_of(const TableInfo*) {
  return std::make_tuple(field("name", &TableInfo::name), field("dim", &TableInfo::dim),
                         field("hashed", &TableInfo::hashed), field("rows", &TableInfo::rows));
}

/// An input of 64-bit ids, one per row of its axis. `wire` is their type in requests.
struct IdsInfo {
  std::string name;
  int axis = 0;
  std::optional<int64_t> default_id;  ///< taken for every row when a request does not set the input
  std::optional<int64_t> padding;     ///< an id that adds nothing in hashed tables (direct tables: -1)
  IdsWire wire = IdsWire::i64;
  OutOfRange out_of_range = OutOfRange::refuse;
};
constexpr auto fields_of(const IdsInfo*) {
  return std::make_tuple(field("name", &IdsInfo::name), field("axis", &IdsInfo::axis),
                         field("default_id", &IdsInfo::default_id), field("padding", &IdsInfo::padding),
                         optional_field("wire", &IdsInfo::wire),
                         optional_field("out_of_range", &IdsInfo::out_of_range));
}

/// The most columns of a dense input that a request's blob can hold.
inline constexpr int64_t max_dense_width = int64_t{1} << 20;

/// An input of `width` FP32 values per row of its axis. `wire` is their type in requests.
struct DenseInfo {
  std::string name;
  int axis = 0;
  int64_t width = 0;
  std::optional<float> default_value;  ///< taken for every element when a request does not set the input
  DenseWire wire = DenseWire::f32;
  OutOfRange out_of_range = OutOfRange::refuse;
};
constexpr auto fields_of(const DenseInfo*) {
  return std::make_tuple(field("name", &DenseInfo::name), field("axis", &DenseInfo::axis),
                         field("width", &DenseInfo::width), field("default_value", &DenseInfo::default_value),
                         optional_field("wire", &DenseInfo::wire),
                         optional_field("out_of_range", &DenseInfo::out_of_range));
}

/// One operation: a tensor of `width` columns on `axis`.
struct Node {
  std::string name;  ///< unique; `tap` takes it
  Op op;
  std::vector<int> inputs;  ///< earlier nodes
  int axis = 0;
  int64_t width = 0;
  int group = -1;                  ///< nodes with the same group run in one launch; -1: alone
  std::string where;               ///< "model.cpp:12"
  std::optional<DType> type = {};  ///< in which a GPU keeps the value, whoever reads it; division of a plan sets it
};

struct OutputInfo {
  std::string name;
  int node = 0;
};
constexpr auto fields_of(const OutputInfo*) {
  return std::make_tuple(field("name", &OutputInfo::name), field("node", &OutputInfo::node));
}

namespace detail {

/// The names of a graph's nodes while it is made.
class UniqueNames {
 public:
  /// `name`, or if it is taken "name#2", "name#3", ...
  std::string make(const std::string& name) {
    if (take(name)) return name;
    for (int& last = numbers_.at(name);;) {
      std::string unique = name + "#" + std::to_string(++last);
      if (take(unique)) return unique;
    }
  }
  /// Takes `name`; false if it was taken before.
  bool take(const std::string& name) { return numbers_.emplace(name, 1).second; }

 private:
  std::map<std::string, int> numbers_;  // by name taken, the last number tried behind it
};

}  // namespace detail

struct Graph {
  std::vector<AxisInfo> axes;
  std::vector<TableInfo> tables;
  std::vector<IdsInfo> ids;
  std::vector<DenseInfo> dense;
  std::vector<Node> nodes;  ///< every node after its inputs
  std::vector<OutputInfo> outputs;

  /// Whether `ancestor` is `axis` itself or lies above it.
  bool is_ancestor(int ancestor, int axis) const {
    while (axis != -1 && axis != ancestor) axis = axes[static_cast<size_t>(axis)].parent;
    return axis == ancestor;
  }
  const Node& node(int i) const { return nodes[static_cast<size_t>(i)]; }
  Node& node(int i) { return nodes[static_cast<size_t>(i)]; }
  const AxisInfo& axis(int i) const { return axes[static_cast<size_t>(i)]; }

  /// Whether the id -1 of an input is padding, as in direct tables, and never a key of a hashed table. Code that takes
  /// unsigned ids must then not pass on 2^64 - 1, which has the same bits.
  bool pads_minus_one(int input) const {
    bool is_direct = false, is_hashed = false;
    for (const Node& node : nodes) {
      const auto* embed = std::get_if<EmbedOp>(&node.op);
      if (embed == nullptr || embed->ids != input) continue;
      const bool hashed = tables[static_cast<size_t>(embed->table)].hashed;
      (hashed ? is_hashed : is_direct) = true;
    }
    return is_direct && !is_hashed && !ids[static_cast<size_t>(input)].padding;
  }
};

}}  // namespace warprank::v0
