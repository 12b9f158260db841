// SPDX-License-Identifier: Apache-2.0

/// A hash table of 64-bit ids on the device: built on the host, copied, looked up, and updated while it may be read.

#include <cstring>

#include "memory.cuh"
#include "warprank/hash_table/build.hpp"
#include "warprank/ops/hash_table.cuh"
#include "warprank/ops/hash_table_epochs.cuh"

namespace wr = warprank;

int main() {
  const int64_t dim = 8, row_bytes = dim * 4;
  const std::vector<int64_t> ids = {-5, 17, 1'000'000'007};
  std::vector<float> rows(ids.size() * dim);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / dim);
  wr::HashTableOptions options;
  options.capacity = 1000;  // with room for more
  const wr::HashTable on_this_host =
      wr::build_hash_table({wr::DType::f32, dim, true}, {3, ids.data(), rows.data()}, options);

  wr::HashTableHeader header;
  std::memcpy(&header, on_this_host.image().data(), sizeof header);
  const wr::HashTableView table = wr::view_hash_table(header, on_device(on_this_host.image()));
  auto* const wanted = on_device(std::vector<int64_t>{17, 4, -5});
  auto* const found_rows = allocate<float>(3 * dim);
  auto* const found = allocate<uint8_t>(3);

  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  wr::hash_table::Epochs epochs;
  epochs.add_reader(stream);
  const wr::hash_table::Epoch epoch = epochs.begin();
  wr::hash_table::insert_or_assign(table, {on_device(std::vector<int64_t>{4}), 1},
                                   on_device(std::vector<float>(dim, 9)), row_bytes, epoch, nullptr, stream);
  epochs.end(stream);
  wr::hash_table::find(table, {wanted, 3}, found_rows, row_bytes, found, stream);

  int failures = 0;
  const std::vector<float> got = on_host(found_rows, 3 * dim, stream);
  expect_near("the row of 17", got[0], 1, 0, failures);
  expect_near("the row of 4, which came later", got[dim], 9, 0, failures);
  expect_near("the row of -5", got[2 * dim], 0, 0, failures);
  expect_near("whether -5 was found", on_host(found, 3, stream)[2], 1, 0, failures);
  return failures;
}
