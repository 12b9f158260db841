// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of ops/hash_table.cuh, and what is checked before they are launched.

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "warprank/core/error.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/hash_table/view.hpp"
#include "warprank/ops/detail/hash_table/check.hpp"
#include "warprank/ops/detail/hash_table/find.cuh"
#include "warprank/ops/detail/hash_table/rows.cuh"
#include "warprank/ops/detail/hash_table/update.cuh"

namespace warprank { inline namespace v0 { namespace detail::hashed {

inline constexpr int threads = 128;
inline constexpr int64_t max_blocks = 1 << 14;  // beyond, threads take several turns

/// How many keys there are; read from memory where the batch says so.
WARPRANK_DEVICE int64_t num_keys(const hash_table::Keys& keys) {
  if (keys.count.actual == nullptr) return keys.count.capacity;
  const int64_t count = device::load_constant(keys.count.actual);
  return count < keys.count.capacity ? count : keys.count.capacity;
}
WARPRANK_DEVICE uint64_t key_at(const hash_table::Keys& keys, int64_t i) {
  return static_cast<uint64_t>(device::load_constant(&keys.data[i]));
}

/// Calls body(i, active) for 32 keys at a time, until there are no more: a lane whose i is behind the last is not
/// active.
template <class Body>
WARPRANK_DEVICE void for_each_key(const hash_table::Keys& keys, Body body) {
  using namespace device;  // NOLINT: a device function
  const int64_t size = num_keys(keys);
  for (int64_t begin = global_thread_rank() - lane_index(); begin < size; begin += num_threads()) {
    const int64_t i = begin + lane_index();
    body(i, i < size);
  }
}

template <hash_table::Layout Layout>
WARPRANK_KERNEL(threads, 8)
find_addresses_kernel(HashTableView table, hash_table::Keys keys, const unsigned char** addresses) {
  for_each_key(keys, [&](int64_t i, bool active) {
    const unsigned char* row = find_rows<Layout>(table, active ? key_at(keys, i) : 0, active);
    if (active) device::store(&addresses[i], row);
  });
}

template <hash_table::Layout Layout>
WARPRANK_KERNEL(threads, 8)
contains_kernel(HashTableView table, hash_table::Keys keys, uint8_t* found) {
  for_each_key(keys, [&](int64_t i, bool active) {
    const unsigned char* row = find_rows<Layout>(table, active ? key_at(keys, i) : 0, active);
    if (active) device::store(&found[i], static_cast<uint8_t>(row != nullptr));
  });
}

/// Rows are copied as soon as their lines were read, while the lines of displaced keys come to the second-level cache.
/// Those of a mutable table are copied at the end: so there is one fence.
template <hash_table::Layout Layout, int PieceBytes>
WARPRANK_KERNEL(threads, 8)
find_kernel(HashTableView table, hash_table::Keys keys, Rows rows, uint8_t* found) {
  using namespace device;  // NOLINT: a kernel
  constexpr int64_t map_at = Layout == hash_table::Layout::in_line ? hash_table::line_bytes - 8 : 0;
  for_each_key(keys, [&](int64_t i, bool active) {
    LookUp look_up(table, active ? key_at(keys, i) : 0, active);
    bool is_copied = false, has_more = true;
    while (has_more) {
      read_lines<Layout>(table, look_up);
      has_more = any(full_warp, look_up.is_pending());
      if (has_more && table.is_mutable) continue;
      if (look_up.is_pending()) device::prefetch(look_up.at + map_at);
      acquire_rows(table);
      copy_rows<PieceBytes>(table, is_copied ? nullptr : look_up.row(), rows, i - lane_index());
      is_copied = look_up.row() != nullptr;
    }
    if (active && found != nullptr) store(&found[i], static_cast<uint8_t>(look_up.row() != nullptr));
  });
}

/// Calls change(i) -> Status for each key, by a tile, and keeps statuses and the table's size.
template <class Change>
WARPRANK_DEVICE void for_each_change(const HashTableView& table, const hash_table::Keys& keys,
                                     hash_table::Status* statuses, Change change) {
  using namespace device;  // NOLINT: a device function
  using hash_table::Status;
  const int64_t size = num_keys(keys), num_tiles = num_threads() / LineTile::size;
  uint32_t more = 0;  // modulo 2^32, as a sum of 1 and -1
  for (int64_t i = global_thread_rank() / LineTile::size; i < size; i += num_tiles) {
    const Status status = change(i);
    if (LineTile::rank() != 0) continue;
    if (statuses != nullptr) store(&statuses[i], status);
    more += status == Status::inserted ? 1u : status == Status::erased ? ~0u : 0u;
  }
  more = reduce_add(full_warp, more);
  if (lane_index() == 0 && more != 0) {
    const auto signed_more = static_cast<int64_t>(static_cast<int32_t>(more));
    atomic_add<Order::relaxed, Scope::device>(table.size, static_cast<uint64_t>(signed_more));
  }
}

template <class Protocol>
WARPRANK_KERNEL(threads, 8)
insert_or_assign_kernel(HashTableView table, hash_table::Keys keys, Rows rows, hash_table::Epoch epoch,
                        hash_table::Status* statuses) {
  const Update<Protocol> update(table, epoch);
  for_each_change(table, keys, statuses, [&](int64_t i) {
    return update.insert_or_assign(key_at(keys, i), {rows.data + i * rows.stride_bytes, rows.unit});
  });
}

template <class Protocol>
WARPRANK_KERNEL(threads, 8)
erase_kernel(HashTableView table, hash_table::Keys keys, hash_table::Epoch epoch, hash_table::Status* statuses) {
  const Update<Protocol> update(table, epoch);
  for_each_change(table, keys, statuses, [&](int64_t i) { return update.erase(key_at(keys, i)); });
}

/// Writes the lines of a table without keys.
template <class = void>
WARPRANK_KERNEL(threads, 8)
clear_kernel(HashTableView table) {
  using namespace device;  // NOLINT: a device function
  using namespace hash_table;
  const auto num_tiles = static_cast<uint64_t>(num_threads() / LineTile::size);
  const auto first = static_cast<uint64_t>(global_thread_rank() / LineTile::size);
  for (uint64_t bucket = first; bucket < table.num_buckets(); bucket += num_tiles) {
    const uint64_t foreign = table.placement.foreign_key(bucket);
    const bool has_map = LineTile::rank() == LineTile::size - 1;
    const LinePart part{{has_map ? empty_map : foreign, has_map ? BucketState{}.word() : foreign}};
    store_vector(table.line(bucket) + 2 * LineTile::rank(), part);
  }
  if (global_thread_rank() == 0) store(table.size, uint64_t{0});
}

/// Adds the table's keys, in no particular order, to keys [capacity] and rows, behind the `count` that are there.
template <class = void>
WARPRANK_KERNEL(threads, 8)
export_kernel(HashTableView table, int64_t* keys, Rows rows, uint64_t capacity, uint64_t* count) {
  using namespace device;  // NOLINT: a device function
  using namespace hash_table;
  const auto num_tiles = static_cast<uint64_t>(num_threads() / LineTile::size);
  const auto first = static_cast<uint64_t>(global_thread_rank() / LineTile::size);
  const bool in_line = table.shape.layout == hash_table::Layout::in_line;
  for (uint64_t bucket = first; bucket < table.num_buckets(); bucket += num_tiles) {
    const uint64_t* map_address = &table.line(bucket)[in_line ? inline_map_word : map_word];
    // Keys after the map: one that was erased in between is foreign, and left out.
    uint64_t map = table.is_mutable ? load<Order::acquire, Scope::device>(map_address) : load_constant(map_address);
    map = LineTile::shuffle(map, 0);  // lanes may have loaded different ones
    LineTile::sync();
    for (int place = 0; place < table.shape.num_keys(); ++place) {
      const int slot = in_line ? ((map >> place & 1) != 0 ? place : no_slot) : slot_at(map, place);
      if (slot == no_slot) continue;
      const uint64_t* key_address = &table.line(bucket)[key_word(table.shape, place)];
      uint64_t key = table.is_mutable ? load<Order::relaxed, Scope::device>(key_address) : load_constant(key_address);
      key = LineTile::shuffle(key, 0);
      if (!table.placement.may_hold(bucket, table.placement.hash(key))) continue;
      uint64_t to = 0;
      if (LineTile::rank() == 0) to = atomic_add<Order::relaxed, Scope::device>(count, uint64_t{1});
      to = LineTile::shuffle(to, 0);
      if (to >= capacity) continue;
      if (LineTile::rank() == 0) store(&keys[to], static_cast<int64_t>(key));
      const auto row = static_cast<int64_t>(to);
      if (rows.data != nullptr) {
        copy_row(table, table.row(bucket, slot), rows.data + row * rows.stride_bytes, rows.unit);
      }
    }
  }
}

// ---- Launches

inline device::Dim3 grid_for(int64_t num_items, int64_t items_per_block) {
  const int64_t blocks = (num_items + items_per_block - 1) / items_per_block;
  return static_cast<unsigned>(std::min(blocks, max_blocks));
}

/// Throws unless kernels can work on the table.
inline void check_table(const HashTableView& table, bool to_update) {
  Problems problems;
  check_view("hash table", table, problems);
  if (to_update) {
    if (!table.is_mutable) problems.add("hash table: update", "a mutable table", "one whose rows never change");
    if (table.size == nullptr) problems.add("hash table: size", "a counter of the table", "null");
  }
  problems.throw_if_any();
}

/// `data` is what there must be for every key: one of the arrays of a batch.
inline void check_array(const char* what, const void* data, int64_t capacity) {
  if (capacity < 0) raise(invalid_argument(std::string("hash table: ") + what, "0 or more", std::to_string(capacity)));
  if (capacity > 0 && data == nullptr)
    raise(invalid_argument(std::string("hash table: ") + what, "an address", "null"));
}

inline void check_look_up(const HashTableView& table, const hash_table::Keys& keys) {
  check_table(table, false);
  check_array("keys", keys.data, keys.count.capacity);
}

inline void check_update(const HashTableView& table, const hash_table::Keys& keys, const hash_table::Epoch& epoch) {
  check_table(table, true);
  check_look_up(table, keys);
  if (epoch.current == 0 || epoch.current > hash_table::max_epoch || epoch.safe >= epoch.current) {
    raise(invalid_argument("hash table: epoch", "a current one of 1 to 2^34 - 1, and a safe one before it",
                           std::to_string(epoch.current) + " and " + std::to_string(epoch.safe)));
  }
}

/// Rows of the user's, checked.
inline Rows rows_for(const HashTableView& table, const void* data, int64_t stride_bytes, int64_t num_rows) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const int64_t alignment = table.type == DType::f16 || table.type == DType::bf16 ? 2 : 4;
  check_array("rows", data, num_rows);
  if (stride_bytes < table.row_bytes || stride_bytes % alignment != 0 ||
      address % static_cast<uintptr_t>(alignment) != 0) {
    raise(invalid_argument("hash table: rows",
                           std::to_string(table.row_bytes) + " bytes or more from one to the next, aligned to " +
                               std::to_string(alignment),
                           std::to_string(stride_bytes) + " bytes, at an address with remainder " +
                               std::to_string(address % static_cast<uintptr_t>(alignment))));
  }
  return make_rows(static_cast<unsigned char*>(const_cast<void*>(data)), stride_bytes, table.row_bytes,
                   table.shape.row_stride);
}

// Templates, so that every unit may define them. Those that the engine launches are compiled with it.
template <class = void>
WARPRANK_HIDDEN void launch_contains(const HashTableView& table, const hash_table::Keys& keys, uint8_t* found,
                                     device::Stream stream);
template <class = void>
WARPRANK_HIDDEN void launch_clear(const HashTableView& table, device::Stream stream);
template <class Protocol = UpdateProtocol>
WARPRANK_HIDDEN void launch_insert_or_assign(const HashTableView& table, const hash_table::Keys& keys, const Rows& rows,
                                             const hash_table::Epoch& epoch, hash_table::Status* statuses,
                                             device::Stream stream);
template <class Protocol = UpdateProtocol>
WARPRANK_HIDDEN void launch_erase(const HashTableView& table, const hash_table::Keys& keys,
                                  const hash_table::Epoch& epoch, hash_table::Status* statuses, device::Stream stream);
template <class = void>
WARPRANK_HIDDEN void launch_find(const HashTableView& table, const hash_table::Keys& keys, const Rows& rows,
                                 uint8_t* found, device::Stream stream);
template <class = void>
WARPRANK_HIDDEN void launch_find_addresses(const HashTableView& table, const hash_table::Keys& keys,
                                           const unsigned char** addresses, device::Stream stream);
template <class = void>
WARPRANK_HIDDEN void launch_export(const HashTableView& table, int64_t* keys, const Rows& rows, uint64_t capacity,
                                   uint64_t* count, device::Stream stream);

#if !defined(WARPRANK_HOST_OF_CUDA)
/// Calls launch(layout) with the table's layout, a constant.
template <class Launch>
WARPRANK_HIDDEN void with_layout(const HashTableView& table, Launch launch) {
  using hash_table::Layout;
  if (table.shape.layout == Layout::in_line) {
    launch(std::integral_constant<Layout, Layout::in_line>());
  } else {
    launch(std::integral_constant<Layout, Layout::header>());
  }
}

template <class... Params, class... Args>
WARPRANK_HIDDEN void launch_for_keys(int64_t capacity, device::Stream stream, void (*kernel)(Params...), Args... args) {
  device::launch({grid_for(capacity, threads), threads, 0, stream}, kernel, args...);
}
template <class... Params, class... Args>
WARPRANK_HIDDEN void launch_for_buckets(const HashTableView& table, device::Stream stream, void (*kernel)(Params...),
                                        Args... args) {
  const device::Dim3 grid = grid_for(static_cast<int64_t>(table.num_buckets()), threads / LineTile::size);
  device::launch({grid, threads, 0, stream}, kernel, args...);
}

template <class>
void launch_find(const HashTableView& table, const hash_table::Keys& keys, const Rows& rows, uint8_t* found,
                 device::Stream stream) {
  with_layout(table, [&](auto layout) {
    const auto launch = [&](auto piece) {
      launch_for_keys(keys.count.capacity, stream, find_kernel<layout(), piece()>, table, keys, rows, found);
    };
    if (rows.piece_bytes == 16) return launch(std::integral_constant<int, 16>());
    if (rows.piece_bytes == 8) return launch(std::integral_constant<int, 8>());
    if (rows.piece_bytes == 4) return launch(std::integral_constant<int, 4>());
    launch(std::integral_constant<int, 2>());
  });
}

template <class>
void launch_find_addresses(const HashTableView& table, const hash_table::Keys& keys, const unsigned char** addresses,
                           device::Stream stream) {
  with_layout(table, [&](auto layout) {
    launch_for_keys(keys.count.capacity, stream, find_addresses_kernel<layout()>, table, keys, addresses);
  });
}

template <class>
void launch_export(const HashTableView& table, int64_t* keys, const Rows& rows, uint64_t capacity, uint64_t* count,
                   device::Stream stream) {
  launch_for_buckets(table, stream, export_kernel<>, table, keys, rows, capacity, count);
}
#endif

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_HASH_TABLE)
template <class>
void launch_contains(const HashTableView& table, const hash_table::Keys& keys, uint8_t* found, device::Stream stream) {
  with_layout(table, [&](auto layout) {
    launch_for_keys(keys.count.capacity, stream, contains_kernel<layout()>, table, keys, found);
  });
}

template <class>
void launch_clear(const HashTableView& table, device::Stream stream) {
  launch_for_buckets(table, stream, clear_kernel<>, table);
}

template <class Protocol>
void launch_insert_or_assign(const HashTableView& table, const hash_table::Keys& keys, const Rows& rows,
                             const hash_table::Epoch& epoch, hash_table::Status* statuses, device::Stream stream) {
  device::launch({grid_for(keys.count.capacity, threads / LineTile::size), threads, 0, stream},
                 insert_or_assign_kernel<Protocol>, table, keys, rows, epoch, statuses);
}

template <class Protocol>
void launch_erase(const HashTableView& table, const hash_table::Keys& keys, const hash_table::Epoch& epoch,
                  hash_table::Status* statuses, device::Stream stream) {
  device::launch({grid_for(keys.count.capacity, threads / LineTile::size), threads, 0, stream}, erase_kernel<Protocol>,
                 table, keys, epoch, statuses);
}
#endif
#if defined(WARPRANK_KERNELS_OF_HASH_TABLE)
template void launch_contains<>(const HashTableView& table, const hash_table::Keys& keys, uint8_t* found,
                                device::Stream stream);
template void launch_clear<>(const HashTableView& table, device::Stream stream);
template void launch_insert_or_assign<>(const HashTableView& table, const hash_table::Keys& keys, const Rows& rows,
                                        const hash_table::Epoch& epoch, hash_table::Status* statuses,
                                        device::Stream stream);
template void launch_erase<>(const HashTableView& table, const hash_table::Keys& keys, const hash_table::Epoch& epoch,
                             hash_table::Status* statuses, device::Stream stream);
template void launch_insert_or_assign<CacheProtocol>(const HashTableView& table, const hash_table::Keys& keys,
                                                     const Rows& rows, const hash_table::Epoch& epoch,
                                                     hash_table::Status* statuses, device::Stream stream);
template void launch_erase<CacheProtocol>(const HashTableView& table, const hash_table::Keys& keys,
                                          const hash_table::Epoch& epoch, hash_table::Status* statuses,
                                          device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::hashed
