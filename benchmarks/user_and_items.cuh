// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The columns of users and of their items in device memory, for benchmarks of ops that take both.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dense_data.hpp"
#include "measure_cuda.cuh"
#include "simulated.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/row_programs.cuh"
#include "workloads.hpp"

namespace warprank::bench {

/// Requests and items of each, in the mean: one request, and several that are merged.
inline std::vector<std::pair<int64_t, int64_t>> request_sizes() {
  if (!on_gpu) return {{1, 5}, {3, 7}};
  return {{1, 50}, {1, 100}, {1, 500}, {1, 1000}, {16, 100}, {64, 100}};
}
/// Of sweeps: up to many rows for each multiprocessor; and such alone. A card in software, which has fewer of them,
/// takes minutes for what is larger.
inline std::vector<std::pair<int64_t, int64_t>> sizes_of_sweeps() {
  if (!on_gpu) return {{2, 50}};
  if (is_simulated()) return {{1, 100}, {1, 200}, {1, 500}, {1, 1000}, {16, 100}, {32, 100}, {64, 100}};
  return {{1, 100}, {1, 500}, {1, 1000}, {16, 100}, {32, 100}, {64, 100}, {64, 500}};
}
inline std::vector<std::pair<int64_t, int64_t>> many_rows_of_sweeps() {
  if (!on_gpu) return {{3, 50}};
  if (is_simulated()) return {{16, 100}, {32, 100}, {64, 100}};
  return {{64, 100}, {128, 100}, {64, 500}};
}
inline std::string request_name(int64_t requests, int64_t items) {
  return "requests:" + std::to_string(requests) + "/items:" + std::to_string(items);
}

class UserAndItems {
 public:
  UserAndItems(Memory& memory, int64_t requests, int64_t items, int64_t user_cols, int64_t item_cols)
      : host_offsets_(request_offsets(requests, items)),
        host_user_(random_halves(requests * user_cols, 1)),
        host_item_(random_halves(requests * items * item_cols, 2)),
        offsets_(memory.upload(host_offsets_)),
        user_(memory.upload(host_user_), requests, user_cols),
        item_(memory.upload(host_item_), requests * items, item_cols),
        expanded_(memory.allocate<float16>(requests * items * (user_cols + item_cols)), requests * items,
                  user_cols + item_cols) {}

  int64_t num_items() const { return item_.rows; }
  int64_t cols() const { return user_.cols + item_.cols; }
  double bytes() const { return 2.0 * static_cast<double>(host_user_.size() + host_item_.size()); }
  const int64_t* offsets() const { return offsets_; }
  Matrix<const float16> user() const { return user_; }
  Matrix<const float16> item() const { return item_; }
  std::vector<AxisInput<float16>> inputs() const { return {{user_, offsets_}, {item_}}; }

  /// Both side by side, with the user's columns in every row: what `expansion` writes.
  Matrix<float16> expanded() const { return expanded_; }
  std::vector<RowProgram> expansion() const {
    std::vector<RowProgram> copies(2);
    for (size_t i = 0; i < 2; ++i) copies[i].inputs = {&row_inputs_[i], 1};
    copies[0].y = expanded_.columns(0, user_.cols);
    copies[1].y = expanded_.columns(user_.cols, item_.cols);
    return copies;
  }

  /// Rows of both side by side, on the host.
  std::vector<float> rows(const std::vector<int64_t>& items) const {
    std::vector<float> values;
    for (const int64_t item : items) {
      const auto end = std::upper_bound(host_offsets_.begin() + 1, host_offsets_.end(), item);
      const int64_t user = end - host_offsets_.begin() - 1;
      for (const auto& [from, row, cols] :
           {std::tuple{&host_user_, user, user_.cols}, std::tuple{&host_item_, item, item_.cols}})
        for (int64_t c = 0; c < cols; ++c) values.push_back(to_float((*from)[static_cast<size_t>(row * cols + c)]));
    }
    return values;
  }

 private:
  std::vector<int64_t> host_offsets_;
  std::vector<float16> host_user_, host_item_;
  const int64_t* offsets_;
  Matrix<const float16> user_, item_;
  Matrix<float16> expanded_;
  std::array<AxisInput<void>, 2> row_inputs_{AxisInput<void>{user_, offsets_}, AxisInput<void>{item_}};
};

}  // namespace warprank::bench
