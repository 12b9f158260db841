// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/table_update_testing.hpp"
#include "warprank/engine/context.hpp"

namespace warprank::table_update_testing {

/// All rows of keys, in every table of a setup: its plan, its model and what is expected of its tables.
class LookUps {
 public:
  template <class Setup>
  LookUps(const Setup& setup, const std::vector<int64_t>& keys)
      : context_(setup.model.context()), batch_(setup.model.batch()) {
    Request request = batch_.add_request();
    for (const VersionedTable& table : setup.expected) request.ids(setup.plan.ids("id_" + table.name), keys);
    EXPECT_TRUE(request.status().ok()) << request.status().message;
  }

  void run() { scores_ = std::make_unique<Scores>(context_.run(batch_)); }
  Span<const float> view(const VersionedTable& table, size_t i) const {
    return (*scores_)["y_" + table.name].of(0).subspan(static_cast<int64_t>(i) * table.dim, table.dim);
  }
  Row row(const VersionedTable& table, size_t i) const {
    const Span<const float> all = view(table, i);
    return {all.begin(), all.end()};
  }

 private:
  Context context_;
  Batch batch_;
  std::unique_ptr<Scores> scores_;
};

}  // namespace warprank::table_update_testing
