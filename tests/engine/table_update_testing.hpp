// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables whose rows have versions, for tests that change them: what a row should be follows from key and version.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/engine.hpp"
#include "warprank/model.hpp"

namespace warprank::table_update_testing {

using Row = std::vector<float>;

inline uint64_t mix(uint64_t a, uint64_t b) { return hash_table::fmix64(a * 0x9e3779b97f4a7c15u + b); }

/// A key with its row of a version.
struct KeyVersion {
  int64_t key, version;
};

struct VersionedTable {
  std::string name;
  DType type = DType::f32;
  int64_t dim = 0;
  bool is_hashed = false;
  bool is_uniform = false;                   ///< all elements are the version, which is at most 2048
  std::map<int64_t, int64_t> versions = {};  ///< of the keys that it should have

  /// As stored: a whole number that every row type has exactly.
  int element(KeyVersion kv, int64_t column) const {
    if (is_uniform) return static_cast<int>(type == DType::i8 ? kv.version % 128 : kv.version);
    const uint64_t row = mix(static_cast<uint64_t>(kv.key), static_cast<uint64_t>(kv.version));
    return static_cast<int>(mix(row, static_cast<uint64_t>(column)) % 201) - 100;
  }
  float scale(KeyVersion kv) const {
    if (is_uniform) return static_cast<float>(kv.version);
    return 1 + static_cast<float>(mix(static_cast<uint64_t>(kv.version), 1) % 16);
  }
  float offset(KeyVersion kv) const {
    if (is_uniform) return static_cast<float>(kv.version * (1 - kv.version % 128));
    return static_cast<float>(mix(static_cast<uint64_t>(kv.version), 2) % 1024);
  }
  /// As look-ups should give it.
  Row row(KeyVersion kv) const {
    Row row;
    for (int64_t c = 0; c < dim; ++c) {
      const auto q = static_cast<float>(element(kv, c));
      row.push_back(type == DType::i8 ? scale(kv) * q + offset(kv) : q);
    }
    return row;
  }
  Row default_row() const { return Row(static_cast<size_t>(dim), 0.5f); }
  Row expected(int64_t key) const {
    const auto found = versions.find(key);
    return found == versions.end() ? default_row() : row({key, found->second});
  }

  std::vector<KeyVersion> all() const {
    std::vector<KeyVersion> list;
    for (const auto& [key, version] : versions) list.push_back({key, version});
    return list;
  }

  /// Adds the tensors of rows, named as in an update, or as a direct table is loaded.
  void add_rows(const std::vector<KeyVersion>& list, bool to_load, std::map<std::string, StoredTensor>& tensors) const {
    const auto count = static_cast<int64_t>(list.size());
    std::vector<int64_t> keys;
    std::vector<float> scales, offsets;
    std::vector<std::byte> bytes;
    for (const KeyVersion& kv : list) {
      keys.push_back(kv.key);
      scales.push_back(scale(kv));
      offsets.push_back(offset(kv));
      for (int64_t c = 0; c < dim; ++c) {
        const int q = element(kv, c);
        const auto append = [&](auto value) {
          const auto* begin = reinterpret_cast<const std::byte*>(&value);
          bytes.insert(bytes.end(), begin, begin + sizeof value);
        };
        if (type == DType::f32) append(static_cast<float>(q));
        if (type == DType::f16) append(to_float16(static_cast<float>(q)));
        if (type == DType::bf16) append(to_bfloat16(static_cast<float>(q)));
        if (type == DType::i8) append(static_cast<int8_t>(q));
      }
    }
    const bool has_keys = is_hashed || !to_load;
    tensors[has_keys ? name + ".rows" : name] = StoredTensor{type, {count, dim}, bytes};
    if (has_keys) tensors[name + ".keys"] = make_tensor<int64_t>({count}, keys);
    if (type != DType::i8) return;
    tensors[name + ".scale"] = make_tensor<float>({count}, scales);
    tensors[name + ".offset"] = make_tensor<float>({count}, offsets);
  }
};

inline VersionedTable versioned_table(std::string name, DType type, int64_t dim, bool is_hashed,
                                      const std::vector<int64_t>& keys) {
  VersionedTable table{std::move(name), type, dim, is_hashed};
  for (const int64_t key : keys) table.versions[key] = 0;
  return table;
}

inline std::vector<int64_t> first_keys(int64_t count) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < count; ++key) keys.push_back(key);
  return keys;
}

/// A direct and a hashed table of each row type: dims that are no multiple of anything among them.
inline std::vector<VersionedTable> tables_of_all_types() {
  std::vector<VersionedTable> tables;
  const std::pair<DType, int64_t> types[] = {{DType::f32, 12}, {DType::f16, 3}, {DType::bf16, 16}, {DType::i8, 13}};
  for (const auto& [type, dim] : types) {
    const std::string suffix = name_of(type);
    tables.push_back(versioned_table("direct_" + suffix, type, dim, false, first_keys(60)));
    tables.push_back(versioned_table("hashed_" + suffix, type, dim, true, first_keys(40)));
  }
  return tables;
}

/// A model that gives the rows of ids: output "y_<table>" of input "id_<table>", as many of each in a request.
inline Plan plan_of(const std::vector<VersionedTable>& tables) {
  return compile([&](Builder& b) -> Outputs {
    const Axis key = b.axis("key", b.axis("user"));
    Outputs outputs;
    for (const VersionedTable& t : tables) {
      const TableOptions options{t.dim, 0};
      const Table table = t.is_hashed ? b.hashed_table(t.name, options) : b.table(t.name, options);
      outputs.push_back({"y_" + t.name, b.embed(b.ids("id_" + t.name, key), table)});
    }
    return outputs;
  });
}

inline Weights weights_of(const std::vector<VersionedTable>& tables) {
  std::map<std::string, StoredTensor> tensors;
  for (const VersionedTable& table : tables) {
    table.add_rows(table.all(), true, tensors);
    tensors[table.name + ".default"] = make_tensor<float>({table.dim}, table.default_row());
  }
  return Weights::from_tensors(tensors);
}

/// An update, and what it should do.
struct TestUpdate {
  std::map<std::string, StoredTensor> tensors;
  UpdateReport report;

  Weights weights() const { return Weights::from_tensors(tensors); }
};

/// Writes rows, and erases keys; of equal ones the last counts. Changes the table's versions likewise.
inline void add_changes(VersionedTable& table, const std::vector<KeyVersion>& written,
                        const std::vector<int64_t>& erased, TestUpdate& update) {
  TableChanges& changes = update.report[table.name];
  std::map<int64_t, int64_t> last;
  for (const KeyVersion& kv : written) last[kv.key] = kv.version;
  for (const auto& [key, version] : last) {
    ++(table.versions.count(key) != 0 ? changes.updated : changes.inserted);
    table.versions[key] = version;
  }
  table.add_rows(written, false, update.tensors);
  if (!table.is_hashed) return;
  std::vector<int64_t> once = erased;
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (const int64_t key : once) ++(table.versions.erase(key) != 0 ? changes.erased : changes.absent);
  update.tensors[table.name + ".erase"] = make_tensor<int64_t>({static_cast<int64_t>(erased.size())}, erased);
}

/// Some rows and erasures, keys twice among them; sometimes none at all.
inline TestUpdate random_update(std::vector<VersionedTable>& tables, int64_t version, std::mt19937_64& random) {
  TestUpdate update;
  for (VersionedTable& table : tables) {
    if (random() % 8 == 0) continue;
    std::vector<KeyVersion> written;
    std::vector<int64_t> erased;
    const auto num_keys = static_cast<int64_t>(table.is_hashed ? 60 : table.versions.size());
    const auto count = static_cast<int64_t>(random() % 5 == 0 ? 0 : random() % 40);
    for (int64_t i = 0; i < count; ++i) {
      const auto key = static_cast<int64_t>(random() % static_cast<uint64_t>(num_keys));
      if (table.is_hashed && key % 5 == version % 5) {
        erased.push_back(key);
      } else {
        written.push_back({key, 1000 * version + i});
      }
    }
    add_changes(table, written, erased, update);
  }
  return update;
}

}  // namespace warprank::table_update_testing
