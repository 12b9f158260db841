// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How the rows of a GPU's tables come to where they lie.

#include <algorithm>
#include <cstdint>

#include "warprank/core/buffer.hpp"
#include "warprank/core/cuda_error.hpp"
#include "warprank/core/pace.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/table_parts.cuh"
#include "warprank/engine/table_delta.hpp"
#include "warprank/engine/table_source.hpp"
#include "warprank/hash_table/detail/parallel.hpp"
#include "warprank/ops/scaled_rows.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Writes what is loaded, the host's memory by all cores: behind a piece; without a pace the next one follows at once.
/// When it goes, also because one of its copies was refused, those that are queued have read what they read.
class TableLoader {
 public:
  TableLoader(const CudaTable& table, Pace& pace, device::Stream stream)
      : table_(table), pace_(pace), stream_(stream) {}
  ~TableLoader() {
    if (is_finished_) return;
    try {
      device::synchronize(stream_);
    } catch (const cuda_error&) {  // whoever copied was told
    }
  }
  TableLoader(const TableLoader&) = delete;
  TableLoader& operator=(const TableLoader&) = delete;

  /// All rows of the table, wherever they lie; none of one in a store.
  void write_all_rows(const TableSource& source) {
    if (source.in_store) return;
    if (source.rows == nullptr) {
      write_rows(0, source.image().data(), source.image().size());
    } else if (source.placement.where == Placement::cached) {
      write_as_hashed(source);
    } else if (source.type == DType::i8) {
      write_scaled(source);
    } else {
      write_rows(0, source.rows->data, source.rows->bytes);
    }
  }
  /// Waits for all that is queued in the stream; nothing is written any more.
  void finish() {
    device::synchronize(stream_);
    is_finished_ = true;
  }
  /// To the table's own memory on the device.
  void write(int64_t at, const void* from, int64_t bytes) {
    auto* const to = static_cast<unsigned char*>(table_.memory.data()) + at;
    in_pieces(bytes, [&](int64_t done, int64_t size) {
      device::copy_to_device(to + done, static_cast<const unsigned char*>(from) + done, size, stream_);
      if (pace_.is_limited()) device::synchronize(stream_);
    });
  }

 private:
  bool is_on_host() const { return table_.on_host.data() != nullptr; }
  /// That fill the host's memory: one where others shall have cores.
  int threads() const { return pace_.is_limited() ? 1 : warprank::detail::threads_for(0); }

  void write_rows(int64_t at, const void* from, int64_t bytes) {
    if (!table_.is_shared()) return write(at, from, bytes);
    if (is_on_host()) return write_on_host(at, from, bytes);
    in_pieces(bytes, [&](int64_t done, int64_t size) {
      table_.sharded.write(at + done, static_cast<const unsigned char*>(from) + done, size, stream_);
      if (pace_.is_limited()) device::synchronize(stream_);
    });
  }
  void write_on_host(int64_t at, const void* from, int64_t bytes) {
    warprank::detail::parallel_for((bytes + piece - 1) / piece, threads(), [&](int64_t i) {
      const int64_t done = i * piece, size = std::min(piece, bytes - done);
      table_.on_host.write(at + done, static_cast<const unsigned char*>(from) + done, size);
      pace_.moved(size);
    });
  }

  /// Rows of I8 with their scales and offsets.
  void write_scaled(const TableSource& source) {
    const int64_t dim = source.info.dim;
    const TableView table{source.type,
                          source.rows->data,
                          source.rows->shape[0],
                          dim,
                          dim,
                          reinterpret_cast<const float*>(source.scale->data),
                          reinterpret_cast<const float*>(source.offset->data)};
    write_made_rows(table.num_rows, scaled_row_bytes(dim),
                    [&](int64_t row, int64_t count, unsigned char* to) { to_scaled_rows(table, row, count, to); });
  }
  /// Rows of a direct table as a hash table keeps them.
  void write_as_hashed(const TableSource& source) {
    const KeptRows kept(source);
    TableDelta rows;
    rows.rows = source.rows, rows.scale = source.scale, rows.offset = source.offset;
    write_made_rows(source.rows->shape[0], kept.stride, [&](int64_t row, int64_t count, unsigned char* to) {
      for (int64_t i = 0; i < count; ++i) rows.copy_row(row + i, to + i * kept.stride, kept.bytes);
    });
  }
  /// Calls make(row, count, to) for pieces, of which each thread has one in memory at a time.
  template <class Make>
  void write_made_rows(int64_t num_rows, int64_t row_bytes, const Make& make) {
    const int64_t most = std::max<int64_t>(1, piece / row_bytes);
    const auto write_some = [&](int64_t begin, int64_t end, Buffer<unsigned char>& some) {
      some = Buffer<unsigned char>(std::min(most, end - begin) * row_bytes);
      for (int64_t row = begin; row < end; row += most) {
        const int64_t count = std::min(most, end - row);
        make(row, count, some.data());
        write_rows(row * row_bytes, some.data(), count * row_bytes);
        if (!is_on_host()) device::synchronize(stream_);
      }
    };
    if (!is_on_host()) return write_some(0, num_rows, some_);
    const warprank::detail::Parts parts(num_rows, most, threads());
    warprank::detail::parallel_for(parts.size(), threads(), [&](int64_t i) {
      Buffer<unsigned char> some;
      write_some(parts.begin(i), parts.end(i), some);
    });
  }

  static constexpr int64_t piece = int64_t{4} << 20;  // so that copies of whoever is serving get in between

  template <class Write>
  void in_pieces(int64_t bytes, Write&& write_piece) {
    for (int64_t done = 0; done < bytes; done += piece) {
      const int64_t size = std::min(piece, bytes - done);
      write_piece(done, size);
      pace_.moved(size);
    }
  }

  const CudaTable& table_;
  Pace& pace_;
  device::Stream stream_;
  Buffer<unsigned char> some_;  // rows that are copied to a device
  bool is_finished_ = false;
};

}}}  // namespace warprank::v0::cuda_backend
