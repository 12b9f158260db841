// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What benchmarks of the host and of GPUs run on: the look-ups of public benchmarks and of serving, and requests.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "support/zipf.hpp"
#include "warprank/core/dtype.hpp"

namespace warprank::bench {

/// A feature: bags of `least_ids` to `most_ids` ids, uniformly many.
struct BagShape {
  int64_t num_rows, dim, num_bags;
  int64_t least_ids = 1, most_ids = 1;
};

/// Features that are looked up together and pooled by sums.
struct BagWorkload {
  std::string name;
  DType type = DType::f16;  ///< of rows
  double alpha = 0;         ///< of the ids' Zipf distribution
  std::vector<BagShape> features;
  bool scales_are_behind = false;  ///< the rows of I8, and not in arrays of their own
};

/// The ids of a feature.
struct BagIds {
  std::vector<int64_t> ids, offsets{0};

  int64_t num_bags() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_unique() const {
    return static_cast<int64_t>(std::unordered_set<int64_t>(ids.begin(), ids.end()).size());
  }
};

inline BagIds make_ids(const BagShape& shape, double alpha, uint64_t seed) {
  const test_support::Zipf zipf(shape.num_rows, alpha);
  std::mt19937_64 random(seed);
  BagIds made;
  for (int64_t b = 0; b < shape.num_bags; ++b) {
    const auto range = static_cast<double>(shape.most_ids - shape.least_ids + 1);
    const int64_t count = shape.least_ids + static_cast<int64_t>(test_support::uniform_01(random) * range);
    for (int64_t i = 0; i < count; ++i) made.ids.push_back(zipf(random));
    made.offsets.push_back(static_cast<int64_t>(made.ids.size()));
  }
  return made;
}

/// Whatever a workload has besides its name, a hundredth of the rows and a few bags of each feature: to try code.
inline BagWorkload small(BagWorkload workload) {
  for (BagShape& shape : workload.features) {
    shape.num_rows = std::clamp<int64_t>(shape.num_rows / 100, 1, 1000);
    shape.num_bags = std::min<int64_t>(shape.num_bags, 3);
    shape.least_ids = std::min<int64_t>(shape.least_ids, 20), shape.most_ids = std::min<int64_t>(shape.most_ids, 20);
  }
  if (workload.features.size() > 40) workload.features.resize(40);
  return workload;
}

/// "alpha:1.05"
inline std::string alpha_name(double alpha) { return "alpha:" + std::to_string(alpha).substr(0, 4); }

/// FBGEMM's nbit_device benchmark: 32 tables of 100,000 rows of 128, batches of 512, bags of 20.
inline BagWorkload nbit_device(DType type, double alpha) {
  return {"nbit_device/" + std::string(type == DType::i8 ? "int8/" : "fp16/") + alpha_name(alpha), type, alpha,
          std::vector<BagShape>(32, {100000, 128, 512, 20, 20})};
}

/// The same of I8, with scale and offset behind each row.
inline BagWorkload nbit_device_behind(double alpha) {
  BagWorkload workload = nbit_device(DType::i8, alpha);
  workload.name = "nbit_device/int8_behind/" + alpha_name(alpha);
  workload.scales_are_behind = true;
  return workload;
}

/// A point of cuEmbed's sweep: one table.
inline BagWorkload cuembed(int64_t num_rows, int64_t dim, int64_t batch, int64_t hotness, double alpha) {
  return {"cuembed/rows:" + std::to_string(num_rows / 1000000) + "M/dim:" + std::to_string(dim) +
              "/batch:" + std::to_string(batch) + "/hot:" + std::to_string(hotness) + "/" + alpha_name(alpha),
          DType::f16,
          alpha,
          {{num_rows, dim, batch, hotness, hotness}}};
}

/// 800 features as RecFlex has them: dims of 4 to 128, six of ten of one id, one of ten of up to 1000.
inline BagWorkload recflex_like(double alpha) {
  BagWorkload workload{"recflex_like/" + alpha_name(alpha), DType::f16, alpha, {}};
  const int64_t dims[] = {4, 8, 16, 32, 64, 128};
  for (int64_t f = 0; f < 800; ++f) {
    const int64_t most = f % 10 < 6 ? 1 : f % 10 < 9 ? 50 : 1000;
    workload.features.push_back({f % 3 == 0 ? 100000 : 10000, dims[f % 6], 64, most == 1 ? 1 : 0, most});
  }
  return workload;
}

/// The 26 tables of Criteo's Kaggle data set (Naumov et al. 2019, DLRM) with rows of 128: one id each.
inline BagWorkload criteo(double alpha) {
  BagWorkload workload{"criteo/" + alpha_name(alpha), DType::f16, alpha, {}};
  for (const int64_t rows :
       {1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
        27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572})
    workload.features.push_back({rows, 128, 2048});
  return workload;
}

/// A request of one user and its items, or several that are merged: 50 features of users, among them four histories of
/// 50 to 200 events, and 70 of items, ten of them bags. Dims of 4 to 32.
inline BagWorkload serving(int64_t requests, int64_t items, double alpha) {
  BagWorkload workload{
      "serving/requests:" + std::to_string(requests) + "/items:" + std::to_string(items) + "/" + alpha_name(alpha),
      DType::f16,
      alpha,
      {}};
  const int64_t dims[] = {4, 8, 16, 32};
  for (int64_t f = 0; f < 120; ++f) {
    const bool of_user = f < 50, is_history = f < 4, is_bag = f >= 110;
    BagShape shape{f % 4 == 3 ? 1000000 : 10000, dims[f % 4], requests * (of_user ? 1 : items)};
    if (is_history) shape.least_ids = 50, shape.most_ids = 200;
    if (is_bag) shape.least_ids = 0, shape.most_ids = 10;
    workload.features.push_back(shape);
  }
  return workload;
}

inline const std::vector<double>& alphas() {
  static const std::vector<double> all{0, 1.05, 1.15};
  return all;
}

inline std::vector<BagWorkload> bag_workloads() {
  std::vector<BagWorkload> all;
  for (const double alpha : alphas()) {
    all.push_back(nbit_device(DType::f16, alpha));
    all.push_back(nbit_device(DType::i8, alpha));
    all.push_back(nbit_device_behind(alpha));
  }
  for (const double alpha : alphas())
    for (const int64_t rows : {1000000, 10000000})
      for (const int64_t dim : {32, 128}) {
        all.push_back(cuembed(rows, dim, 1024, 1, alpha));
        all.push_back(cuembed(rows, dim, 1024, 64, alpha));
        all.push_back(cuembed(rows, dim, 32768, 16, alpha));
      }
  all.push_back(recflex_like(1.05));
  for (const double alpha : alphas()) all.push_back(criteo(alpha));
  for (const auto& [requests, items] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{1, 50}, {1, 500}, {16, 100}, {64, 100}})
    all.push_back(serving(requests, items, 1.05));
  return all;
}

/// Where the rows of requests begin: `mean` rows in the mean, for several requests from half to one and a half.
inline std::vector<int64_t> request_offsets(int64_t requests, int64_t mean, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> offsets{0};
  for (int64_t r = 1; r < requests; ++r) {
    const double off = (test_support::uniform_01(random) - 0.5) * static_cast<double>(mean);
    offsets.push_back(std::max(offsets.back(), r * mean + static_cast<int64_t>(off / 2)));
  }
  offsets.push_back(requests * mean);
  return offsets;
}

}  // namespace warprank::bench
