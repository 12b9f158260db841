// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows to try tables with, as bytes.

#include <cstdint>
#include <vector>

#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/stored_rows.hpp"

namespace warprank::test_support {

/// The bytes of a key's row, which tell the key and the version.
inline std::vector<unsigned char> bytes_of_row(const StoredRows& rows, int64_t key, int64_t version = 0) {
  std::vector<unsigned char> row(static_cast<size_t>(rows.row_bytes()));
  uint64_t state = static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(version);
  for (unsigned char& byte : row) {
    state = hash_table::fmix64(state + 1);
    byte = static_cast<unsigned char>(state);
  }
  return row;
}

inline std::vector<unsigned char> bytes_of_rows(const StoredRows& rows, const std::vector<int64_t>& keys,
                                                int64_t version = 0) {
  std::vector<unsigned char> all;
  for (const int64_t key : keys) {
    const std::vector<unsigned char> row = bytes_of_row(rows, key, version);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

inline std::vector<StoredRows> rows_of_all_types() {
  return {{DType::f32, 5}, {DType::f16, 16}, {DType::bf16, 1}, {DType::i8, 13}, {DType::f32, 256}};
}

}  // namespace warprank::test_support
