// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A GPU's tables: rows as the files have them, but those of I8 with their scales and offsets behind them, and hashed
/// tables as their images. Those that are placed on the host (engine/placement.hpp) are the same in mapped memory of
/// the host, where kernels read and write them, or in memory of several devices (device/sharded_memory.hpp), where
/// kernels of each do; their default rows are on the device.
///
/// Where several devices share tables, each has a store: the first has loaded what all read, and writes it.
///
/// Of tables in stores outside (LoadOptions::stores) some rows are in mapped memory, and some of these on the device.
///
/// Tables that are not updatable are only read. For the others table_updates.cuh tells how batches and updates go side
/// by side.

#include <algorithm>
#include <cstdint>
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

#include "warprank/core/error.hpp"
#include "warprank/core/on_cuda.hpp"
#include "warprank/core/repeating_thread.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/find_device.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/device/sharded_memory.hpp"
#include "warprank/engine/change_stored.hpp"
#include "warprank/engine/cuda/memory_needs.cuh"
#include "warprank/engine/cuda/rows_before_store.cuh"
#include "warprank/engine/cuda/table_cache.cuh"
#include "warprank/engine/cuda/table_loader.cuh"
#include "warprank/engine/cuda/table_parts.cuh"
#include "warprank/engine/cuda/table_updates.cuh"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/row_source.hpp"
#include "warprank/engine/table_source.hpp"
#include "warprank/hash_table/find.hpp"
#include "warprank/hash_table/image.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/ops/scaled_rows.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// The rows of a table on the host, between updates.
struct RowsOnHost {
  const CudaTable& table;

  /// Null for a key that has none.
  const unsigned char* operator()(int64_t key) const {
    if (table.hashed) return find_row(*table.hashed, key);
    return key < 0 || key >= table.view.num_rows ? nullptr : table.view.row(key);
  }
};

class CudaTableStore : public TableStore {
 public:
  /// Loads the tables of a plan to a device; returns when they are there. The host has no copy of tensors and images in
  /// files meanwhile; tables of keys and rows are built in its memory. Throws as find_tables does, and
  /// out_of_device_memory, with what each table needs, before anything is allocated. LoadOptions::devices has no other.
  CudaTableStore(const Plan& plan, const Weights& weights, const HashTableFiles& images, int device_index,
                 const LoadOptions& options = {})
      : CudaTableStore(device_index, options, std::make_shared<BatchOrder>()) {
    load_all({this}, plan, weights, images, options);
  }
  /// The same on all of LoadOptions::devices; returns the store of that one. Whoever holds one holds all.
  static std::shared_ptr<CudaTableStore> load(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                              int device_index, const LoadOptions& options) {
    const auto stores = std::make_shared<Stores>();
    const auto order = std::make_shared<BatchOrder>();
    std::vector<CudaTableStore*> all;
    for (const int device : TableDevices(device_index, options).all) {
      stores->push_back(std::unique_ptr<CudaTableStore>(new CudaTableStore(device, options, order)));
      stores->back()->stores_ = stores;
      all.push_back(stores->back().get());
    }
    load_all(all, plan, weights, images, options);
    return of_device(stores, device_index);
  }

  /// What loading them would take; nothing is built or allocated. Throws as find_tables does.
  static MemoryReport needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                            const LoadOptions& options) {
    Pace pace(options.most_bytes_per_second);
    const std::vector<TableSource> sources = find_sources(plan, weights, images, Images::check, options, pace);
    TableDevices devices(options.devices.empty() ? 0 : options.devices.front(), options);
    if (!options.devices.empty()) devices.find_out(sources);
    MemoryReport report;
    for (const TableSource& source : sources) TableParts(source, devices).add_to(report, source.info.name);
    if (rows_change(sources, options)) report.emplace_back("updates of tables", chunk_bytes(sources));
    return report;
  }

  /// Null for a table that was not loaded.
  const CudaTable* find(const std::string& name) const {
    const auto it = tables_.find(name);
    return it == tables_.end() ? nullptr : &it->second;
  }

  /// Held from before a batch's first launch in `stream` until the event of its CudaTableReader is recorded.
  std::shared_lock<PhaseFairMutex> read(device::Stream stream) const {
    return updates_ == nullptr ? std::shared_lock<PhaseFairMutex>() : order_->read(stream);
  }
  /// Of the stores of all devices.
  const std::shared_ptr<BatchOrder>& order() const { return order_; }
  /// Null unless rows of some of them change: they are updatable, or have caches.
  TableUpdates* updates() const { return updates_.get(); }

  UpdateReport update(const Weights& delta) override {
    if (!is_updatable_) throw not_updatable();
    return change_all(delta, false);
  }
  UpdateReport refresh(const Weights& delta) override { return change_all(delta, true); }
  void forget_rows(const std::string& name) override {
    const auto it = tables_.find(name);
    if (it != tables_.end() && it->second.tier) it->second.tier->forget();
  }
  std::shared_ptr<TableStore> on(int index) override { return of_device(std::shared_ptr<Stores>(stores_), index); }

  /// From now on passes over caches are made by themselves, with so long a pause between; 0: they are not. An executor
  /// has one thread, which makes them.
  void start_passes(double pause_seconds) {
#if defined(WARPRANK_ON_CUDA)
    if (pass_memory_ && pause_seconds > 0)
      passes_ = std::make_unique<warprank::detail::RepeatingThread>([this] { pass_over_caches(); }, pause_seconds);
#else
    (void)pause_seconds;
#endif
  }
  void pass_over_caches() override {
    if (!pass_memory_) return;
    for (const auto& [name, table] : tables_) {
      if (!table.cache) continue;
      const TableCache::Absent absent = pass_over_cache(table);
      if (!table.tier) continue;
      table.tier->were_dropped(absent.dropped);
      if (!absent.keys.empty()) table.tier->want(absent.keys);
      table.tier->fetch_wanted();
    }
  }
  std::map<std::string, CacheCounters> cache_counters() const override {
    if (passes_) passes_->rethrow();
    const std::lock_guard<std::mutex> alone(order_->updating);
    std::map<std::string, CacheCounters> counters;
    for (const auto& [name, table] : tables_)
      if (table.cache) counters[name] = table.cache->counters();
    return counters;
  }

  std::map<std::string, StoreCounters> store_counters() const override {
    if (passes_) passes_->rethrow();
    std::map<std::string, StoreCounters> counters;
    for (const auto& [name, table] : tables_) {
      if (!table.tier) continue;
      StoreCounters& one = counters[name] = table.tier->counters();
      const std::lock_guard<std::mutex> alone(order_->updating);
      one.hits += table.cache->counters().hits + table.cache->counters().misses;
      one.misses += table.cache->num_absent();
    }
    return counters;
  }

  MemoryReport memory() const override {
    MemoryReport report;
    for (const auto& [name, table] : tables_) {
      report.emplace_back("table " + name, bytes_here(table));
      if (table.on_host.bytes() > 0) report.emplace_back("pinned table " + name, table.on_host.bytes());
    }
    if (updates_ != nullptr) report.emplace_back("updates of tables", updates_->device_bytes());
    return report;
  }
  std::vector<PlacedTable> placed() const override {
    std::vector<PlacedTable> all;
    for (const auto& [name, table] : tables_) {
      all.push_back(table.placed);
      all.back().where = table.where(bytes_here(table));
    }
    return all;
  }

 private:
  using Stores = std::vector<std::unique_ptr<CudaTableStore>>;  // of all devices, the first first

  static std::shared_ptr<CudaTableStore> of_device(const std::shared_ptr<Stores>& stores, int index) {
    const auto found = std::find_if(stores->begin(), stores->end(),
                                    [index](const auto& store) { return store->devices_.index == index; });
    return {stores, found->get()};
  }

  /// Without tables.
  CudaTableStore(int device_index, const LoadOptions& options, std::shared_ptr<BatchOrder> order)
      : devices_(device_index, options), is_updatable_(options.updatable), order_(std::move(order)) {}

  static void load_all(const std::vector<CudaTableStore*>& stores, const Plan& plan, const Weights& weights,
                       const HashTableFiles& images, const LoadOptions& options) {
    Pace pace(options.most_bytes_per_second);
    std::vector<TableSource> sources = find_sources(plan, weights, images, Images::map, options, pace);
    for (CudaTableStore* store : stores) {
      store->devices_.find_out(sources);  // once for all models: they have tables, if none of their own
      store->check_memory(sources, options);
    }
    for (CudaTableStore* store : stores) store->prepare(sources, options);
    for (TableSource& source : sources) {
      const CudaTable* loaded = nullptr;
      for (CudaTableStore* store : stores) loaded = &store->load(source, loaded, pace);
      source.hashed.reset();  // frees what was built
    }
  }
  void prepare(const std::vector<TableSource>& sources, const LoadOptions& options) {
    const device::DeviceGuard current(devices_.index);
    if (rows_change(sources, options)) updates_ = std::make_unique<TableUpdates>(chunk_bytes(sources), order_);
    if (have_caches(sources)) pass_memory_.emplace();
  }

  /// Tables::update, and of tables in stores Tables::refresh.
  UpdateReport change_all(const Weights& delta, bool stores_have_it) {
    UpdateReport report;
    if (has_stored()) {
      report = change_those_in_stores(delta, stores_have_it);
    } else if (!is_updatable_) {
      throw not_updatable();
    }
    const std::lock_guard<std::mutex> alone(order_->updating);
    const std::shared_ptr<Stores> stores = stores_.lock();
    if (stores == nullptr) {
      change(delta, false, report);
      return report;
    }
    stores->front()->change(delta, false, report);
    for (const auto& store : *stores) {
      UpdateReport again;
      if (store != stores->front()) store->change(delta, true, again);
    }
    return report;
  }
  bool has_stored() const {
    return std::any_of(tables_.begin(), tables_.end(), [](const auto& one) { return one.second.tier != nullptr; });
  }
  /// Without batches, other updates or passes waiting for a store. Throws for all that is wrong with the delta.
  UpdateReport change_those_in_stores(const Weights& delta, bool stores_have_it) {
    const std::lock_guard<std::mutex> alone(changing_stored_);
    const std::vector<TableDelta> found = find_deltas(delta, tables_);
    for (const TableDelta& changed : found)
      if (!is_updatable_ && !tables_.at(changed.table).tier) throw not_updatable();
    UpdateReport report;
    for (const TableDelta& changed : found)
      if (RowTier* tier = tables_.at(changed.table).tier.get())
        change_stored(*tier, tables_.at(changed.table).hashed->row_bytes, changed, stores_have_it,
                      report[changed.table]);
    return report;
  }
  /// All others, on this device. `but_shared`: those that all devices read are changed already.
  void change(const Weights& delta, bool but_shared, UpdateReport& report) {
    const device::DeviceGuard current(devices_.index);
    for (TableDelta& changed : find_deltas(delta, tables_)) {
      const CudaTable& table = tables_.at(changed.table);
      if (table.tier) continue;
      TableChanges& changes = report[changed.table];
      if (but_shared && table.is_shared()) continue;
      if (table.hashed) {
        const auto copy_row = [&](const RowChange& change, unsigned char* to) {
          changed.copy_row(change.row, to, table.hashed->row_bytes);
        };
        const Readers readers = table.is_shared() && devices_.all.size() > 1 ? Readers::none : Readers::beside;
        updates_->change(*table.hashed, copy_row, changed.erased, changes, readers);  // first: it makes room
        updates_->change(*table.hashed, copy_row, changed.written, changes, readers);
      } else {
        const int64_t bytes = table.cache ? table.cache->rows().row_bytes : table.view.row_stride_bytes;
        updates_->write(
            table.view, [&](const RowChange& change, unsigned char* to) { changed.copy_row(change.row, to, bytes); },
            changed.written);
        changes.updated += static_cast<int64_t>(changed.written.size());
      }
      if (!table.cache) continue;
      table.cache->follow_erased(*updates_, changed.erased);
      table.cache->follow_written(*updates_, changed.written, RowsOnHost{table});
    }
  }

  TableCache::Absent pass_over_cache(const CudaTable& table) {
    const std::lock_guard<std::mutex> alone(order_->updating);
    const device::DeviceGuard current(devices_.index);
    return table.cache->pass(*updates_, *pass_memory_, RowsOnHost{table});
  }

  int64_t bytes_here(const CudaTable& table) const {
    return table.memory.bytes() + table.sharded.bytes_on(devices_.place());
  }

  static bool have_caches(const std::vector<TableSource>& sources) {
    return std::any_of(sources.begin(), sources.end(),
                       [](const TableSource& source) { return source.placement.where == Placement::cached; });
  }
  static bool rows_change(const std::vector<TableSource>& sources, const LoadOptions& options) {
    return options.updatable || have_caches(sources);
  }

  /// find_tables, and what a GPU has besides: tables in stores have caches.
  static std::vector<TableSource> find_sources(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                               Images use, const LoadOptions& options, Pace& pace) {
    std::vector<TableSource> sources = find_tables(plan, weights, images, use, options, pace);
    Problems problems;
    for (TableSource& source : sources) {
      check_row(source, options.updatable, problems);
      if (!source.in_store) continue;
      if (options.devices.size() > 1)
        problems.add("table '" + source.info.name + "'", "one of LoadOptions::devices, as it is in a store",
                     std::to_string(options.devices.size()));
      if (source.placement.where != Placement::cached)
        source.placement = {Placement::cached, least_cache_bytes(source.type, source.info.dim)};
    }
    problems.throw_if_any();
    return sources;
  }
  /// A look-up goes over longer rows that it finds by a hash several times, and finds them anew each time, so it could
  /// see two versions.
  static void check_row(const TableSource& source, bool is_updatable, Problems& problems) {
    const int64_t most = source.type == DType::f32 ? 128 : 256;
    const bool is_found_by_hash = source.info.hashed || source.placement.where == Placement::cached;
    if (source.info.dim <= most || !(source.in_store || (is_updatable && is_found_by_hash))) return;
    problems.add("table '" + source.info.name + "'",
                 "at most " + std::to_string(most) + " columns of " + name_of(source.type) + ", as it is " +
                     (source.in_store      ? "in a store"
                      : source.info.hashed ? "hashed and updatable"
                                           : "cached and updatable") +
                     " on a GPU",
                 std::to_string(source.info.dim));
  }
  void check_memory(const std::vector<TableSource>& sources, const LoadOptions& options) const {
    MemoryNeeds needs;
    for (const TableSource& source : sources) {
      const TableParts parts(source, devices_);
      needs.add(source.info.name, parts.device_bytes + parts.share_bytes);
    }
    if (rows_change(sources, options)) needs.add("updates", chunk_bytes(sources));
    needs.check("tables", devices_.index);
  }
  static int64_t chunk_bytes(const std::vector<TableSource>& sources) {
    int64_t bytes = 0;
    for (const TableSource& source : sources) {
      const KeptRows kept(source);  // rows of a cache are written one behind the other
      bytes = std::max({bytes, ChunkLayout(kept.stride).bytes, ChunkLayout(kept.bytes).bytes});
    }
    return bytes;
  }

  /// Of rows that were written so.
  static TableView view_as_hashed(const TableSource& source, const unsigned char* rows) {
    const KeptRows kept(source);
    TableView view{source.type, rows, source.rows->shape[0], source.info.dim, kept.stride};
    if (source.type != DType::i8 || rows == nullptr) return view;
    view.scale = reinterpret_cast<const float*>(rows + kept.bytes - 8);
    view.offset = view.scale + 1;
    view.scale_stride_bytes = kept.stride;
    return view;
  }

  /// `other` is that of another device, which has loaded what all read; null: none has.
  const CudaTable& load(const TableSource& source, const CudaTable* other, Pace& pace) {
    const device::DeviceGuard current(devices_.index);
    const device::OwnedStream stream;
    const TableParts parts(source, devices_);
    const std::string what = "table '" + source.info.name + "'";
    CudaTable table;
    table.placed = source.placed();
    table.memory = device::DeviceMemory(parts.device_bytes, what);
    const bool is_there = other != nullptr && other->is_shared();
    table.on_host = is_there ? other->on_host : device::MappedMemory(parts.host_bytes, what);
    table.sharded = is_there ? other->sharded : device::ShardedMemory(parts.sharded_bytes, devices_.all, what);
    auto* const memory = static_cast<unsigned char*>(table.memory.data());
    auto* const rows = parts.host_bytes > 0      ? static_cast<unsigned char*>(table.on_host.data())
                       : parts.sharded_bytes > 0 ? static_cast<unsigned char*>(table.sharded.data())
                                                 : memory;
    TableLoader loader(table, pace, stream.get());
    if (!is_there) loader.write_all_rows(source);
    if (source.in_store) {
      table.view.type = source.type;
      table.view.dim = source.info.dim;
      table.view.num_rows = source.info.rows > 0 ? source.info.rows : std::numeric_limits<int64_t>::max();
    } else if (source.rows == nullptr) {
      table.view.type = source.type;
      table.view.dim = source.info.dim;
      const Span<const unsigned char> image = source.image();
      HashTableHeader header;
      std::memcpy(&header, image.data(), sizeof header);
      table.hashed = view_hash_table(header, rows);
    } else {
      auto* const first = kept_bytes(source) == 0 ? nullptr : rows;
      const int64_t num_rows = source.rows->shape[0];
      if (parts.cache_at >= 0) {
        table.view = view_as_hashed(source, first);
      } else if (source.type == DType::i8) {
        table.view = view_scaled_rows(first, num_rows, source.info.dim);
      } else {
        table.view = {source.type, first, num_rows, source.info.dim, KeptRows(source).stride};
      }
    }
    if (source.default_row != nullptr) {
      loader.write(parts.default_row_at, source.default_row->data, source.default_row->bytes);
      table.view.default_row = reinterpret_cast<const float*>(memory + parts.default_row_at);
    }
    if (parts.cache_at >= 0)
      table.cache =
          std::make_unique<TableCache>(source.type, source.info.dim, cache_layout(source), memory + parts.cache_at,
                                       stream.get(), source.in_store ? stored_rows_layout(source).num_places() : 0);
    loader.finish();
    if (source.in_store) put_before_store(table, source, rows);
    return tables_.emplace(source.info.name, std::move(table)).first->second;
  }

  void put_before_store(CudaTable& table, const TableSource& source, unsigned char* rows) {
    const StoredTable stored{source.info.name, {source.type, source.info.dim}};
    table.before_store = std::make_unique<RowsBeforeStore>(stored.rows, stored_rows_layout(source), rows, *table.cache,
                                                           *updates_, order_->updating, devices_.index);
    table.hashed = table.before_store->view();
    table.tier =
        source.in_store->make_tier(stored, source.info.hashed ? 0 : table.view.num_rows, *table.before_store, fetching);
  }

#if defined(WARPRANK_ON_CUDA)
  static constexpr Fetching fetching = Fetching::by_itself;
#else
  static constexpr Fetching fetching = Fetching::when_called;  // an executor has one thread
#endif

  TableDevices devices_;
  const bool is_updatable_;
  const std::shared_ptr<BatchOrder> order_;
  std::weak_ptr<Stores> stores_;
  std::mutex changing_stored_;  // one update of tables in stores at a time
  std::unique_ptr<TableUpdates> updates_;
  std::map<std::string, CudaTable> tables_;  // ends first: tables in stores have threads that change them
  std::optional<PassMemory> pass_memory_;    // where there are caches
  std::unique_ptr<warprank::detail::RepeatingThread> passes_;
};

/// Somebody who looks rows up, and records `done` behind each batch. Copies are the same one; the last ends it.
class CudaTableReader {
 public:
  CudaTableReader(std::shared_ptr<const CudaTableStore> tables, const device::Event& done)
      : tables_(std::move(tables)) {
    if (tables_->updates() == nullptr) return;
    const std::shared_ptr<BatchOrder>& order = tables_->order();
    registered_.reset(order.get(), [keep = order, reader = order->add_reader(done)](BatchOrder* from) {
      from->remove_reader(reader);
    });
  }

  /// CudaTableStore::read.
  std::shared_lock<PhaseFairMutex> read(device::Stream stream) const { return tables_->read(stream); }

 private:
  std::shared_ptr<const CudaTableStore> tables_;
  std::shared_ptr<BatchOrder> registered_;  // null for tables that are not updatable
};

}}}  // namespace warprank::v0::cuda_backend
