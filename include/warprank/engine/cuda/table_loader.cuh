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
#include "warprank/ops/scaled_rows.hpp"

namespace warprank::cuda_backend {

/// Writes what is loaded: behind a piece; without a pace the next one follows at once. When it goes, also because one
/// of its copies was refused, those that are queued have read what they read.
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

  /// All rows of the table, wherever they lie.
  void write_all_rows(const TableSource& source) {
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
  void write_rows(int64_t at, const void* from, int64_t bytes) {
    if (!table_.is_shared()) return write(at, from, bytes);
    in_pieces(bytes, [&](int64_t done, int64_t size) {
      const auto* const part = static_cast<const unsigned char*>(from) + done;
      if (table_.on_host.data() != nullptr) return table_.on_host.write(at + done, part, size);
      table_.sharded.write(at + done, part, size, stream_);
      if (pace_.is_limited()) device::synchronize(stream_);
    });
  }
  /// Rows of I8, of which a piece is in the host's memory at a time.
  void write_scaled(const TableSource& source) {
    const int64_t dim = source.info.dim;
    const TableView table{source.type,
                          source.rows->data,
                          source.rows->shape[0],
                          dim,
                          dim,
                          reinterpret_cast<const float*>(source.scale->data),
                          reinterpret_cast<const float*>(source.offset->data)};
    const int64_t row_bytes = scaled_row_bytes(dim), most = std::max<int64_t>(1, piece / row_bytes);
    some_ = Buffer<unsigned char>(std::min(most, table.num_rows) * row_bytes);
    for (int64_t row = 0; row < table.num_rows; row += most) {
      const int64_t count = std::min(most, table.num_rows - row);
      to_scaled_rows(table, row, count, some_.data());
      write_rows(row * row_bytes, some_.data(), count * row_bytes);
      device::synchronize(stream_);
    }
  }

  /// Rows of a direct table as a hash table keeps them, likewise.
  void write_as_hashed(const TableSource& source) {
    const KeptRows kept(source);
    TableDelta rows;
    rows.rows = source.rows, rows.scale = source.scale, rows.offset = source.offset;
    const int64_t num_rows = source.rows->shape[0], most = std::max<int64_t>(1, piece / kept.stride);
    some_ = Buffer<unsigned char>(std::min(most, num_rows) * kept.stride);
    for (int64_t row = 0; row < num_rows; row += most) {
      const int64_t count = std::min(most, num_rows - row);
      for (int64_t i = 0; i < count; ++i) rows.copy_row(row + i, some_.data() + i * kept.stride, kept.bytes);
      write_rows(row * kept.stride, some_.data(), count * kept.stride);
    }
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
  Buffer<unsigned char> some_;  // rows that are written
  bool is_finished_ = false;
};

}  // namespace warprank::cuda_backend
