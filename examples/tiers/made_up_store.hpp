// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A store that makes rows when they are asked for, in the place of a cluster that has them (store/redis_cluster.hpp).
/// They cannot be changed.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model.hpp"
#include "warprank/store/parameter_store.hpp"

namespace tiers {

class MadeUpStore final : public warprank::ParameterStore {
 public:
  explicit MadeUpStore(int64_t num_rows) : num_rows_(num_rows) {}

  std::optional<warprank::StoredRows> describe(const std::string&, warprank::Deadline) override {
    return warprank::StoredRows{warprank::DType::f16, dim};
  }
  void create(const warprank::StoredTable&, warprank::Deadline) override {}
  void get(const warprank::StoredTable&, warprank::Span<const int64_t> keys, unsigned char* rows,
           warprank::StoreStatus* statuses, warprank::Deadline) override {
    for (int64_t i = 0; i < keys.size(); ++i) {
      const bool is_there = keys[i] >= 0 && keys[i] < num_rows_;
      statuses[i] = is_there ? warprank::StoreStatus::ok : warprank::StoreStatus::absent;
      if (is_there) make_row(keys[i], rows + i * row_bytes);
    }
  }
  void put(const warprank::StoredTable&, warprank::Span<const int64_t> keys, const unsigned char*,
           warprank::StoreStatus* statuses, warprank::Deadline) override {
    std::fill_n(statuses, keys.size(), warprank::StoreStatus::failed);
  }
  void erase(const warprank::StoredTable&, warprank::Span<const int64_t> keys, warprank::StoreStatus* statuses,
             warprank::Deadline) override {
    std::fill_n(statuses, keys.size(), warprank::StoreStatus::failed);
  }

  std::unique_ptr<warprank::ChangePublisher> publish_changes(const warprank::StoredTable&) override { throw fixed(); }
  std::unique_ptr<warprank::ChangeReader> read_changes(std::vector<warprank::FollowedTable>) override { throw fixed(); }
  std::string end_of_changes(const std::string&, warprank::Deadline) override { throw fixed(); }

 private:
  static warprank::store_error fixed() { return {"changes", "a store whose rows can change", "rows that are made up"}; }

  int64_t num_rows_;
};

}  // namespace tiers
