// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Embedding tables for benchmarks on a GPU, of any size: filled there, with numbers that the host can compute as well.

#include <cstdint>
#include <cstring>
#include <vector>

#include "measure_cuda.cuh"
#include "warprank/core/host_device.hpp"
#include "warprank/ops/scaled_rows.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank::bench {

/// The `word`-th four bytes of a table: random ones, as two halves or one float in +-[1/2, 1).
WARPRANK_HOST_DEVICE constexpr uint32_t word_of_table(DType type, uint64_t word) {
  uint64_t bits = (word + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9u;
  const auto random = static_cast<uint32_t>(bits >> 32);
  if (type == DType::f16) return (random & 0x83ff83ffu) | 0x38003800u;
  if (type == DType::f32) return (random & 0x807fffffu) | 0x3f000000u;
  return random;
}

WARPRANK_HOST_DEVICE constexpr float scale_of_row(int64_t row) { return 0.01f + 0.001f * static_cast<float>(row % 7); }
WARPRANK_HOST_DEVICE constexpr float offset_of_row(int64_t row) { return 0.1f * static_cast<float>(row % 5 - 2); }

/// Rows of `row_words`, `stride` words apart.
WARPRANK_KERNEL(256, 1)
fill_table_kernel(DType type, uint32_t* words, int64_t count, int64_t row_words, int64_t stride) {
  for (int64_t i = device::global_thread_rank(); i < count; i += device::num_threads())
    device::store(&words[i / row_words * stride + i % row_words], word_of_table(type, static_cast<uint64_t>(i)));
}
/// Scales and offsets `stride` floats apart.
WARPRANK_KERNEL(256, 1)
fill_scales_kernel(float* scale, float* offset, int64_t num_rows, int64_t stride) {
  for (int64_t r = device::global_thread_rank(); r < num_rows; r += device::num_threads()) {
    device::store(&scale[r * stride], scale_of_row(r));
    device::store(&offset[r * stride], offset_of_row(r));
  }
}

/// A table of F32, F16 or I8, whose rows are a multiple of 4 bytes. Scales and offsets of I8 are arrays, or behind
/// rows.
class BenchTable {
 public:
  BenchTable(Memory& memory, DType type, int64_t num_rows, int64_t dim, bool scales_are_behind = false) {
    const bool is_scaled = type == DType::i8, is_behind = is_scaled && scales_are_behind;
    const int64_t row_bytes = dim * size_of(type), stride = is_behind ? scaled_row_bytes(dim) : row_bytes;
    auto* const rows = memory.allocate<uint32_t>(num_rows * stride / 4);
    if (is_behind) {
      view_ = view_scaled_rows(rows, num_rows, dim);
    } else {
      view_ = {type, rows, num_rows, dim, stride};
    }
    if (is_scaled && !is_behind) {
      view_.scale = memory.allocate<float>(num_rows);
      view_.offset = memory.allocate<float>(num_rows);
    }
    const device::LaunchConfig config{static_cast<unsigned>(8 * device::num_multiprocessors()), 256, 0,
                                      memory.stream()};
    device::launch(config, fill_table_kernel, type, rows, num_rows * row_bytes / 4, row_bytes / 4, stride / 4);
    if (is_scaled) {
      device::launch(config, fill_scales_kernel, const_cast<float*>(view_.scale), const_cast<float*>(view_.offset),
                     num_rows, view_.scale_stride_bytes / 4);
    }
    device::synchronize(memory.stream());
  }
  const TableView& view() const { return view_; }
  /// With scale and offset.
  int64_t stored_row_bytes() const { return view_.row_bytes() + (view_.type == DType::i8 ? 8 : 0); }

  /// Some rows, in the memory of the host.
  struct Rows {
    std::vector<uint32_t> words;
    std::vector<float> scale, offset;
    TableView view;
  };
  Rows rows(const std::vector<int64_t>& which) const {
    Rows some;
    const int64_t words_per_row = view_.row_bytes() / 4;
    for (const int64_t row : which) {
      for (int64_t w = 0; w < words_per_row; ++w)
        some.words.push_back(word_of_table(view_.type, static_cast<uint64_t>(row * words_per_row + w)));
      some.scale.push_back(scale_of_row(row)), some.offset.push_back(offset_of_row(row));
    }
    some.view = {view_.type,        some.words.data(), static_cast<int64_t>(which.size()), view_.dim, view_.row_bytes(),
                 some.scale.data(), some.offset.data()};
    return some;
  }

 private:
  TableView view_;
};

}  // namespace warprank::bench
