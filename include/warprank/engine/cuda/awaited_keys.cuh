// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Of tables whose rows are waited for (RowTier::waits): the keys that a context's batch has not found, in lists of its
/// own, and what waits for their rows. A batch that finds all of its rows waits for nothing; it has a fill, a copy of
/// its counters and a copy to the host more than others.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/view.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/run_size.hpp"
#include "warprank/engine/cuda/table_store.cuh"
#include "warprank/engine/row_source.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/ops/row_cache.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

class AwaitedKeys {
 public:
  /// For batches of the sizes; of larger ones some keys may find no place. Returns when the lists are there.
  AwaitedKeys(const Graph& graph, const CudaTableStore& tables, const std::vector<RunSize>& sizes,
              device::Stream stream) {
    std::vector<KeyList> lists(graph.tables.size());
    for (size_t t = 0; t < lists.size(); ++t) {
      const CudaTable* table = tables.find(graph.tables[t].name);
      if (table == nullptr || !table->tier || !table->tier->waits()) continue;
      const auto least = static_cast<uint64_t>(most_ids(graph, static_cast<int>(t), sizes));
      uint32_t capacity = 64;
      while (capacity < least && capacity < (uint32_t{1} << 30)) capacity *= 2;
      lists[t].capacity = capacity;
      awaited_.push_back({graph.tables[t].name, t});
    }
    if (awaited_.empty()) return;
    const auto num = static_cast<int64_t>(lists.size());
    counters_bytes_ = static_cast<int64_t>(graph.nodes.size() * sizeof(LookupCounters));
    // Numbers of keys, a zero, the counters of before, the lists, their keys.
    int64_t bytes = 8 * (num + 1) + counters_bytes_ + num * static_cast<int64_t>(sizeof(KeyList));
    const int64_t keys_at = bytes;
    for (const KeyList& list : lists) bytes += int64_t{8} * list.capacity;
    memory_ = device::DeviceMemory(bytes, "a context's lists of keys that are awaited");
    numbers_ = device::PinnedMemory(8 * num, "a context's numbers of keys that are awaited");
    int64_t at = keys_at;
    for (size_t t = 0; t < lists.size(); ++t) {
      if (lists[t].capacity == 0) continue;
      lists[t].keys = words(at);
      lists[t].num = words(8 * static_cast<int64_t>(t));
      lists[t].num_taken = words(8 * num);
      at += int64_t{8} * lists[t].capacity;
    }
    device::fill(memory_.data(), 0, bytes, stream);
    device::copy_to_device(words(lists_at()), lists.data(), num * static_cast<int64_t>(sizeof(KeyList)), stream);
    device::synchronize(stream);
    lists_ = std::move(lists);
  }

  /// Whether there is a table whose rows are waited for.
  bool any() const { return !awaited_.empty(); }
  /// By number of the table, in device memory; null where none is waited for.
  const KeyList* on_device() const { return any() ? reinterpret_cast<const KeyList*>(words(lists_at())) : nullptr; }
  int64_t device_bytes() const { return memory_.bytes(); }

  /// Queued before a batch. `is_again`: the same one as before, so that it counts once.
  void queue_before(const device::DeviceMemory& counters, bool is_again, device::Stream stream) const {
    if (!any()) return;
    device::fill(memory_.data(), 0, numbers_.bytes(), stream);
    void *from = counters.data(), *to = words(numbers_.bytes() + 8);
    if (is_again) std::swap(from, to);
    device::copy_on_device(to, from, counters_bytes_, stream);
  }
  /// Queued behind it.
  void queue_behind(device::Stream stream) const {
    if (any()) device::copy_to_host(numbers_.data(), memory_.data(), numbers_.bytes(), stream);
  }

  /// Has the keys fetched that the batch, which is done, has not found. Whether it makes sense to wait for some.
  bool want(const CudaTableStore& tables, device::Stream stream) {
    bool wants = false;
    for (Awaited& one : awaited_) {
      const auto listed = std::min<uint64_t>(num_of(one), lists_[one.table].capacity);
      one.keys.resize(static_cast<size_t>(listed));
      if (listed == 0) continue;
      device::copy_to_host(one.keys.data(), lists_[one.table].keys, static_cast<int64_t>(8 * listed), stream);
      device::synchronize(stream);
      one.is_wanted = tier_of(tables, one).want(one.keys) > 0;
      wants = wants || one.is_wanted;
    }
    return wants;
  }
  /// Waits for them, for as long as each table may since `begin`. Whether all have come in time.
  bool wait(const CudaTableStore& tables, std::chrono::steady_clock::time_point begin) const {
    bool in_time = true;
    for (const Awaited& one : awaited_) {
      if (!one.is_wanted || one.keys.empty()) continue;
      in_time = tier_of(tables, one).wait_for(one.keys, begin) && in_time;
    }
    return in_time;
  }
  /// Tells the tables how many ids the batch has not found in the end.
  void count(const CudaTableStore& tables) const {
    for (const Awaited& one : awaited_) tier_of(tables, one).looked_up(0, static_cast<int64_t>(num_of(one)));
  }

 private:
  struct Awaited {
    std::string name;
    size_t table;  ///< its number
    bool is_wanted = false;
    std::vector<int64_t> keys = {};
  };

  /// Of a table's features together.
  static int64_t most_ids(const Graph& graph, int table, const std::vector<RunSize>& sizes) {
    int64_t most = 0;
    for (const RunSize& size : sizes) {
      int64_t ids = 0;
      for (const Node& node : graph.nodes) {
        const auto* embed = std::get_if<EmbedOp>(&node.op);
        if (embed != nullptr && embed->table == table)
          ids += size.rows[static_cast<size_t>(graph.ids[static_cast<size_t>(embed->ids)].axis)];
      }
      most = std::max(most, ids);
    }
    return most;
  }
  static RowTier& tier_of(const CudaTableStore& tables, const Awaited& one) { return *tables.find(one.name)->tier; }
  uint64_t num_of(const Awaited& one) const { return static_cast<const uint64_t*>(numbers_.data())[one.table]; }
  int64_t lists_at() const { return numbers_.bytes() + 8 + counters_bytes_; }
  uint64_t* words(int64_t at) const {
    return reinterpret_cast<uint64_t*>(static_cast<unsigned char*>(memory_.data()) + at);
  }

  std::vector<KeyList> lists_;  // by table
  std::vector<Awaited> awaited_;
  int64_t counters_bytes_ = 0;
  device::DeviceMemory memory_;
  device::PinnedMemory numbers_;  // of keys, by table
};

}}}  // namespace warprank::v0::cuda_backend
