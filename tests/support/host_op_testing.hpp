// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What tests of host ops share: every instruction set, awkward memory, seeded numbers, comparison within a bound.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "reference/bounded.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/host/simd.hpp"

namespace warprank::test_support {

constexpr double u = 0x1p-24;  ///< the most that rounding to float changes a number by, in parts of it
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Calls `body()` once for every instruction set that is compiled and that this machine has.
template <class Body>
void for_each_target(Body&& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

/// A matrix in awkward memory: it starts at an odd element, rows are `gap` elements apart, and everything around the
/// elements holds a NaN that must neither change nor get into a result. Without `gap`, rows are contiguous.
class AwkwardMatrix {
 public:
  AwkwardMatrix(int64_t rows, int64_t cols, int64_t gap = 3)
      : memory_(static_cast<size_t>(before + rows * (cols + gap) + after), guard()),
        view_(memory_.data() + before, rows, cols, cols + gap) {}
  AwkwardMatrix(const AwkwardMatrix& other) : memory_(other.memory_), view_(other.view_) {
    view_.data = memory_.data() + before;
  }
  AwkwardMatrix& operator=(const AwkwardMatrix&) = delete;

  Matrix<float> view() { return view_; }
  Matrix<const float> view() const { return view_; }
  float& at(int64_t r, int64_t c) { return view_.row(r)[c]; }

  /// Normally distributed numbers of the given size.
  AwkwardMatrix& fill(uint32_t seed, float scale = 1.0f, float offset = 0.0f) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(offset, scale);
    for (int64_t r = 0; r < view_.rows; ++r)
      for (int64_t c = 0; c < view_.cols; ++c) at(r, c) = normal(random);
    return *this;
  }

  void expect_guards_untouched() const {
    size_t elements = 0, guards = 0;
    for (const float& value : memory_) {
      const int64_t i = &value - view_.data;
      const bool is_element = i >= 0 && i < view_.rows * view_.stride && i % view_.stride < view_.cols;
      elements += is_element;
      const float expected = guard();
      guards += !is_element && std::memcmp(&value, &expected, sizeof value) == 0;
    }
    EXPECT_EQ(elements + guards, memory_.size()) << "something was written outside the matrix";
  }

 private:
  static constexpr int64_t before = 17, after = 16;
  static float guard() {
    const uint32_t bits = 0x7fc0dead;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  std::vector<float> memory_;
  Matrix<float> view_;
};

/// Offsets of segments of the given sizes.
class OwnedSegments {
 public:
  OwnedSegments(std::initializer_list<int64_t> sizes) : OwnedSegments(std::vector<int64_t>(sizes)) {}
  explicit OwnedSegments(const std::vector<int64_t>& sizes) {
    for (int64_t size : sizes) offsets_.push_back(offsets_.back() + size);
  }
  Segments view() const { return {offsets_.data(), static_cast<int64_t>(offsets_.size()) - 1}; }

 private:
  std::vector<int64_t> offsets_ = {0};
};

/// Exactly as many floats of workspace as asked for; the address sanitizer sees what is written beyond.
class Workspace {
 public:
  explicit Workspace(int64_t size) : memory_(static_cast<size_t>(size), std::nanf("")) {}
  Span<float> view() { return memory_; }

 private:
  std::vector<float> memory_;
};

/// |out - value| <= c 2^-24 bound (+ `underflow`) for every element; NaN where the value is NaN, infinity likewise.
inline void expect_within(const reference::Bounded& expected, Matrix<const float> out, double c,
                          double underflow = 0x1p-126) {
  ASSERT_EQ(static_cast<int64_t>(expected.value.size()), out.rows * out.cols);
  double worst = 0;
  for (int64_t i = 0; i < out.rows * out.cols; ++i) {
    const double value = expected.value[static_cast<size_t>(i)], got = out.row(i / out.cols)[i % out.cols];
    const double allowed = c * u * expected.bound[static_cast<size_t>(i)] + underflow;
    const bool same = std::isnan(value) ? std::isnan(got) : value == got;
    if (same) continue;
    worst = std::max(worst, std::fabs(got - value) / allowed);
    ASSERT_LE(std::fabs(got - value), allowed)
        << "row " << i / out.cols << ", column " << i % out.cols << ": expected " << value << ", got " << got;
  }
  ::testing::Test::RecordProperty("worst_error_over_bound", std::to_string(worst));
}

/// The same bits in every element.
inline void expect_same_bits(Matrix<const float> expected, Matrix<const float> out) {
  ASSERT_EQ(expected.rows, out.rows);
  ASSERT_EQ(expected.cols, out.cols);
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t c = 0; c < out.cols; ++c)
      ASSERT_EQ(std::memcmp(&expected.row(r)[c], &out.row(r)[c], sizeof(float)), 0)
          << "row " << r << ", column " << c << ": expected " << expected.row(r)[c] << ", got " << out.row(r)[c];
}

}  // namespace warprank::test_support
