// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "warprank/batch/layout.hpp"

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

}  // namespace kserve
