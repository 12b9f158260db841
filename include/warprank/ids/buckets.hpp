// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows of direct tables: text and integers by TensorFlow's bucket hash, numbers by their interval.
///
///     constexpr ids::HashBuckets genres{1000};
///     constexpr ids::Boundaries age_groups{18, 25, 35};
///     request.ids(genre_row, {genres.bucket("comedy")}).ids(age_row, {age_groups.bucket(31.f)});

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/host_device.hpp"
#include "warprank/ids/fingerprint.hpp"

namespace warprank { inline namespace v0 { namespace ids {

/// The buckets of tf.strings.to_hash_bucket_fast, keras.layers.Hashing without a salt and
/// tf.feature_column.categorical_column_with_hash_bucket; of a cross, those of tf.sparse.cross_hashed. Values share
/// buckets by design. Throws invalid_argument for less than one bucket; a constant with such an error does not compile.
class HashBuckets {
 public:
  constexpr explicit HashBuckets(int64_t num_buckets) : num_buckets_(num_buckets) {
    if (num_buckets < 1) throw invalid_argument("hash buckets", "a number of at least 1", std::to_string(num_buckets));
  }

  WARPRANK_HOST_DEVICE constexpr int64_t num_buckets() const { return num_buckets_; }
  /// fingerprint mod num_buckets, both unsigned.
  WARPRANK_HOST_DEVICE constexpr int64_t bucket(Fingerprint value) const {
    return static_cast<int64_t>(value.value() % static_cast<uint64_t>(num_buckets_));
  }

 private:
  int64_t num_buckets_;
};

/// The bucket of x among the intervals that strictly ascending boundaries b [num_boundaries] cut: 0 is below b[0], i is
/// [b[i - 1], b[i]), num_boundaries is from the last boundary on, and for NaN. As in
/// tf.feature_column.bucketized_column, Keras' Discretization, numpy.digitize and torch.bucketize(right=True). A value
/// that is not a float is compared as the nearest float.
///
///     bucketize(x, b) = number of i with not (x < b[i])
WARPRANK_HOST_DEVICE constexpr int64_t bucketize(float x, const float* boundaries, int64_t num_boundaries) {
  int64_t first = 0, last = num_boundaries;  // the bucket is in [first, last]
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    if (x < boundaries[middle])
      last = middle;
    else
      first = middle + 1;
  }
  return first;
}

/// Throws invalid_argument unless there is a boundary and each is greater than the one before; NaN is greater than no
/// boundary.
constexpr void check_boundaries(const float* boundaries, int64_t num_boundaries) {
  if (num_boundaries < 1) throw invalid_argument("boundaries", "at least one", std::to_string(num_boundaries));
  float previous = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < num_boundaries; ++i) {
    const bool ascends = i == 0 ? boundaries[0] >= previous : boundaries[i] > previous;
    if (!ascends)
      throw invalid_argument("boundary " + std::to_string(i), "a number greater than the one before it",
                             std::to_string(boundaries[i]) + (i == 0 ? "" : " after " + std::to_string(previous)));
    previous = boundaries[i];
  }
}

/// Boundaries that are known at compile time; kernels take it by value. Check boundaries from a file once with
/// check_boundaries, and use bucketize.
template <std::size_t NumBoundaries>
class Boundaries {
 public:
  template <class... Numbers>
  constexpr explicit Boundaries(Numbers... boundaries) : boundaries_{static_cast<float>(boundaries)...} {
    check_boundaries(boundaries_, NumBoundaries);
  }

  WARPRANK_HOST_DEVICE static constexpr int64_t num_buckets() { return static_cast<int64_t>(NumBoundaries) + 1; }
  WARPRANK_HOST_DEVICE constexpr int64_t bucket(float x) const { return bucketize(x, boundaries_, NumBoundaries); }

 private:
  float boundaries_[NumBoundaries];
};
template <class... Numbers>
Boundaries(Numbers...) -> Boundaries<sizeof...(Numbers)>;

}}}  // namespace warprank::v0::ids
