// SPDX-License-Identifier: Apache-2.0

/// Look-ups in two tables in one launch: a category of each item, and the mean of what each user has seen, by offsets.

#include "memory.cuh"
#include "warprank/ops/embedding_bag.cuh"
#include "warprank/ops/resident.hpp"

namespace wr = warprank;

int main() {
  const int64_t dim = 16;
  std::vector<float> categories(100 * dim);
  std::vector<wr::float16> videos(5000 * dim);
  for (size_t i = 0; i < categories.size(); ++i) categories[i] = static_cast<float>(i / dim);
  for (size_t i = 0; i < videos.size(); ++i) videos[i] = wr::to_float16(static_cast<float>(i / dim % 64));
  auto* const of_items = allocate<float>(3 * dim);
  auto* const of_users = allocate<float>(2 * dim);

  std::vector<wr::BagFeature> features(2);
  features[0].table = {wr::DType::f32, on_device(categories), 100, dim, dim * 4};
  wr::IdArray items;  // an id is a row of y
  items.ids = on_device(std::vector<int64_t>{7, 99, 42});
  features[0].ids = items;
  features[0].num_bags.capacity = 3;
  features[0].y = wr::Matrix<float>(of_items, 3, dim);

  features[1].table = {wr::DType::f16, on_device(videos), 5000, dim, dim * 2};
  wr::IdArray seen;  // user 0 has seen three videos, user 1 none
  seen.ids = on_device(std::vector<int64_t>{1, 2, 6});
  seen.num_ids.capacity = 3;
  seen.offsets = on_device(std::vector<int64_t>{0, 3, 3});
  features[1].ids = seen;
  features[1].num_bags.capacity = 2;
  features[1].pooling = wr::Pooling::mean;
  features[1].y = wr::Matrix<float>(of_users, 2, dim);

  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  const wr::Resident bags(wr::EmbeddingBag(features), stream);
  bags.launch(stream);

  int failures = 0;
  expect_near("the category of item 1", on_host(of_items, 3 * dim, stream)[dim], 99, 0, failures);
  expect_near("the mean of 1, 2 and 6", on_host(of_users, 2 * dim, stream)[0], 3, 0, failures);
  expect_near("of nothing", on_host(of_users, 2 * dim, stream)[dim], 0, 0, failures);
  return failures;
}
