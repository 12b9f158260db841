// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Embedding tables for benchmarks on a GPU, of any size: filled there, with numbers that the host can compute as well.

#include <cstdint>
#include <cstring>
#include <vector>

#include "measure_cuda.cuh"
#include "warprank/core/host_device.hpp"
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

WARPRANK_KERNEL(256, 1)
fill_table_kernel(DType type, uint32_t* words, int64_t count) {
  for (int64_t i = device::global_thread_rank(); i < count; i += device::num_threads())
    device::store(&words[i], word_of_table(type, static_cast<uint64_t>(i)));
}

/// A table of F32, F16 or I8, whose rows are a multiple of 4 bytes.
class BenchTable {
 public:
  BenchTable(Memory& memory, DType type, int64_t num_rows, int64_t dim) {
    view_.type = type, view_.num_rows = num_rows, view_.dim = dim, view_.row_stride_bytes = view_.row_bytes();
    const int64_t words = num_rows * view_.row_bytes() / 4;
    auto* const rows = memory.allocate<uint32_t>(words);
    device::launch({static_cast<unsigned>(8 * device::num_multiprocessors()), 256, 0, memory.stream()},
                   fill_table_kernel, type, rows, words);
    device::synchronize(memory.stream());
    view_.rows = rows;
    if (type != DType::i8) return;
    std::vector<float> scale, offset;
    for (int64_t r = 0; r < num_rows; ++r) scale.push_back(scale_of(r)), offset.push_back(offset_of(r));
    view_.scale = memory.upload(scale);
    view_.offset = memory.upload(offset);
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
      some.scale.push_back(scale_of(row)), some.offset.push_back(offset_of(row));
    }
    some.view = view_;
    some.view.rows = some.words.data(), some.view.num_rows = static_cast<int64_t>(which.size());
    some.view.scale = some.scale.data(), some.view.offset = some.offset.data();
    return some;
  }

 private:
  static float scale_of(int64_t row) { return 0.01f + 0.001f * static_cast<float>(row % 7); }
  static float offset_of(int64_t row) { return 0.1f * static_cast<float>(row % 5 - 2); }

  TableView view_;
};

}  // namespace warprank::bench
