// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How rows of a GPU's tables are changed while batches run.
///
/// Hashed tables are changed under the batches that read them: ops/hash_table.cuh writes rows aside, and what it takes
/// away is used again when all batches are done that were launched before. Rows of direct tables have no place aside:
/// they are written between batches, some at a time. The kernel that does so waits, on the device, for the batches
/// that were launched before it, and later ones wait for it. Look-ups of direct tables may therefore read by `.nc`.
///
/// The host's threads that submit batches wait for nothing but for each other's and the update's few calls to the
/// runtime: an update must not come between a batch's launch and the event that is recorded behind it.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/phase_fair_mutex.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/table_delta.hpp"
#include "warprank/ops/detail/write_rows.cuh"
#include "warprank/ops/hash_table.cuh"
#include "warprank/ops/hash_table_epochs.cuh"

namespace warprank::cuda_backend {

/// Where a chunk of changes lies in memory on its way to the device; keys first.
struct ChunkLayout {
  explicit ChunkLayout(int64_t kept_row_bytes) : row_stride(kept_row_bytes) {
    constexpr int64_t most_bytes = int64_t{1} << 20, most_rows = 8192;  // written in some microseconds
    most = std::clamp(most_bytes / (row_stride + 9), int64_t{1}, most_rows);
    rows_at = round_up(8 * most);
    statuses_at = rows_at + round_up(most * row_stride);
    bytes = statuses_at + round_up(most);
  }

  int64_t row_stride, most;  ///< bytes; rows of a chunk
  int64_t rows_at, statuses_at, bytes;

 private:
  static int64_t round_up(int64_t size) { return (size + 15) / 16 * 16; }
};

/// Changes the tables of one device, which is the current one of whoever calls. One update at a time.
class TableUpdates {
 public:
  using Reader = std::list<device::Event>::iterator;

  /// With memory for chunks of so many bytes.
  explicit TableUpdates(int64_t chunk_bytes)
      : device_(chunk_bytes, "the updates of tables"), host_(chunk_bytes, "the updates of tables") {
    epochs_.add_reader(readers_stream_.get());
  }

  /// For somebody who records `done` behind each batch, as read() says.
  Reader add_reader(const device::Event& done) {
    const std::lock_guard<PhaseFairMutex> between_batches(batches_);
    return readers_.insert(readers_.end(), done);
  }
  void remove_reader(Reader reader) {
    const std::lock_guard<PhaseFairMutex> between_batches(batches_);
    readers_.erase(reader);
  }

  /// Held from before a batch's first launch in `stream` until its event is recorded.
  std::shared_lock<PhaseFairMutex> read(device::Stream stream) {
    std::shared_lock<PhaseFairMutex> reading(batches_);
    written_.wait_in(stream);
    return reading;
  }

  /// Writes rows of a direct table; returns when they are there.
  void write(const TableView& table, const TableDelta& delta) {
    const ChunkLayout layout(table.row_stride_bytes);
    const auto* memory = static_cast<const unsigned char*>(device_.data());
    const auto queue = [&](Span<const RowChange> chunk) {
      queue_rows(table,
                 {reinterpret_cast<const int64_t*>(memory), memory + layout.rows_at, layout.row_stride, chunk.size()});
    };
    for_each_chunk(delta, delta.written, layout, queue, [](Span<const RowChange>) {});
  }
  /// Queues that rows which are on the device are written: behind the batches that have been launched, before those
  /// that will be. Waits for nothing.
  void queue_rows(const TableView& table, const detail::GivenRows& rows) {
    const std::lock_guard<PhaseFairMutex> between_batches(batches_);
    for (const device::Event& done : readers_) done.wait_in(stream_.get());
    detail::launch_write_rows(table, rows, stream_.get());
    written_.record(stream_.get());
  }

  /// Changes a hashed table; returns when it is changed, also what had to wait for batches.
  void change(const HashTableView& table, const TableDelta& delta, std::vector<RowChange> pending,
              TableChanges& changes) {
    const ChunkLayout layout(table.row_bytes);
    while (!pending.empty()) {
      std::vector<RowChange> deferred;
      hash_table::Epoch epoch;
      const auto queue = [&](Span<const RowChange> chunk) {
        epoch = begin_epoch();
        try {
          launch(table, layout, chunk, epoch);
        } catch (...) {
          epochs_.end(stream_.get());
          throw;
        }
        epochs_.end(stream_.get());
      };
      const auto collect = [&](Span<const RowChange> chunk) {
        const auto* statuses = static_cast<const unsigned char*>(host_.data()) + layout.statuses_at;
        for (int64_t i = 0; i < chunk.size(); ++i) {
          const auto status = static_cast<hash_table::Status>(statuses[i]);
          if (status == hash_table::Status::deferred) deferred.push_back(chunk[i]);
          count(changes, status);
        }
      };
      for_each_chunk(delta, pending, layout, queue, collect);
      if (!deferred.empty()) wait_until_safe(epoch.current);
      pending = std::move(deferred);
    }
  }

  int64_t device_bytes() const { return device_.bytes(); }

 private:
  /// Copies changes to the device, chunk by chunk, calls queue(chunk), and, when what that queued is done, done(chunk).
  template <class Queue, class Done>
  void for_each_chunk(const TableDelta& delta, Span<const RowChange> all, const ChunkLayout& layout, Queue&& queue,
                      Done&& done) {
    auto* const host = static_cast<unsigned char*>(host_.data());
    for (int64_t begin = 0; begin < all.size(); begin += layout.most) {
      const Span<const RowChange> chunk = all.subspan(begin, std::min(layout.most, all.size() - begin));
      for (int64_t i = 0; i < chunk.size(); ++i) {
        std::memcpy(host + 8 * i, &chunk[i].key, 8);
        if (chunk[i].row >= 0)
          delta.copy_row(chunk[i].row, host + layout.rows_at + i * layout.row_stride, layout.row_stride);
      }
      const bool has_rows = chunk[0].row >= 0;
      const int64_t bytes = has_rows ? layout.rows_at + chunk.size() * layout.row_stride : 8 * chunk.size();
      try {
        device::copy_to_device(device_.data(), host, bytes, stream_.get());
        queue(chunk);
      } catch (...) {
        device::synchronize(stream_.get());  // what was queued uses the memory for chunks
        throw;
      }
      device::synchronize(stream_.get());
      done(chunk);
    }
  }

  void launch(const HashTableView& table, const ChunkLayout& layout, Span<const RowChange> chunk,
              const hash_table::Epoch& epoch) {
    auto* const memory = static_cast<unsigned char*>(device_.data());
    auto* const statuses = reinterpret_cast<hash_table::Status*>(memory + layout.statuses_at);
    const hash_table::Keys keys{reinterpret_cast<const int64_t*>(memory), chunk.size()};
    if (chunk[0].row < 0) {
      hash_table::erase(table, keys, epoch, statuses, stream_.get());
    } else {
      hash_table::insert_or_assign(table, keys, memory + layout.rows_at, layout.row_stride, epoch, statuses,
                                   stream_.get());
    }
    device::copy_to_host(static_cast<unsigned char*>(host_.data()) + layout.statuses_at, statuses, chunk.size(),
                         stream_.get());
  }

  /// What is recorded in readers_stream_ from now on comes behind the batches that have been launched. Their own
  /// streams may be anybody's, and gone when a batch is done.
  void follow_readers() {
    for (const device::Event& done : readers_) done.wait_in(readers_stream_.get());
  }
  hash_table::Epoch begin_epoch() {
    const std::lock_guard<PhaseFairMutex> between_batches(batches_);
    follow_readers();
    return epochs_.begin();
  }
  /// Waits for the batches that may still read what was retired in an epoch.
  void wait_until_safe(uint64_t epoch) {
    const auto is_safe = [&] {
      const std::lock_guard<PhaseFairMutex> between_batches(batches_);
      follow_readers();
      return epochs_.poll() >= epoch;
    };
    while (!is_safe()) device::synchronize(readers_stream_.get());
  }

  PhaseFairMutex batches_;            // shared by who launches them
  std::list<device::Event> readers_;  // each behind the latest batch of a context
  device::OwnedStream stream_, readers_stream_;
  device::Event written_;  // behind the latest rows of direct tables
  hash_table::Epochs epochs_;
  device::DeviceMemory device_;
  device::PinnedMemory host_;
};

}  // namespace warprank::cuda_backend
