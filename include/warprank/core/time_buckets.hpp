// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Buckets of differences of time, on a logarithmic scale: bucket(d) = min(floor(log(max(1, |d|)) / width), count), of
/// an infinite d that of the largest finite one.
///
/// A logarithm has other last bits on other machines. So a bucket is found by comparisons of FP32 with its limits,
/// which are computed once, and is the same everywhere. The bits of a float, taken for an integer, are close to its
/// binary logarithm, by 0.0861 too small at the most: these tell the bucket or the one before.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace warprank { inline namespace v0 {

/// The narrowest buckets for which the bits of a float suffice, and the most buckets behind the first: FP32 ends at
/// log(d) = 88.8.
inline constexpr float min_time_bucket_width = 0.0625f;
inline constexpr int64_t max_time_buckets = 1424;

/// By bucket, [count + 1]: the least difference that belongs to a later one; of the last bucket infinity, as none does.
inline std::vector<float> time_bucket_limits(int64_t count, float width) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> limits;
  for (int64_t bucket = 0; bucket < count; ++bucket) {
    const double exact = std::exp(static_cast<double>(width) * static_cast<double>(bucket + 1));
    const bool is_float = exact <= static_cast<double>(std::numeric_limits<float>::max());
    const float near = is_float ? static_cast<float>(exact) : infinity;
    limits.push_back(static_cast<double>(near) < exact ? std::nextafter(near, infinity) : near);
  }
  limits.push_back(infinity);
  return limits;
}

/// How many buckets the distance of two floats' bits is worth, slightly less than it is.
inline float time_buckets_per_bit(float width) {
  constexpr double log_of_2 = 0.693147180559945309, bits_of_octave = 0x1p23, less = 1 - 0x1p-20;
  return static_cast<float>(log_of_2 / static_cast<double>(width) / bits_of_octave * less);
}

/// The bits of 1, of which the bucket is the first.
inline constexpr int32_t bits_of_one = 0x3f800000;

}}  // namespace warprank::v0
