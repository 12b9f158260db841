// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The reference models by name, and batches for them in which every request has as many rows as the others.

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "auto_int.hpp"
#include "dcn_v2.hpp"
#include "dien.hpp"
#include "dlrm.hpp"
#include "dlrm_hstu.hpp"
#include "hstu.hpp"
#include "meituan_like.hpp"
#include "movielens/model.hpp"
#include "mtgr.hpp"
#include "rank_mixer.hpp"
#include "support/plain_request.hpp"
#include "user_heavy.hpp"
#include "warprank/model.hpp"
#include "wide_deep.hpp"
#include "wukong.hpp"
#include "xdeepfm.hpp"

namespace warprank::bench {

inline const std::map<std::string, ModelFunction>& reference_models() {
  static const std::map<std::string, ModelFunction> models = {
      {"wide_deep", ::models::wide_deep},   {"dlrm", ::models::dlrm},
      {"dcn_v2", ::models::dcn_v2},         {"din_mmoe", movielens::din_mmoe},
      {"user_heavy", ::models::user_heavy}, {"meituan_like", ::models::meituan_like},
      {"rank_mixer", ::models::rank_mixer}, {"hstu", ::models::hstu},
      {"xdeepfm", ::models::xdeepfm},       {"auto_int", ::models::auto_int},
      {"wukong", ::models::wukong},         {"dien", ::models::dien},
      {"dlrm_hstu", ::models::dlrm_hstu},   {"mtgr", ::models::mtgr}};
  return models;
}

/// Those passes that an engineer does by hand who computes what belongs to the user once.
constexpr Passes only_deduplicated() {
  Passes passes = Passes::none();
  passes.remove_dead = passes.merge_common = passes.fold_batch_norm = true;
  passes.sums_as_linears = passes.late_broadcast = true;
  return passes;
}

/// What every request has.
struct BatchShape {
  int64_t requests = 1;
  int64_t items = 100;
  int64_t events = 100;   ///< of each history
  int64_t genres = 3;     ///< of each film
  int64_t actions = 512;  ///< of each sequence of HSTU

  int64_t rows_per_parent(const std::string& axis) const {
    const std::map<std::string, int64_t> rows = {{"clicked", events}, {"ordered", events},    {"history", events},
                                                 {"action", actions}, {"event", actions},     {"past", actions},
                                                 {"context", 1},      {"profile", 16},        {"today", 64},
                                                 {"genres", genres},  {"hist_genres", genres}};
    const auto found = rows.find(axis);
    return found == rows.end() ? items : found->second;
  }
  /// Rows of every axis in so many requests.
  std::vector<int64_t> rows(const Graph& graph, int64_t num_requests) const {
    std::vector<int64_t> rows;
    for (const AxisInfo& axis : graph.axes)
      rows.push_back(axis.parent < 0 ? num_requests
                                     : rows[static_cast<size_t>(axis.parent)] * rows_per_parent(axis.name));
    return rows;
  }
  /// What to plan for.
  Capacity capacity(const Graph& graph) const {
    Capacity capacity{requests, requests * items, {}};
    const std::vector<int64_t> all = rows(graph, requests);
    for (size_t a = 0; a < all.size(); ++a) capacity.rows[graph.axes[a].name] = all[a];
    return capacity;
  }
};

/// How `random_tables` of tests/support/random_data.hpp numbers the row of an id.
inline int64_t id_of_row(const TableInfo& table, int64_t row) { return table.hashed ? 7 * row - 3 : row; }

/// Rows of tables are uniform in [0, table_rows), dense values normal.
inline test_support::PlainRequest random_request(const Graph& graph, const BatchShape& shape, int64_t table_rows,
                                                 std::mt19937& random) {
  test_support::PlainRequest request;
  const std::vector<int64_t> rows = shape.rows(graph, 1);
  for (size_t a = 0; a < rows.size(); ++a) {
    const AxisInfo& axis = graph.axes[a];
    if (axis.parent >= 0)
      request.lengths[axis.name].assign(static_cast<size_t>(rows[static_cast<size_t>(axis.parent)]),
                                        shape.rows_per_parent(axis.name));
  }
  std::uniform_int_distribution<int64_t> row(0, table_rows - 1);
  for (const Node& node : graph.nodes) {
    const auto* embed = std::get_if<EmbedOp>(&node.op);
    if (embed == nullptr) continue;
    const IdsInfo& info = graph.ids[static_cast<size_t>(embed->ids)];
    std::vector<int64_t>& ids = request.ids[info.name];
    ids.resize(static_cast<size_t>(rows[static_cast<size_t>(info.axis)]));
    for (int64_t& id : ids) id = id_of_row(graph.tables[static_cast<size_t>(embed->table)], row(random));
  }
  std::normal_distribution<float> normal;
  for (const DenseInfo& info : graph.dense) {
    std::vector<float>& values = request.dense[info.name];
    values.resize(static_cast<size_t>(rows[static_cast<size_t>(info.axis)] * info.width));
    for (float& value : values) value = normal(random);
  }
  return request;
}

inline std::vector<test_support::PlainRequest> random_requests(const Graph& graph, const BatchShape& shape,
                                                               int64_t table_rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<test_support::PlainRequest> requests;
  for (int64_t r = 0; r < shape.requests; ++r) requests.push_back(random_request(graph, shape, table_rows, random));
  return requests;
}

}  // namespace warprank::bench
