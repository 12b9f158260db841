// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Hash tables on the device: from any 64-bit keys to rows of 2 to 1024 bytes.
///
///     image                      hash_table/build.hpp builds it, file.hpp saves and loads it, and image.hpp views it;
///                                copied to the device, it is a table
///     clear                      an empty one, made in place
///     find, contains             keys [n] -> rows [n, stride], found [n]
///     find_addresses             keys [n] -> addresses of rows [n], null for none
///     insert_or_assign, erase    keys [n] (and rows [n, stride]) -> statuses [n]
///     export_all                 keys and rows of the whole table
///     table.size                 a counter in device memory
///
/// Rows have the table's format: `dim` elements of F32, F16 or BF16, or for I8 dim bytes, rounded up to 4, then float
/// scale and float offset. `stride` is in bytes; the caller's rows are aligned to their elements, I8 rows to 4. There
/// may be any number of keys, also none. If `Keys::count` says so, the number is read from device memory, so that a
/// captured launch serves any batch up to its capacity.
///
/// A look-up reads the keys of a bucket and the row: 32 or 64 bytes if rows are inline, otherwise a line of 128. It
/// reads one bucket for most keys, two for some, and never more than placement.max_probes. A warp looks up 32 keys
/// together: at load 0.8 it waits for its keys, for two lines (2.7 if rows are not inline) and for rows
/// (detail/hash_table/find.cuh). Look-ups write only their results, so that popular rows are no hot spot. Mutable
/// tables, which have the header layout, may be updated while they are read: a look-up finds the whole row from before
/// or after an update, without locks, if its stream is registered as a reader (ops/hash_table_epochs.cuh).
///
/// Every function queues kernels on the stream and returns: it allocates nothing, waits for nothing, and may be
/// captured into a graph, except for updates: their epoch changes, so that they are launched directly. Misuse throws
/// invalid_argument before anything is launched; statuses tell the results of single keys, and nothing hangs.

#include "warprank/ops/detail/hash_table/launch.cuh"

namespace warprank { inline namespace v0 { namespace hash_table {

/// rows[i] = the row of key i; it stays unchanged if the table does not have the key. found[i] tells it, as 1 or 0;
/// `found` may be null.
WARPRANK_HIDDEN inline void find(const HashTableView& table, const Keys& keys, void* rows, int64_t stride_bytes,
                                 uint8_t* found, device::Stream stream) {
  detail::hashed::check_look_up(table, keys);
  const detail::hashed::Rows to = detail::hashed::rows_for(table, rows, stride_bytes, keys.count.capacity);
  detail::hashed::launch_find(table, keys, to, found, stream);
}

/// addresses[i] = the address of key i's row in the table, or null. It is valid for all work that is launched in this
/// stream before the next call of Epochs::begin or Epochs::poll.
WARPRANK_HIDDEN inline void find_addresses(const HashTableView& table, const Keys& keys,
                                           const unsigned char** addresses, device::Stream stream) {
  detail::hashed::check_look_up(table, keys);
  detail::hashed::check_array("addresses", addresses, keys.count.capacity);
  detail::hashed::launch_find_addresses(table, keys, addresses, stream);
}

/// found[i] = 1 when the table has key i, else 0.
WARPRANK_HIDDEN inline void contains(const HashTableView& table, const Keys& keys, uint8_t* found,
                                     device::Stream stream) {
  detail::hashed::check_look_up(table, keys);
  detail::hashed::check_array("found", found, keys.count.capacity);
  detail::hashed::launch_contains(table, keys, found, stream);
}

/// Gives key i the row rows[i]: statuses[i] is inserted, updated, full or deferred; `statuses` may be null. Of equal
/// keys in one batch, the row of any one stays, and the others are updated or deferred. The batch's epoch comes from
/// Epochs; keys and rows must not change until the batch is done.
WARPRANK_HIDDEN inline void insert_or_assign(const HashTableView& table, const Keys& keys, const void* rows,
                                             int64_t stride_bytes, const Epoch& epoch, Status* statuses,
                                             device::Stream stream) {
  detail::hashed::check_update(table, keys, epoch);
  const detail::hashed::Rows from = detail::hashed::rows_for(table, rows, stride_bytes, keys.count.capacity);
  detail::hashed::launch_insert_or_assign(table, keys, from, epoch, statuses, stream);
}

/// Removes key i from the table: statuses[i] is erased, absent or deferred; `statuses` may be null.
WARPRANK_HIDDEN inline void erase(const HashTableView& table, const Keys& keys, const Epoch& epoch, Status* statuses,
                                  device::Stream stream) {
  detail::hashed::check_update(table, keys, epoch);
  detail::hashed::launch_erase(table, keys, epoch, statuses, stream);
}

/// Makes a mutable table without keys, whatever its memory holds. Rows are not touched. Nothing else may read or change
/// the table meanwhile.
WARPRANK_HIDDEN inline void clear(const HashTableView& table, device::Stream stream) {
  detail::hashed::check_table(table, true);
  detail::hashed::launch_clear(table, stream);
}

/// Appends all keys, in no particular order, to keys [capacity] and their rows to rows [capacity, stride], or only the
/// keys when `rows` is null. *count, in device memory, is the number of keys there, before and after; keys beyond the
/// capacity are only counted. It is a reader: a key that is updated meanwhile is exported once, with its old or its new
/// row; a key that is erased and inserted again is exported up to two times.
WARPRANK_HIDDEN inline void export_all(const HashTableView& table, int64_t* keys, void* rows, int64_t stride_bytes,
                                       int64_t capacity, uint64_t* count, device::Stream stream) {
  detail::hashed::check_look_up(table, {keys, {capacity}});
  detail::hashed::check_array("count", count, 1);
  detail::hashed::Rows to{};
  if (rows != nullptr) to = detail::hashed::rows_for(table, rows, stride_bytes, capacity);
  detail::hashed::launch_export(table, keys, to, static_cast<uint64_t>(capacity), count, stream);
}

}}}  // namespace warprank::v0::hash_table
