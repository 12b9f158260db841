// SPDX-License-Identifier: Apache-2.0

/// Interactions of three fields, two of a user and one of an item: all dot products (DLRM), and their sum as a
/// factorisation machine has it.

#include "memory.cuh"
#include "warprank/ops/dot.cuh"
#include "warprank/ops/fm.cuh"

namespace wr = warprank;

int main() {
  const int64_t dim = 16, users = 1, items = 100;
  std::vector<wr::float16> of_user(users * 2 * dim, wr::to_float16(0.5f)), of_items(items * dim, wr::to_float16(2.0f));
  const wr::AxisInput<wr::float16> fields[] = {
      {wr::Matrix<const wr::float16>(on_device(of_user), users, 2 * dim), on_device(std::vector<int64_t>{0, items})},
      {wr::Matrix<const wr::float16>(on_device(of_items), items, dim)}};
  auto* const pairs = allocate<float>(items * 3);
  auto* const sums = allocate<float>(items);

  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  const wr::Dot<float> dot(fields, dim, {}, wr::Matrix<float>(pairs, items, 3));
  const wr::Fm<wr::float16, float> fm(fields, dim, wr::Matrix<float>(sums, items, 1), nullptr, {true});
  dot.launch({}, stream);
  fm.launch({}, stream);

  int failures = 0;
  const std::vector<float> got = on_host(pairs, items * 3, stream);
  expect_near("the user's fields with one another", got[0], 0.25 * dim, 0, failures);
  expect_near("the first with the item", got[1], 1.0 * dim, 0, failures);
  expect_near("the sum of all three", on_host(sums, items, stream)[items - 1], 2.25 * dim, 0, failures);
  return failures;
}
