// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Before anything is timed its result is held against the oracles of the tests, on a few rows: no figure is of a
/// kernel that computes something else.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "reference/bounded.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"

namespace warprank::bench {

struct WrongResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The first row, one in the middle and the last.
inline std::vector<int64_t> some_rows(int64_t rows) {
  std::vector<int64_t> some;
  for (const int64_t row : {int64_t{0}, rows / 2, rows - 1})
    if (some.empty() || some.back() != row) some.push_back(row);
  return some;
}

/// Those rows of a matrix [rows, cols], as floats.
template <class Value>
std::vector<float> select_rows(const std::vector<Value>& values, int64_t cols, const std::vector<int64_t>& rows) {
  std::vector<float> some;
  for (const int64_t row : rows)
    for (int64_t c = 0; c < cols; ++c) some.push_back(to_float(values[static_cast<size_t>(row * cols + c)]));
  return some;
}

/// That |got - value| <= c 2^-24 bound, beside the rounding to Value, which `got` is stored as.
template <class Value>
void expect_within(const std::string& what, const reference::Bounded& expected, const std::vector<float>& got,
                   double c) {
  constexpr bool is_half = std::is_same_v<Value, float16>;
  if (got.size() != expected.value.size()) throw WrongResult(what + ": another number of results");
  for (size_t i = 0; i < got.size(); ++i) {
    const double value = expected.value[i], computed = c * 0x1p-24 * expected.bound[i] + 0x1p-126;
    const double allowed = computed + (is_half ? 0x1p-11 * (std::fabs(value) + computed) + 0x1p-25 : 0);
    if (std::fabs(got[i] - value) <= allowed) continue;
    throw WrongResult(what + ": expected " + std::to_string(value) + " within " + std::to_string(allowed) + ", got " +
                      std::to_string(got[i]) + " at " + std::to_string(i));
  }
}

/// Activations of a stack of layers and, in units of 2^-24, how far a kernel may be from them that rounds them to FP16
/// and sums in FP32, cutting where others round.
struct Activations {
  int64_t rows = 0, cols = 0;
  reference::Bounded of;

  Activations() = default;
  /// Exact ones.
  Activations(int64_t rows, int64_t cols, const std::vector<float>& values) : rows(rows), cols(cols) {
    of.value.assign(values.begin(), values.end());
    of.bound.resize(values.size());
  }
  size_t place(int64_t row, int64_t col) const { return static_cast<size_t>(row * cols + col); }
};

/// relu, or nothing, of x W^T + b, W [out, in] and b [out] of FP16 numbers; rounded to FP16 where another layer
/// follows. `relative`: further errors of x W, in units of 2^-24; |x| may be given where it is not that of x.
inline Activations propagate(const Activations& x, const std::vector<float>& weight, const std::vector<float>& bias,
                             bool is_relu, bool is_stored_as_half, double relative = 0,
                             const std::vector<double>& sizes_of_x = {}) {
  Activations y;
  y.rows = x.rows, y.cols = static_cast<int64_t>(weight.size()) / x.cols;
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t o = 0; o < y.cols; ++o) {
      double sum = bias.empty() ? 0 : bias[static_cast<size_t>(o)], magnitude = std::fabs(sum), bound = 0;
      for (int64_t k = 0; k < x.cols; ++k) {
        const size_t at = x.place(r, k);
        const double w = weight[static_cast<size_t>(o * x.cols + k)];
        sum += w * x.of.value[at];
        magnitude += std::fabs(w) * (sizes_of_x.empty() ? std::fabs(x.of.value[at]) : sizes_of_x[at]);
        bound += std::fabs(w) * x.of.bound[at];
      }
      bound += (2 * static_cast<double>(x.cols + 2) + relative) * magnitude;
      const double value = is_relu ? std::max(sum, 0.0) : sum;
      if (is_stored_as_half) bound += 0x1p13 * std::fabs(value) + 0x1p-11 * bound + 0.5;  // half a unit of FP16
      y.of.value.push_back(value);
      y.of.bound.push_back(bound);
    }
  return y;
}

}  // namespace warprank::bench
