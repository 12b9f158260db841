// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Made-up rows for hash tables, and what tables built of them should hold.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/folder.hpp"
#include "support/message_of.hpp"
#include "warprank/hash_table/build.hpp"

namespace warprank::test {

using test_support::Folder;
using test_support::message_of;

inline constexpr int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();

/// Distinct keys, the odd ones among them.
inline std::vector<int64_t> random_keys(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> keys{0, -1, lowest, highest, 1, -2, lowest + 1, highest - 1};
  keys.resize(static_cast<size_t>(std::min<int64_t>(count, 8)));
  while (static_cast<int64_t>(keys.size()) < count) keys.push_back(static_cast<int64_t>(random()));
  return keys;
}

/// Keys with random rows.
struct MadeUpRows {
  MadeUpRows(DType type, int64_t dim, std::vector<int64_t> the_keys, uint64_t seed = 1)
      : format{type, dim}, keys(std::move(the_keys)) {
    std::mt19937_64 random(seed);
    rows.resize(keys.size() * static_cast<size_t>(bytes()));
    for (unsigned char& byte : rows) byte = static_cast<unsigned char>(random());
    if (type == DType::i8)
      for (size_t r = 0; r < keys.size(); ++r) {
        scale.push_back(static_cast<float>(random() % 1000));
        offset.push_back(static_cast<float>(random() % 1000));
      }
  }

  int64_t bytes() const { return format.dim * size_of(format.type); }
  HashTableChunk chunk(size_t begin, size_t count) const {
    const bool scaled = format.type == DType::i8;
    return {static_cast<int64_t>(count), keys.data() + begin, rows.data() + begin * static_cast<size_t>(bytes()),
            scaled ? scale.data() + begin : nullptr, scaled ? offset.data() + begin : nullptr};
  }
  HashTableChunk all() const { return chunk(0, keys.size()); }

  /// Whether `row` of a table is row r.
  bool is_row(const unsigned char* row, size_t r) const {
    if (row == nullptr ||
        std::memcmp(row, rows.data() + r * static_cast<size_t>(bytes()), static_cast<size_t>(bytes())))
      return false;
    if (format.type != DType::i8) return true;
    float numbers[2];
    std::memcpy(numbers, row + (format.dim + 3) / 4 * 4, sizeof numbers);
    return numbers[0] == scale[r] && numbers[1] == offset[r];
  }
  /// How many keys of the table are not found with their row.
  int64_t wrong(const HashTable& table) const {
    int64_t count = 0;
    for (size_t r = 0; r < keys.size(); ++r) count += !is_row(table.find(keys[r]), r);
    return count;
  }

  HashTableRows format;
  std::vector<int64_t> keys;
  std::vector<unsigned char> rows;
  std::vector<float> scale, offset;
};

inline std::string bytes_of(const HashTable& table) {
  const Span<const unsigned char> image = table.image();
  return {reinterpret_cast<const char*>(image.data()), static_cast<size_t>(image.size())};
}

}  // namespace warprank::test
