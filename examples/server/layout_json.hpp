// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "warprank/batch/layout.hpp"
#include "warprank/core/error.hpp"

namespace kserve {

/// What a client must know to pack requests: what BATCH_FORMAT.md's writer calls axes, ids and dense. Members that are
/// as ever are left out: no `keep_last`, no `default`, `type` i64 and f32, no `saturate`.
inline std::string layout_json(const warprank::BatchLayout& layout) {
  using nlohmann::json;
  json axes = json::array(), ids = json::array(), dense = json::array();
  for (const warprank::AxisInfo& info : layout.axes()) {
    json& axis = axes.emplace_back(json{{"name", info.name}, {"parent", info.parent}});
    if (info.keep_last > 0) axis["keep_last"] = info.keep_last;
  }
  for (const warprank::IdsInfo& info : layout.ids()) {
    json& input = ids.emplace_back(json{{"name", info.name}, {"axis", info.axis}});
    if (info.default_id) input["default"] = *info.default_id;
    if (info.wire == warprank::IdsWire::i32) input["type"] = "i32";
    if (info.out_of_range == warprank::OutOfRange::saturate) input["saturate"] = true;
  }
  for (const warprank::DenseInfo& info : layout.dense()) {
    json& input = dense.emplace_back(json{{"name", info.name}, {"axis", info.axis}, {"width", info.width}});
    if (info.default_value) input["default"] = *info.default_value;
    if (info.wire != warprank::DenseWire::f32) input["type"] = info.wire == warprank::DenseWire::f16 ? "f16" : "bf16";
    if (info.out_of_range == warprank::OutOfRange::saturate) input["saturate"] = true;
  }
  return json{{"axes", axes}, {"ids", ids}, {"dense", dense}}.dump();
}

/// The layout that layout_json has written. Throws warprank::invalid_argument for anything else.
inline warprank::BatchLayout layout_of(const std::string& text) {
  using nlohmann::json;
  using warprank::OutOfRange;
  warprank::Graph graph;
  try {
    const json layout = json::parse(text);
    const auto out_of_range = [](const json& input) {
      return input.value("saturate", false) ? OutOfRange::saturate : OutOfRange::refuse;
    };
    for (const json& axis : layout.at("axes"))
      graph.axes.push_back({axis.at("name"), axis.at("parent"), axis.value("keep_last", int64_t{0})});
    for (const json& input : layout.at("ids")) {
      warprank::IdsInfo& info = graph.ids.emplace_back();
      info.name = input.at("name");
      info.axis = input.at("axis");
      if (input.count("default") != 0) info.default_id = input.at("default").get<int64_t>();
      info.wire = input.value("type", "i64") == "i32" ? warprank::IdsWire::i32 : warprank::IdsWire::i64;
      info.out_of_range = out_of_range(input);
    }
    for (const json& input : layout.at("dense")) {
      warprank::DenseInfo& info = graph.dense.emplace_back();
      info.name = input.at("name");
      info.axis = input.at("axis");
      info.width = input.at("width");
      if (input.count("default") != 0) info.default_value = input.at("default").get<float>();
      const std::string type = input.value("type", "f32");
      info.wire = type == "f16"    ? warprank::DenseWire::f16
                  : type == "bf16" ? warprank::DenseWire::bf16
                                   : warprank::DenseWire::f32;
      info.out_of_range = out_of_range(input);
    }
  } catch (const json::exception& error) {
    throw warprank::invalid_argument("layout of requests", "JSON as a warprank server writes it", error.what());
  }
  return warprank::BatchLayout(graph);
}

}  // namespace kserve
