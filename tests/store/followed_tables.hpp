// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model whose tables follow changes, for tests: what its rows should be, and changes that tell of it.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/table_update_testing.hpp"
#include "support/memory_store.hpp"
#include "support/store_testing.hpp"
#include "support/wait_until.hpp"
#include "warprank/engine/table_delta.hpp"
#include "warprank/host.hpp"
#include "warprank/store/table_in_store.hpp"

namespace warprank::test_support {

namespace updates = table_update_testing;

struct FollowedModel {
  /// Tables that are loaded as updatable, or have their rows in `store`.
  explicit FollowedModel(std::vector<updates::VersionedTable> the_tables, bool in_store = false)
      : expected(std::move(the_tables)),
        store(in_store ? filled_store(expected) : nullptr),
        plan(updates::plan_of(expected)),
        tables(in_store ? Tables::load(plan, default_rows(expected), host(), in(store))
                        : Tables::load(plan, updates::weights_of(expected), host(), updatable())),
        model(Model::bind(plan, Weights::from_tensors({}), tables)),
        context(model.context()) {}

  static StoredTable stored(const updates::VersionedTable& table) { return {table.name, {table.type, table.dim}}; }
  std::vector<StoredTable> stored_tables() const {
    std::vector<StoredTable> list;
    for (const updates::VersionedTable& table : expected) list.push_back(stored(table));
    return list;
  }

  /// Has `table`, one of `expected`, changed so, and gives the changes that say it.
  static RowChanges change(updates::VersionedTable& table, const std::vector<updates::KeyVersion>& written,
                           const std::vector<int64_t>& erased) {
    RowChanges changes;
    std::map<int64_t, int64_t> last;
    for (const updates::KeyVersion& kv : written) last[kv.key] = kv.version;
    const auto row_bytes = static_cast<size_t>(stored(table).rows.row_bytes());
    for (const auto& [key, version] : last) {
      table.versions[key] = version;
      changes.keys.push_back(key);
      changes.rows.resize(changes.rows.size() + row_bytes);
      write_row(table, {key, version}, changes.rows.data() + changes.rows.size() - row_bytes);
    }
    for (const int64_t key : erased) {
      table.versions.erase(key);
      changes.erased.push_back(key);
    }
    return changes;
  }

  Scores look_up(const std::vector<int64_t>& keys) {
    Batch batch = model.batch();
    Request request = batch.add_request();
    for (const updates::VersionedTable& table : expected) request.ids(plan.ids("id_" + table.name), keys);
    return context.run(batch);
  }
  bool has_rows(const std::vector<int64_t>& keys) {
    const Scores scores = look_up(keys);
    for (const updates::VersionedTable& table : expected)
      for (size_t i = 0; i < keys.size(); ++i) {
        const Span<const float> row =
            scores["y_" + table.name].of(0).subspan(static_cast<int64_t>(i) * table.dim, table.dim);
        if (updates::Row(row.begin(), row.end()) != table.expected(keys[i])) return false;
      }
    return true;
  }

  std::vector<updates::VersionedTable> expected;
  std::shared_ptr<MemoryStore> store;
  Plan plan;
  Tables tables;
  Model model;
  Context context;

 private:
  /// As hash tables keep it.
  static void write_row(const updates::VersionedTable& table, updates::KeyVersion kv, unsigned char* to) {
    std::map<std::string, StoredTensor> tensors;
    table.add_rows({kv}, false, tensors);
    const Weights weights = Weights::from_tensors(tensors);
    TableDelta delta;
    delta.rows = weights.find(table.name + ".rows");
    delta.scale = weights.find(table.name + ".scale");
    delta.offset = weights.find(table.name + ".offset");
    delta.copy_row(0, to, stored(table).rows.row_bytes());
  }
  static std::shared_ptr<MemoryStore> filled_store(std::vector<updates::VersionedTable>& tables) {
    auto store = std::make_shared<MemoryStore>();
    for (updates::VersionedTable& table : tables) {
      store->create(stored(table), soon());
      const RowChanges all = change(table, table.all(), {});
      std::vector<StoreStatus> statuses(all.keys.size());
      store->put(stored(table), all.keys, all.rows.data(), statuses.data(), soon());
    }
    return store;
  }
  static Weights default_rows(const std::vector<updates::VersionedTable>& tables) {
    std::map<std::string, StoredTensor> tensors;
    for (const updates::VersionedTable& table : tables)
      tensors[table.name + ".default"] = make_tensor<float>({table.dim}, table.default_row());
    return Weights::from_tensors(tensors);
  }
  static LoadOptions updatable() {
    LoadOptions options;
    options.updatable = true;
    options.spare = 1;
    return options;
  }
  static LoadOptions in(const std::shared_ptr<MemoryStore>& store) {
    LoadOptions options;
    TableInStore in_store;
    in_store.store = store;
    in_store.memory_bytes = int64_t{1} << 20;
    in_store.absent_for = std::chrono::milliseconds(20);
    options.stores = {{"*", in_store}};
    return options;
  }
};

}  // namespace warprank::test_support
