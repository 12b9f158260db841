// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/engine.hpp"

namespace warprank {

/// The embedding tables of a plan on one device; immutable, shared by copies and by every Model bound to them.
///
/// A direct table "film" is the tensor "film" [rows, dim]; a hashed table "user" is "user.keys" [n] I64 and "user.rows"
/// [n, dim], or its image as hash_table/file.hpp saves it. Rows may be F32, F16, BF16, or I8 with "<table>.scale" and
/// "<table>.offset" [rows] F32: row = scale * q + offset; those of hashed tables have at most 1024 bytes.
/// "<table>.default" [dim] is the row of ids that are not in the table; zeros unless given.
class Tables {
 public:
  /// Throws invalid_argument with everything that is missing, mis-shaped, damaged or not asked for.
  static Tables load(const Plan& plan, const Weights& weights, Device device) {
    return load(plan, weights, {}, device);
  }
  /// The hashed tables of `images` from there, all others from the weights.
  static Tables load(const Plan& plan, const Weights& weights, const HashTableFiles& images, Device device) {
    return Tables(device, device.engine->load_tables(plan, weights, images, device.index));
  }
  /// From a safetensors file, or from a folder: all *.safetensors files, and images named <table>.hash_table.
  static Tables load(const Plan& plan, const std::string& path, Device device) {
    if (!std::filesystem::is_directory(path)) return load(plan, Weights::open(path), device);
    std::vector<std::string> files;
    HashTableFiles images;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      const std::filesystem::path& file = entry.path();
      if (file.extension() == ".safetensors") files.push_back(file.string());
      if (file.extension() == ".hash_table")
        images.emplace(file.stem().string(), std::make_shared<const HashTableFile>(file.string()));
    }
    if (files.empty() && images.empty())
      throw invalid_argument(path, "a folder with *.safetensors or *.hash_table files", "none");
    std::sort(files.begin(), files.end());
    return load(plan, Weights::open_all(files), images, device);
  }

  Device device() const { return device_; }
  MemoryReport memory() const { return store_->memory(); }
  const std::shared_ptr<const TableStore>& store() const { return store_; }

 private:
  Tables(Device device, std::shared_ptr<const TableStore> store) : device_(device), store_(std::move(store)) {}

  Device device_;
  std::shared_ptr<const TableStore> store_;
};

}  // namespace warprank
