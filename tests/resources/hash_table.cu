// SPDX-License-Identifier: Apache-2.0

/// Every kernel of hash tables, for scripts/kernel_report.sh.

#include "warprank/ops/hash_table.cuh"
#include "warprank/ops/hash_table_epochs.cuh"

namespace warprank { inline namespace v0 { namespace hash_table {

WARPRANK_HIDDEN void launch_all(const HashTableView& table, const Keys& keys, void* rows, int64_t* found) {
  find(table, keys, rows, 64, nullptr, {});
  find_addresses(table, keys, reinterpret_cast<const unsigned char**>(found), {});
  contains(table, keys, reinterpret_cast<uint8_t*>(found), {});
  clear(table, {});
  export_all(table, found, rows, 64, keys.count.capacity, table.size, {});
  Epochs epochs;
  const Epoch epoch = epochs.begin();
  insert_or_assign(table, keys, rows, 64, epoch, nullptr, {});
  erase(table, keys, epoch, nullptr, {});
  const detail::hashed::Rows from = detail::hashed::rows_for(table, rows, 64, keys.count.capacity);
  detail::hashed::launch_insert_or_assign<detail::hashed::CacheProtocol>(table, keys, from, epoch, nullptr, {});
  detail::hashed::launch_erase<detail::hashed::CacheProtocol>(table, keys, epoch, nullptr, {});
  epochs.end({});
}

}}}  // namespace warprank::v0::hash_table
