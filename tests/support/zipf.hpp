// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Seeded ids as recommendation sees them: few are asked for often, most rarely. For tests and benchmarks.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace warprank::test_support {

/// Uniform in [0, 1), of 53 random bits of a generator of 32 or 64: the same on every machine, which the
/// distributions of the standard library are not.
template <class Engine>
double uniform_01(Engine& random) {
  static_assert(Engine::min() == 0 && (Engine::max() == UINT32_MAX || Engine::max() == UINT64_MAX));
  uint64_t bits = random();
  if constexpr (Engine::max() == UINT32_MAX) bits = bits << 32 | random();
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// Ids of [0, size) of which the k-th most frequent has a probability proportional to k^-alpha; uniform with alpha 0.
/// The frequent ones are spread over the range, as hashed ids are.
///
/// Drawn by rejection-inversion (Hoermann and Derflinger 1996): a point under the area of x^-alpha from 1/2 to size +
/// 1/2 is turned into x, whose nearest integer is the rank, unless the point is above that rank's own bar. It needs no
/// table, and a draw takes one step or a few for any size.
class Zipf {
 public:
  /// `size` is 1 to 2^31, `alpha` 0 or more.
  Zipf(int64_t size, double alpha)
      : size_(size),
        alpha_(alpha),
        first_area_(area(1.5) - 1),
        last_area_(area(static_cast<double>(size) + 0.5)),
        near_enough_(2 - inverse_area(area(2.5) - std::pow(2.0, -alpha))) {
    constexpr double golden_ratio = 0.6180339887498949;
    step_ = std::max<int64_t>(1, static_cast<int64_t>(golden_ratio * static_cast<double>(size)));
    while (std::gcd(step_, size_) != 1) ++step_;
  }

  /// 0 for the most frequent id.
  template <class Engine>
  int64_t rank(Engine& random) const {
    if (alpha_ == 0) return static_cast<int64_t>(uniform_01(random) * static_cast<double>(size_));
    while (true) {
      const double point = last_area_ + uniform_01(random) * (first_area_ - last_area_), x = inverse_area(point);
      const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(size_));
      if (k - x <= near_enough_ || point >= area(k + 0.5) - std::pow(k, -alpha_)) return static_cast<int64_t>(k) - 1;
    }
  }
  int64_t id_of_rank(int64_t rank) const { return rank * step_ % size_; }

  template <class Engine>
  int64_t operator()(Engine& random) const {
    return id_of_rank(rank(random));
  }

  /// How often an id of this rank is drawn.
  double probability(int64_t rank) const {
    double all = 0;
    for (int64_t k = size_; k >= 1; --k) all += std::pow(static_cast<double>(k), -alpha_);
    return std::pow(static_cast<double>(rank + 1), -alpha_) / all;
  }

 private:
  /// The integral of x^-alpha from 1 to x, and its inverse; both also where alpha is 1 or close to it.
  double area(double x) const {
    const double log_x = std::log(x), y = (1 - alpha_) * log_x;
    return y == 0 ? log_x : log_x * std::expm1(y) / y;
  }
  double inverse_area(double a) const {
    const double y = std::max(-1.0, (1 - alpha_) * a);
    return std::exp(y == 0 ? a : a * std::log1p(y) / y);
  }

  int64_t size_, step_;
  double alpha_, first_area_, last_area_;
  double near_enough_;  // x is below its rank by so little that it is under the bar for certain
};

}  // namespace warprank::test_support
