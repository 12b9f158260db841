// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Models whose tables lie in a store in this process, for tests of either engine.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/look_ups_testing.hpp"
#include "engine/table_update_testing.hpp"
#include "support/memory_store.hpp"
#include "support/store_testing.hpp"
#include "warprank/host.hpp"
#include "warprank/store/table_in_store.hpp"

namespace warprank::tables_in_stores_testing {

using namespace table_update_testing;  // NOLINT: whose tables these are
using test_support::MemoryStore;

inline StoredRows rows_of(const VersionedTable& table) { return {table.type, table.dim}; }

/// The default rows, which are all that weights have of tables in stores.
inline Weights default_rows(const std::vector<VersionedTable>& tables) {
  std::map<std::string, StoredTensor> tensors;
  for (const VersionedTable& table : tables)
    tensors[table.name + ".default"] = make_tensor<float>({table.dim}, table.default_row());
  return Weights::from_tensors(tensors);
}

inline std::shared_ptr<MemoryStore> store_with(const std::vector<VersionedTable>& tables) {
  auto store = std::make_shared<MemoryStore>();
  for (const VersionedTable& table : tables) store->create({table.name, rows_of(table)}, test_support::soon());
  return store;
}

/// A model that looks keys up in tables of a store.
struct StoredModel {
  StoredModel(std::vector<VersionedTable> the_tables, const TableInStore& options, Device device = host(),
              const TablePlacements& placement = {})
      : expected(std::move(the_tables)),
        store(store_with(expected)),
        plan(plan_of(expected)),
        tables(Tables::load(plan, default_rows(expected), device, load_options(options, placement))),
        model(Model::bind(plan, Weights::from_tensors({}), tables)) {
    TestUpdate all;
    for (VersionedTable& table : expected) table.add_rows(table.all(), false, all.tensors);
    for (const auto& [name, changes] : tables.update(all.weights())) EXPECT_EQ(changes.failed, 0) << name;
  }

  LoadOptions load_options(TableInStore options, const TablePlacements& placement) const {
    options.store = store;
    if (options.memory_bytes == 0) options.memory_bytes = int64_t{1} << 20;
    LoadOptions load;
    load.placement = placement;
    load.cache_pass_seconds = 0;
    load.updatable = true;
    load.stores = {{"*", options}};
    return load;
  }
  /// Of all tables.
  StoreCounters counters() const {
    StoreCounters sum;
    for (const auto& [table, one] : tables.store_counters()) {
      for (int64_t StoreCounters::*member :
           {&StoreCounters::hits, &StoreCounters::misses, &StoreCounters::fetched, &StoreCounters::absent,
            &StoreCounters::damaged, &StoreCounters::failed, &StoreCounters::evicted, &StoreCounters::dropped,
            &StoreCounters::late, &StoreCounters::rows})
        sum.*member += one.*member;
    }
    return sum;
  }

  std::vector<VersionedTable> expected;
  std::shared_ptr<MemoryStore> store;
  Plan plan;
  Tables tables;
  Model model;
};

/// The rows of keys in every table of a model, which may be default rows.
class LookUpsInStore : public LookUps {
 public:
  LookUpsInStore(const StoredModel& setup, const std::vector<int64_t>& keys)
      : LookUps(setup, keys), setup_(setup), keys_(keys) {}

  /// Whether all rows are as expected; `given` are those that are no default rows.
  bool has_rows(int64_t* given = nullptr) {
    run();
    bool all = true;
    for (const VersionedTable& table : setup_.expected)
      for (size_t i = 0; i < keys_.size(); ++i) {
        const Row row = this->row(table, i);
        all = all && row == table.expected(keys_[i]);
        if (given != nullptr) *given += row != table.default_row();
        EXPECT_TRUE(row == table.expected(keys_[i]) || row == table.default_row()) << table.name << " " << keys_[i];
      }
    return all;
  }

 private:
  const StoredModel& setup_;
  const std::vector<int64_t> keys_;
};

inline TableInStore waiting() {
  return {.misses = Misses::wait, .longest_wait = std::chrono::seconds(20), .store_timeout = std::chrono::seconds(20)};
}

}  // namespace warprank::tables_in_stores_testing
