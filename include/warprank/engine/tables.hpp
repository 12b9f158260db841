// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "warprank/engine/engine.hpp"

namespace warprank { inline namespace v0 {

/// The embedding tables of a plan on one device, or on several; shared by copies and by every Model bound to them.
/// Immutable, unless they are loaded as updatable.
///
/// A direct table "film" is the tensor "film" [rows, dim]; a hashed table "user" is "user.keys" [n] I64 and "user.rows"
/// [n, dim], or its image as hash_table/file.hpp saves it. Rows may be F32, F16, BF16, or I8 with "<table>.scale" and
/// "<table>.offset" [rows] F32: row = scale * q + offset; rows of hashed tables have at most 1024 bytes. On a GPU scale
/// and offset are kept behind the row (ops/scaled_rows.hpp). A table of LoadOptions::stores has only the tensor of its
/// default row, and no image. "<table>.default" [dim] is the row of ids that are not in the table; zeros unless given.
/// WeightsOptions::names has other names of tensors.
class Tables {
 public:
  /// Throws invalid_argument with everything that is missing, mis-shaped, damaged or not needed.
  static Tables load(const Plan& plan, const Weights& weights, Device device, const LoadOptions& options = {}) {
    return load(plan, weights, {}, device, options);
  }
  /// Loads the hashed tables of `images` from these files, all others from the weights.
  static Tables load(const Plan& plan, const Weights& weights, const HashTableFiles& images, Device device,
                     const LoadOptions& options = {}) {
    return Tables(device, device.engine->load_tables(plan, weights, images, options, device.index), options);
  }
  /// From a safetensors file, or from a folder: all *.safetensors files, and images named <table>.hash_table.
  static Tables load(const Plan& plan, const std::string& path, Device device, const LoadOptions& options = {}) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) return load(plan, Weights::open(path), device, options);
    std::vector<std::string> files;
    HashTableFiles images;
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      const std::filesystem::path& file = entry->path();
      if (file.extension() == ".safetensors") files.push_back(file.string());
      if (file.extension() == ".hash_table")
        images.emplace(file.stem().string(), std::make_shared<const HashTableFile>(file.string()));
    }
    if (error) throw invalid_argument(path, "a readable folder", error.message());
    if (files.empty() && images.empty())
      throw invalid_argument(path, "a folder with *.safetensors or *.hash_table files", "none");
    std::sort(files.begin(), files.end());
    return load(plan, Weights::open_all(files), images, device, options);
  }

  /// Changes rows while models look them up. For each table that changes, `delta` has "<table>.keys" I64 [n] and
  /// "<table>.rows" [n, dim] of the table's row type, for I8 also "<table>.scale" and "<table>.offset" F32 [n]; and for
  /// hashed tables "<table>.erase" I64 [n], the keys whose rows are removed. Keys of a direct table are its row
  /// numbers. Of equal keys the last counts.
  ///
  /// Every look-up finds the old row or the new row, whole, and I8 rows with their own scale and offset; look-ups of
  /// one batch may find some old rows and some new rows. Batches that are submitted after update has returned find the
  /// new rows. It waits for batches in flight, so it takes longer than some of them. Several threads may call it at
  /// once; the calls take turns.
  ///
  /// Throws invalid_argument with all errors, and then has changed nothing: keys that are no row of a direct table,
  /// keys that are both written and erased, other types and shapes, tensors that no table reads, tables that are not
  /// updatable. The report has all results that are no errors. If a device fails meanwhile, throws cuda_error; some
  /// rows are then changed.
  UpdateReport update(const Weights& delta) { return store_->update(delta); }

  /// Like update, for changes that others have made: the store has the rows of its tables already, so they only replace
  /// rows in memory; these tables need not be updatable. store/change_follower.hpp calls it.
  UpdateReport refresh(const Weights& delta) { return store_->refresh(delta); }
  /// For a table of LoadOptions::stores: drops all its rows from memory, so that each is fetched anew. For others: does
  /// nothing.
  void forget_rows(const std::string& table) { store_->forget_rows(table); }

  /// The same tables, for models on another of their cards: LoadOptions::devices. An update of any of them updates all.
  /// Throws invalid_argument for a card that is none of these.
  Tables on(int index) const {
    const std::vector<int>& devices = options_.devices;
    if (index != device_.index && std::find(devices.begin(), devices.end(), index) == devices.end())
      throw invalid_argument("Tables::on", "one of LoadOptions::devices", std::to_string(index));
    const std::shared_ptr<TableStore> there = store_->on(index);
    return there == nullptr ? *this : Tables({device_.engine, index}, there, options_);
  }
  Device device() const { return device_; }
  /// The options with which they were loaded.
  const LoadOptions& options() const { return options_; }
  /// The memory on this device.
  MemoryReport memory() const { return store_->memory(); }
  /// A line for each table: its rows when it was loaded, and where they lie. Plan::describe cannot tell this, as tables
  /// of one plan may be loaded in several ways.
  std::string describe() const { return describe_tables(store_->placed()); }
  /// Counters of each table of placement `cached` on a GPU, as of the last pass. Throws the error of a pass of the
  /// tables' thread since the last call; the caches stay as they were, and the thread tries again.
  std::map<std::string, CacheCounters> cache_counters() const { return store_->cache_counters(); }
  /// Makes a pass over all caches now, and returns when rows that were missed often have come to the device. A thread
  /// of the tables also makes a pass every LoadOptions::cache_pass_seconds.
  void pass_over_caches() { store_->pass_over_caches(); }
  /// Counters of each table of LoadOptions::stores.
  std::map<std::string, StoreCounters> store_counters() const { return store_->store_counters(); }
  std::shared_ptr<const TableStore> store() const { return store_; }

 private:
  Tables(Device device, std::shared_ptr<TableStore> store, LoadOptions options)
      : device_(device), store_(std::move(store)), options_(std::move(options)) {}

  Device device_;
  std::shared_ptr<TableStore> store_;
  LoadOptions options_;
};

}}  // namespace warprank::v0
