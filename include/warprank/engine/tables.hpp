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
/// [n, dim]. Rows may be F32, F16, BF16, or I8 with "<table>.scale" and "<table>.offset" [rows] F32:
/// row = scale * q + offset. "<table>.default" [dim] is the row of ids that are not in the table; zeros unless given.
class Tables {
 public:
  /// Throws invalid_argument with everything that is missing, mis-shaped or not asked for.
  static Tables load(const Plan& plan, const Weights& weights, Device device) {
    return Tables(device, device.engine->load_tables(plan, weights, device.index));
  }
  /// From a safetensors file, or from all *.safetensors files of a folder.
  static Tables load(const Plan& plan, const std::string& path, Device device) {
    return load(plan, Weights::open_all(files_of(path)), device);
  }

  Device device() const { return device_; }
  MemoryReport memory() const { return store_->memory(); }
  const std::shared_ptr<const TableStore>& store() const { return store_; }

 private:
  Tables(Device device, std::shared_ptr<const TableStore> store) : device_(device), store_(std::move(store)) {}

  static std::vector<std::string> files_of(const std::string& path) {
    if (!std::filesystem::is_directory(path)) return {path};
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
    if (files.empty()) throw invalid_argument(path, "a folder with *.safetensors files", "none");
    std::sort(files.begin(), files.end());
    return files;
  }

  Device device_;
  std::shared_ptr<const TableStore> store_;
};

}  // namespace warprank
