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
///
/// What several devices read is written between the batches of all of them, hashed tables too: the orders by which a
/// look-up finds a whole row under an update hold on one device.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/phase_fair_mutex.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/table_delta.hpp"
#include "warprank/ops/detail/write_rows/kernel.cuh"
#include "warprank/ops/hash_table.cuh"
#include "warprank/ops/hash_table_epochs.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

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

/// Orders updates with the batches that read tables: those of one device, or of all that read the same. Any thread may
/// call.
class BatchOrder {
 public:
  using Reader = std::list<device::Event>::iterator;

  /// For somebody who records `done` behind each batch, as read() says.
  Reader add_reader(const device::Event& done) {
    const std::lock_guard<PhaseFairMutex> between_batches(batches_);
    return readers_.insert(readers_.end(), done);
  }
  void remove_reader(Reader reader) {
    const std::lock_guard<PhaseFairMutex> between_batches(batches_);
    readers_.erase(reader);
  }
  /// For somebody who records `written` behind what later batches are to find.
  void add_writer(const device::Event& written) {
    const std::lock_guard<PhaseFairMutex> between_batches(batches_);
    written_.push_back(written);
  }

  /// Held from before a batch's first launch in `stream` until its event is recorded.
  std::shared_lock<PhaseFairMutex> read(device::Stream stream) {
    std::shared_lock<PhaseFairMutex> reading(batches_);
    for (const device::Event& written : written_) written.wait_in(stream);
    return reading;
  }
  /// While it is held no batch is launched.
  std::unique_lock<PhaseFairMutex> between_batches() { return std::unique_lock<PhaseFairMutex>(batches_); }
  /// What `stream` gets from now on comes behind the batches that have been launched; between batches.
  void follow_readers(device::Stream stream) const {
    for (const device::Event& done : readers_) done.wait_in(stream);
  }

  std::mutex updating;  ///< one update or pass at a time

 private:
  PhaseFairMutex batches_;            // shared by who launches them
  std::list<device::Event> readers_;  // each behind the latest batch of a context
  std::list<device::Event> written_;  // each behind the latest rows that were written so
};

/// Who reads a table while it is changed.
enum class Readers { beside, none };

/// Changes the tables of one device, which is the current one of whoever calls. One update at a time.
class TableUpdates {
 public:
  /// With memory for chunks of so many bytes.
  TableUpdates(int64_t chunk_bytes, std::shared_ptr<BatchOrder> order)
      : order_(std::move(order)),
        device_(chunk_bytes, "the updates of tables"),
        host_(chunk_bytes, "the updates of tables") {
    epochs_.add_reader(readers_stream_.get());
    order_->add_writer(written_);
  }

  /// Writes rows of a direct table; returns when they are there. `copy_row(change, to)` makes a row as the table keeps
  /// it.
  template <class CopyRow>
  void write(const TableView& table, const CopyRow& copy_row, Span<const RowChange> written) {
    const ChunkLayout layout(table.row_stride_bytes);
    const auto* memory = static_cast<const unsigned char*>(device_.data());
    const auto queue = [&](Span<const RowChange> chunk) {
      queue_rows(table,
                 {reinterpret_cast<const int64_t*>(memory), memory + layout.rows_at, layout.row_stride, chunk.size()});
    };
    for_each_chunk(copy_row, written, layout, queue, [](Span<const RowChange>) {});
  }
  /// Queues that rows which are on the device are written: behind the batches that have been launched, before those
  /// that will be. Waits for nothing.
  void queue_rows(const TableView& table, const detail::write_rows::GivenRows& rows) {
    between_batches([&] { detail::write_rows::launch(table, rows, stream_.get()); });
  }

  /// Changes a hashed table; returns when it is changed, also what had to wait for batches. Of `pending` all or none
  /// are erased.
  template <class Protocol = detail::hashed::UpdateProtocol, class CopyRow>
  void change(const HashTableView& table, const CopyRow& copy_row, std::vector<RowChange> pending,
              TableChanges& changes, Readers readers = Readers::beside) {
    const ChunkLayout layout(table.row_bytes);
    while (!pending.empty()) {
      std::vector<RowChange> deferred;
      hash_table::Epoch epoch;
      const auto queue = [&](Span<const RowChange> chunk) {
        epoch = begin_epoch();
        try {
          const auto launch_chunk = [&] { launch<Protocol>(table, layout, chunk, epoch); };
          readers == Readers::beside ? launch_chunk() : between_batches(launch_chunk);
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
      for_each_chunk(copy_row, pending, layout, queue, collect);
      if (!deferred.empty()) wait_until_safe(epoch.current);
      pending = std::move(deferred);
    }
  }

  /// Those of `all` whose keys a hashed table has.
  std::vector<RowChange> held(const HashTableView& table, Span<const RowChange> all) {
    const ChunkLayout layout(table.row_bytes);
    auto* const found = static_cast<unsigned char*>(device_.data()) + layout.statuses_at;
    const auto* const on_host = static_cast<const unsigned char*>(host_.data()) + layout.statuses_at;
    std::vector<RowChange> keys(all.begin(), all.end()), held;
    for (RowChange& key : keys) key.row = -1;
    int64_t at = 0;
    const auto queue = [&](Span<const RowChange> chunk) {
      hash_table::contains(table, {static_cast<const int64_t*>(device_.data()), {chunk.size()}}, found, stream_.get());
      device::copy_to_host(static_cast<unsigned char*>(host_.data()) + layout.statuses_at, found, chunk.size(),
                           stream_.get());
    };
    const auto collect = [&](Span<const RowChange> chunk) {
      for (int64_t i = 0; i < chunk.size(); ++i, ++at)
        if (on_host[i] != 0) held.push_back(all[at]);
    };
    for_each_chunk([](const RowChange&, unsigned char*) {}, keys, layout, queue, collect);
    return held;
  }

  /// What queue(stream) queues is done when it returns.
  template <class Queue>
  void queue_and_wait(const Queue& queue) {
    queue(stream_.get());
    device::synchronize(stream_.get());
  }

  int64_t device_bytes() const { return device_.bytes(); }

 private:
  /// Copies changes to the device, chunk by chunk, calls queue(chunk), and, when what that queued is done, done(chunk).
  template <class CopyRow, class Queue, class Done>
  void for_each_chunk(const CopyRow& copy_row, Span<const RowChange> all, const ChunkLayout& layout, Queue&& queue,
                      Done&& done) {
    auto* const host = static_cast<unsigned char*>(host_.data());
    for (int64_t begin = 0; begin < all.size(); begin += layout.most) {
      const Span<const RowChange> chunk = all.subspan(begin, std::min(layout.most, all.size() - begin));
      for (int64_t i = 0; i < chunk.size(); ++i) {
        std::memcpy(host + 8 * i, &chunk[i].key, 8);
        if (chunk[i].row >= 0) copy_row(chunk[i], host + layout.rows_at + i * layout.row_stride);
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

  template <class Protocol>
  void launch(const HashTableView& table, const ChunkLayout& layout, Span<const RowChange> chunk,
              const hash_table::Epoch& epoch) {
    auto* const memory = static_cast<unsigned char*>(device_.data());
    auto* const statuses = reinterpret_cast<hash_table::Status*>(memory + layout.statuses_at);
    const hash_table::Keys keys{reinterpret_cast<const int64_t*>(memory), {chunk.size()}};
    detail::hashed::check_update(table, keys, epoch);
    if (chunk[0].row < 0) {
      detail::hashed::launch_erase<Protocol>(table, keys, epoch, statuses, stream_.get());
    } else {
      const detail::hashed::Rows rows =
          detail::hashed::rows_for(table, memory + layout.rows_at, layout.row_stride, keys.count.capacity);
      detail::hashed::launch_insert_or_assign<Protocol>(table, keys, rows, epoch, statuses, stream_.get());
    }
    device::copy_to_host(static_cast<unsigned char*>(host_.data()) + layout.statuses_at, statuses, chunk.size(),
                         stream_.get());
  }

  /// What is queued in stream_ comes behind the batches that have been launched, and before those that will be.
  template <class Queue>
  void between_batches(const Queue& queue) {
    const auto alone = order_->between_batches();
    order_->follow_readers(stream_.get());
    queue();
    written_.record(stream_.get());
  }
  // The streams of batches may be anybody's, and gone when a batch is done; readers_stream_ follows them.
  hash_table::Epoch begin_epoch() {
    const auto alone = order_->between_batches();
    order_->follow_readers(readers_stream_.get());
    return epochs_.begin();
  }
  /// Waits for the batches that may still read what was retired in an epoch.
  void wait_until_safe(uint64_t epoch) {
    const auto is_safe = [&] {
      const auto alone = order_->between_batches();
      order_->follow_readers(readers_stream_.get());
      return epochs_.poll() >= epoch;
    };
    while (!is_safe()) device::synchronize(readers_stream_.get());
  }

  const std::shared_ptr<BatchOrder> order_;
  device::OwnedStream stream_, readers_stream_;
  device::Event written_;  // behind the latest rows that were written between batches
  hash_table::Epochs epochs_;
  device::DeviceMemory device_;
  device::PinnedMemory host_;
};

}}}  // namespace warprank::v0::cuda_backend
