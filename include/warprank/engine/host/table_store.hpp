// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine's tables: rows copied into huge pages, those of hashed tables beside their keys. Scales and offsets
/// of I8 rows of direct tables are arrays: rows of 128 bytes are then whole lines of the cache, and look-ups of
/// FBGEMM's nbit_device took 14.0 ns for each id on an AMD EPYC, with scales behind the rows 15.6.
///
/// Rows of updatable tables are changed in place, a few at a time, by somebody who has the tables alone meanwhile;
/// steps that look rows up share them. So are rows in memory of tables that lie in a store.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/pages.hpp"
#include "warprank/core/phase_fair_mutex.hpp"
#include "warprank/core/text.hpp"
#include "warprank/engine/change_stored.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/host/cached_rows.hpp"
#include "warprank/engine/row_source.hpp"
#include "warprank/engine/table_delta.hpp"
#include "warprank/engine/table_source.hpp"
#include "warprank/hash_table/change.hpp"
#include "warprank/hash_table/detail/parallel.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// Rows of a direct table: 2 MB and more in pages, which a pool may have.
class HostRows {
 public:
  HostRows() = default;
  HostRows(int64_t bytes, const std::shared_ptr<PagePool>& pool) : is_large_(bytes >= int64_t{2} << 20) {
    if (is_large_)
      large_ = Pages(bytes, pool);
    else
      small_ = Buffer<unsigned char>(bytes);
  }
  unsigned char* data() { return is_large_ ? large_.data() : small_.data(); }
  int64_t bytes() const { return is_large_ ? large_.size() : small_.bytes(); }

 private:
  bool is_large_ = false;
  Pages large_;
  Buffer<unsigned char> small_;
};

struct HostTable {
  PlacedTable placed;                  ///< but for where
  TableView view;                      ///< of a hashed table, or one in a store, all but the rows
  bool has_keys = false;               ///< ids are keys of any value, not numbers of rows
  std::optional<HashTable> hashed;     ///< has the rows
  std::unique_ptr<CachedRows> cached;  ///< has some of the rows, the store all
  std::unique_ptr<RowTier> tier;       ///< of these
  HostRows rows;
  Buffer<float> scale, offset, default_row;

  bool is_hashed() const { return has_keys; }
  /// Rows that lie beside their ids; null: they lie one after the other.
  const HashTableView* keyed_rows() const { return hashed ? &hashed->view() : cached ? &cached->view() : nullptr; }
  int64_t bytes() const {
    return (hashed   ? hashed->bytes()
            : cached ? cached->bytes()
                     : 0) +
           rows.bytes() + scale.bytes() + offset.bytes() + default_row.bytes();
  }
};

class HostTableStore : public TableStore {
 public:
  /// Throws as find_tables does.
  HostTableStore(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                 const LoadOptions& options = {})
      : is_updatable_(options.updatable), locks_(options.updatable || !options.stores.empty()) {
    Pace pace(options.most_bytes_per_second);
    for (TableSource& source : find_tables(plan, weights, images, Images::read, options, pace))
      add(std::move(source), pace, options.pages);
  }

  /// What loading them would take, but for memory that a build gives back; nothing is built or allocated. Throws as
  /// find_tables does.
  static MemoryReport needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                            const LoadOptions& options) {
    MemoryReport report;
    Pace pace(options.most_bytes_per_second);
    for (const TableSource& source : find_tables(plan, weights, images, Images::check, options, pace)) {
      int64_t bytes = source.in_store ? source.in_store->memory_bytes() : source.info.hashed ? source.image_bytes() : 0;
      for (const TensorView* tensor : {source.rows, source.scale, source.offset, source.default_row})
        if (tensor != nullptr) bytes += tensor->bytes;
      report.emplace_back("table " + source.info.name, bytes);
    }
    return report;
  }

  /// Null for a table that was not loaded.
  const HostTable* find(const std::string& name) const {
    const auto it = tables_.find(name);
    return it == tables_.end() ? nullptr : &it->second;
  }

  /// Held while rows are looked up.
  std::shared_lock<PhaseFairMutex> read() const {
    return locks_ ? std::shared_lock<PhaseFairMutex>(rows_) : std::shared_lock<PhaseFairMutex>();
  }

  UpdateReport update(const Weights& delta) override {
    if (!is_updatable_) throw not_updatable();
    return change(delta, false);
  }
  UpdateReport refresh(const Weights& delta) override { return change(delta, true); }
  void forget_rows(const std::string& name) override {
    const auto it = tables_.find(name);
    if (it != tables_.end() && it->second.tier) it->second.tier->forget();
  }

  MemoryReport memory() const override {
    MemoryReport report;
    for (const auto& [name, table] : tables_) report.emplace_back("table " + name, table.bytes());
    return report;
  }
  std::vector<PlacedTable> placed() const override {
    std::vector<PlacedTable> all;
    for (const auto& [name, table] : tables_) {
      const std::string bytes = warprank::detail::bytes_text(table.bytes());
      all.push_back(table.placed);
      all.back().where = table.tier ? "a store; in memory those that are asked for most, " + bytes : "memory, " + bytes;
    }
    return all;
  }
  std::map<std::string, StoreCounters> store_counters() const override {
    std::map<std::string, StoreCounters> counters;
    for (const auto& [name, table] : tables_)
      if (table.tier) counters[name] = table.tier->counters();
    return counters;
  }

 private:
  /// By all cores; where the pace is limited, by this thread, with pauses.
  static void copy(void* to, const TensorView* tensor, Pace& pace) {
    if (tensor == nullptr) return;
    const int64_t piece = int64_t{pace.is_limited() ? 1 : 4} << 20;
    const int threads = pace.is_limited() ? 1 : warprank::detail::threads_for(0);
    warprank::detail::parallel_for((tensor->bytes + piece - 1) / piece, threads, [&](int64_t i) {
      const int64_t at = i * piece, bytes = std::min(piece, tensor->bytes - at);
      std::memcpy(static_cast<std::byte*>(to) + at, tensor->data + at, static_cast<size_t>(bytes));
      pace.moved(bytes);
    });
  }
  /// No tensor is no value.
  static Buffer<float> floats(const TensorView* tensor, Pace& pace) {
    Buffer<float> buffer(tensor == nullptr ? 0 : tensor->bytes / static_cast<int64_t>(sizeof(float)));
    copy(buffer.data(), tensor, pace);
    return buffer;
  }

  void add(TableSource source, Pace& pace, const std::shared_ptr<PagePool>& pages) {
    HostTable& table = tables_[source.info.name];
    table.placed = source.placed();
    table.hashed = std::move(source.hashed);
    if (source.rows != nullptr) table.rows = HostRows(source.rows->bytes, pages);
    copy(table.rows.data(), source.rows, pace);
    table.scale = floats(source.scale, pace);
    table.offset = floats(source.offset, pace);
    table.default_row = floats(source.default_row, pace);
    table.view.type = source.type;
    table.view.dim = source.info.dim;
    table.view.default_row = table.default_row.data();
    table.has_keys = source.info.hashed;
    if (source.in_store) {
      table.view.num_rows = source.info.rows > 0 ? source.info.rows : std::numeric_limits<int64_t>::max();
      const StoredTable stored{source.info.name, {source.type, source.info.dim}};
      const RowSource& from = *source.in_store;
      table.cached = std::make_unique<CachedRows>(stored.rows, from.memory_bytes(), from.waits(), rows_, pages);
      table.tier = from.make_tier(stored, table.has_keys ? 0 : table.view.num_rows, *table.cached, Fetching::by_itself);
      return;
    }
    if (table.has_keys) return;
    table.view.rows = table.rows.data();
    table.view.num_rows = source.rows->shape[0];
    table.view.row_stride_bytes = table.view.row_bytes();
    table.view.scale = table.scale.data();
    table.view.offset = table.offset.data();
  }

  UpdateReport change(const Weights& delta, bool stores_have_it) {
    const std::lock_guard<std::mutex> alone(updating_);
    const std::vector<TableDelta> found = find_deltas(delta, tables_);
    for (const TableDelta& changed : found)
      if (!is_updatable_ && !tables_.at(changed.table).tier) throw not_updatable();
    UpdateReport report;
    for (const TableDelta& changed : found) {
      TableChanges& changes = report[changed.table];
      if (RowTier* tier = tables_.at(changed.table).tier.get()) {
        change_stored(*tier, tables_.at(changed.table).cached->row_bytes(), changed, stores_have_it, changes);
        continue;
      }
      change(tables_.at(changed.table), changed, changed.erased, changes);  // first: it makes room
      change(tables_.at(changed.table), changed, changed.written, changes);
    }
    return report;
  }
  void change(HostTable& table, const TableDelta& delta, Span<const RowChange> all, TableChanges& changes) {
    constexpr int64_t few = 64;  // some microseconds
    for (int64_t begin = 0; begin < all.size(); begin += few) {
      const std::lock_guard<PhaseFairMutex> alone(rows_);
      for (const RowChange& one : all.subspan(begin, std::min(few, all.size() - begin)))
        count(changes,
              table.is_hashed() ? change_hashed(table.hashed->view(), delta, one) : change_direct(table, delta, one));
    }
  }
  static hash_table::Status change_hashed(const HashTableView& table, const TableDelta& delta, const RowChange& one) {
    if (one.row < 0) return hash_table::erase(table, one.key);
    unsigned char row[hash_table::max_row_bytes];
    delta.copy_row(one.row, row, table.row_bytes);
    return hash_table::insert_or_assign(table, one.key, row);
  }
  static hash_table::Status change_direct(HostTable& table, const TableDelta& delta, const RowChange& one) {
    const int64_t bytes = table.view.row_bytes();
    std::memcpy(table.rows.data() + one.key * bytes, delta.rows->data + one.row * bytes, static_cast<size_t>(bytes));
    if (delta.scale != nullptr) {
      table.scale[one.key] = load_element<float>(delta.scale->data, one.row);
      table.offset[one.key] = load_element<float>(delta.offset->data, one.row);
    }
    return hash_table::Status::updated;
  }

  const bool is_updatable_, locks_;
  std::mutex updating_;                      ///< one update at a time
  mutable PhaseFairMutex rows_;              ///< of all tables
  std::map<std::string, HostTable> tables_;  ///< ends first: tables in stores have threads that use the mutex
};

}}}  // namespace warprank::v0::host_backend
