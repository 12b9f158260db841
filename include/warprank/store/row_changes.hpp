// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Changes of a table's rows, as they are published to those who have copies of the rows, and their format:
///
///     byte 0       0xA8
///     byte 1       1, the version of this format
///     byte 2       type of the rows: 0 F32, 1 F16, 2 BF16, 3 I8
///     byte 3       0
///     bytes 4-7    checksum of bytes 0 to 3 and of all that follows
///     bytes 8-31   dim, number of new rows n, number of erased keys e
///     then         n keys, e erased keys, n rows
///
/// Numbers and keys have 8 bytes, little-endian. So changes that are cut off, or of rows of another type or width, are
/// detected.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/hash_table/detail/checksum.hpp"
#include "warprank/store/parameter_store.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

inline constexpr int64_t changes_header_bytes = 32;

inline uint32_t checksum_of_changes(Span<const unsigned char> bytes) {
  uint64_t hash = checksum_of_block(bytes.data() + 8, bytes.size() - 8);
  uint32_t first = 0;
  std::memcpy(&first, bytes.data(), 4);
  hash = checksum_mix(hash, first);
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace detail

/// The changes as bytes of this format.
inline std::string write_row_changes(const StoredRows& rows, const RowChanges& changes) {
  const auto num_keys = static_cast<int64_t>(changes.keys.size());
  const auto num_erased = static_cast<int64_t>(changes.erased.size());
  const int64_t numbers[] = {rows.dim, num_keys, num_erased};
  std::string text = {'\xA8', 1, static_cast<char>(rows.type), 0, 0, 0, 0, 0};
  const auto append = [&](const void* bytes, size_t size) { text.append(static_cast<const char*>(bytes), size); };
  append(numbers, sizeof numbers);
  append(changes.keys.data(), changes.keys.size() * 8);
  append(changes.erased.data(), changes.erased.size() * 8);
  append(changes.rows.data(), changes.rows.size());
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const uint32_t checksum = detail::checksum_of_changes({bytes, static_cast<int64_t>(text.size())});
  std::memcpy(text.data() + 4, &checksum, 4);
  return text;
}

/// Whether the bytes are changes of such rows; only then are `changes` written.
inline bool read_row_changes(const StoredRows& rows, Span<const unsigned char> bytes, RowChanges& changes) {
  using detail::changes_header_bytes;
  if (bytes.size() < changes_header_bytes) return false;
  const unsigned char start[] = {0xA8, 1, static_cast<unsigned char>(rows.type), 0};
  if (std::memcmp(bytes.data(), start, 4) != 0) return false;
  uint32_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + 4, 4);
  int64_t numbers[3];
  std::memcpy(numbers, bytes.data() + 8, sizeof numbers);
  const auto [dim, num_keys, num_erased] = numbers;
  const int64_t most = bytes.size() / 8, row_bytes = rows.row_bytes();  // so that nothing overflows
  if (dim != rows.dim || num_keys < 0 || num_keys > most || num_erased < 0 || num_erased > most) return false;
  if (bytes.size() != changes_header_bytes + num_keys * (8 + row_bytes) + num_erased * 8) return false;
  if (checksum != detail::checksum_of_changes(bytes)) return false;
  const unsigned char* next = bytes.data() + changes_header_bytes;
  const auto take = [&](auto& to, int64_t count, int64_t each) {
    to.resize(static_cast<size_t>(count));
    if (count > 0) std::memcpy(to.data(), next, static_cast<size_t>(count * each));
    next += count * each;
  };
  take(changes.keys, num_keys, 8);
  take(changes.erased, num_erased, 8);
  take(changes.rows, num_keys * row_bytes, 1);
  return true;
}

/// Throws invalid_argument if there are not as many rows as keys.
inline void check_row_changes(const StoredTable& table, const RowChanges& changes) {
  const auto expected = static_cast<int64_t>(changes.keys.size()) * table.rows.row_bytes();
  if (static_cast<int64_t>(changes.rows.size()) != expected)
    throw invalid_argument("changes of table '" + table.name + "', rows",
                           std::to_string(expected) + " bytes for " + std::to_string(changes.keys.size()) + " keys",
                           std::to_string(changes.rows.size()));
}

/// Calls use(part) for parts of at most `most_keys` keys each, in order: erased keys first.
template <class Use>
void each_part(const StoredRows& rows, const RowChanges& changes, int64_t most_keys, const Use& use) {
  const auto each = [&](const std::vector<int64_t>& keys, const auto& take) {
    const auto count = static_cast<int64_t>(keys.size());
    for (int64_t begin = 0; begin < count; begin += most_keys) {
      const int64_t end = std::min(count, begin + most_keys);
      RowChanges part;
      take(part, std::vector<int64_t>(keys.begin() + begin, keys.begin() + end), begin, end);
      use(part);
    }
  };
  each(changes.erased, [](RowChanges& part, std::vector<int64_t> keys, int64_t, int64_t) { part.erased = keys; });
  each(changes.keys, [&](RowChanges& part, std::vector<int64_t> keys, int64_t begin, int64_t end) {
    part.keys = keys;
    const int64_t bytes = rows.row_bytes();
    part.rows.assign(changes.rows.begin() + begin * bytes, changes.rows.begin() + end * bytes);
  });
}

/// Changes the store, then publishes the changes to the table's followers. For one writer of a key at a time: with two,
/// nobody knows whose row is the last. Returns the changes that the store did not take by the deadline, to be given
/// again. ChangePublisher::unsent() counts changes that it took but that are not yet published. Throws invalid_argument
/// as check_row_changes.
inline RowChanges change_and_publish(ParameterStore& store, ChangePublisher& publisher, const StoredTable& table,
                                     const RowChanges& changes, Deadline deadline) {
  check_row_changes(table, changes);
  const auto row_bytes = static_cast<size_t>(table.rows.row_bytes());
  RowChanges done, failed;
  std::vector<StoreStatus> statuses(changes.erased.size(), StoreStatus::failed);
  store.erase(table, changes.erased, statuses.data(), deadline);
  for (size_t i = 0; i < statuses.size(); ++i)
    (statuses[i] == StoreStatus::failed ? failed : done).erased.push_back(changes.erased[i]);
  statuses.assign(changes.keys.size(), StoreStatus::failed);
  store.put(table, changes.keys, changes.rows.data(), statuses.data(), deadline);
  for (size_t i = 0; i < statuses.size(); ++i) {
    RowChanges& to = statuses[i] == StoreStatus::ok ? done : failed;
    const unsigned char* row = changes.rows.data() + i * row_bytes;
    to.keys.push_back(changes.keys[i]);
    to.rows.insert(to.rows.end(), row, row + row_bytes);
  }
  publisher.publish(done, deadline);
  return failed;
}

}}  // namespace warprank::v0
