// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model whose table of items is made up, of any number of rows: an item's row follows from its number.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "warprank/core/pages.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/model.hpp"
#include "warprank/weights/weights.hpp"

namespace tiers {

constexpr int64_t dim = 16, row_bytes = 2 * dim;  // FP16
constexpr int64_t num_requests = 16, num_items = 100, num_seen = 50;

inline warprank::Plan plan_of(int64_t num_rows) {
  warprank::CompileOptions options;
  options.capacities = {
      {.requests = num_requests, .items = num_requests * num_items, .rows = {{"seen", num_requests * num_seen}}}};
  return warprank::compile(
      [num_rows](warprank::Builder& b) -> warprank::Outputs {
        const auto user = b.axis("user"), item = b.axis("item", user), seen = b.axis("seen", user);
        const auto items = b.table("item", {.dim = dim, .rows = num_rows});
        const auto history = b.embed_bag(b.ids("seen_id", seen), items, warprank::Pooling::mean);
        const auto x = b.concat({b.expand(history, item), b.embed(b.ids("item_id", item), items)});
        return {{"ctr", b.sigmoid(b.mlp("tower", x, {64, 32, 1}, warprank::relu))}};
      },
      options);
}

inline warprank::Weights dense_weights(const warprank::Plan& plan) {
  std::mt19937 random(1);
  std::map<std::string, warprank::StoredTensor> tensors;
  for (const warprank::Parameter& parameter : plan.parameters()) {
    std::vector<float> values(static_cast<size_t>(*warprank::num_elements(parameter.shape)));
    for (float& value : values) value = static_cast<float>(static_cast<double>(random()) / 0x1p32 - 0.5) / 2;
    tensors.emplace(parameter.name, warprank::make_tensor(parameter.shape, values));
  }
  return warprank::Weights::from_tensors(std::move(tensors));
}

/// Numbers of 0.5 to 1, with either sign.
inline void make_row(int64_t item, unsigned char* to) {
  for (int64_t part = 0; part < row_bytes / 8; ++part) {
    const uint64_t bits = warprank::hash_table::fmix64(static_cast<uint64_t>(item * (row_bytes / 8) + part));
    const uint64_t four = (bits & 0x83ff83ff83ff83ffu) | 0x3800380038003800u;
    std::memcpy(to + 8 * part, &four, 8);
  }
}

/// All rows, made by all cores.
inline warprank::Weights table_in_memory(int64_t num_rows) {
  auto rows = std::make_shared<warprank::Pages>(num_rows * row_bytes);
  const int64_t num_threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < num_threads; ++t)
    threads.emplace_back([&rows, num_rows, num_threads, t] {
      for (int64_t row = num_rows * t / num_threads; row < num_rows * (t + 1) / num_threads; ++row)
        make_row(row, rows->data() + row * row_bytes);
    });
  for (std::thread& thread : threads) thread.join();
  const warprank::TensorView view{
      "F16", warprank::DType::f16, {num_rows, dim}, reinterpret_cast<const std::byte*>(rows->data()), rows->size()};
  return warprank::Weights::from_views({{"item", view}}, rows);
}

/// Items of which few are asked for often: the k-th most frequent with a probability of about 1/k. The frequent ones
/// are all over the table.
class SkewedItems {
 public:
  explicit SkewedItems(int64_t num_rows) : num_rows_(num_rows) {}

  std::vector<int64_t> draw(int64_t count) {
    std::vector<int64_t> items;
    for (int64_t i = 0; i < count; ++i) {
      const double uniform = static_cast<double>(random_()) / 0x1p32;
      const auto rank = static_cast<int64_t>(std::pow(static_cast<double>(num_rows_ + 1), uniform)) - 1;
      items.push_back(static_cast<int64_t>(warprank::hash_table::scale_hash(
          warprank::hash_table::fmix64(static_cast<uint64_t>(rank)), static_cast<uint64_t>(num_rows_))));
    }
    return items;
  }

 private:
  int64_t num_rows_;
  std::mt19937 random_{2};
};

}  // namespace tiers
