// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/cell.hpp"
#include "warprank/core/view.hpp"

namespace warprank::test_support {

/// Holds scores against exact values within u times the bound of each, and counts.
class BoundCheck {
 public:
  /// `vague`: which share of the largest number of an output (or of 1) a bound may have and still say something.
  explicit BoundCheck(double vague = 0.01) : vague_(vague) {}

  void expect_within(Span<const float> scores, const std::vector<reference::Row>& exact, const std::string& what) {
    constexpr double underflow = 0x1p-100;  // in units of u: below, floats are subnormal or none
    std::vector<reference::Cell> cells;
    for (const reference::Row& row : exact) cells.insert(cells.end(), row.begin(), row.end());
    ASSERT_EQ(scores.size(), static_cast<int64_t>(cells.size())) << what;
    double largest = 1;
    for (const reference::Cell& cell : cells)
      if (std::isfinite(cell.value)) largest = std::max(largest, std::fabs(cell.value));
    for (size_t i = 0; i < cells.size(); ++i) {
      const double x = scores[static_cast<int64_t>(i)], y = cells[i].value, bound = cells[i].bound + underflow;
      const bool is_vague = !(reference::u * bound <= vague_ * largest);
      ++num_;
      num_vague_ += is_vague;
      if ((std::isnan(x) && std::isnan(y)) || x == y || !std::isfinite(bound)) continue;
      const double error = std::fabs(x - y) / reference::u;
      EXPECT_LE(error, bound) << what << ", number " << i << ": " << x << ", exactly " << y;
    }
  }

  int64_t num() const { return num_; }
  /// Numbers whose bound says little.
  int64_t num_vague() const { return num_vague_; }

 private:
  double vague_;
  int64_t num_ = 0, num_vague_ = 0;
};

/// That the interpreter's values are another float64 evaluation's: they differ by the rounding of doubles, which is
/// 2^-29 of that of floats, and here may be 2^5 times that.
inline void expect_same(const std::vector<double>& theirs, const std::vector<reference::Row>& ours,
                        const std::string& what) {
  size_t i = 0;
  for (const reference::Row& row : ours)
    for (const reference::Cell& cell : row) {
      ASSERT_LT(i, theirs.size()) << what;
      const double y = theirs[i++];
      if (cell.value == y || (std::isnan(cell.value) && std::isnan(y))) continue;
      EXPECT_LE(std::fabs(cell.value - y), 0x1p-48 * cell.bound + 1e-14) << what << ", number " << i - 1;
    }
  EXPECT_EQ(i, theirs.size()) << what;
}

}  // namespace warprank::test_support
