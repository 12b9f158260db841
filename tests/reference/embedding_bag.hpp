// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "reference/bounded.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank::reference {

/// The number that an IEEE 754 binary16 (5 bits of exponent, 10 of mantissa) stands for.
inline double value_of_half(uint16_t bits) {
  const double sign = bits >> 15 == 0 ? 1 : -1;
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

/// The number that a bfloat16 (8 bits of exponent, 7 of mantissa) stands for.
inline double value_of_bfloat16(uint16_t bits) {
  const double sign = bits >> 15 == 0 ? 1 : -1;
  const int exponent = bits >> 7 & 255, mantissa = bits & 127;
  if (exponent == 255) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -133);
  return sign * std::ldexp(128 + mantissa, exponent - 134);
}

/// Element (row, column) of a table, and the sum of the magnitudes it is made of.
inline void table_element(const TableView& table, int64_t row, int64_t column, double& value, double& magnitude) {
  const unsigned char* bytes = static_cast<const unsigned char*>(table.rows) + row * table.row_stride_bytes;
  float f32;
  uint16_t b16;
  switch (table.type) {
    case DType::f32:
      std::memcpy(&f32, bytes + 4 * column, 4);
      value = f32;
      break;
    case DType::f16:
      std::memcpy(&b16, bytes + 2 * column, 2);
      value = value_of_half(b16);
      break;
    case DType::bf16:
      std::memcpy(&b16, bytes + 2 * column, 2);
      value = value_of_bfloat16(b16);
      break;
    default: {
      const int q = bytes[column] < 128 ? bytes[column] : bytes[column] - 256;
      float scale, offset;
      std::memcpy(&scale, reinterpret_cast<const char*>(table.scale) + row * table.scale_stride_bytes, 4);
      std::memcpy(&offset, reinterpret_cast<const char*>(table.offset) + row * table.scale_stride_bytes, 4);
      const double scaled = static_cast<double>(scale) * q;
      value = scaled + offset;
      magnitude = std::fabs(scaled) + std::fabs(offset);
      return;
    }
  }
  magnitude = std::fabs(value);
}

/// What an id stands for, beside a row number.
constexpr int64_t the_default_row = -1, padding = -2;

/// y[b] for the bags offsets[b] .. offsets[b + 1] of ids, [bags, dim]; `row_of` gives an id's row, or one of the above.
/// The bound allows (k + 5) u per element of a bag of k, 2 u for maxima.
inline Bounded embedding_bag(const TableView& table, const std::function<int64_t(int64_t)>& row_of,
                             const std::vector<int64_t>& ids, const std::vector<int64_t>& offsets,
                             const std::vector<float>& weights, Pooling pooling) {
  Bounded out;
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    for (int64_t c = 0; c < table.dim; ++c) {
      double sum = 0, bound = 0, max = -INFINITY, weight_sum = 0, weight_squares = 0;
      int64_t elements = 0;
      for (int64_t i = offsets[b]; i < offsets[b + 1]; ++i) {
        const int64_t row = row_of(ids[static_cast<size_t>(i)]);
        if (row == padding) continue;
        double x = 0, magnitude = 0;
        if (row >= 0) {
          table_element(table, row, c, x, magnitude);
        } else if (table.default_row != nullptr) {
          x = table.default_row[c];
          magnitude = std::fabs(x);
        }
        const double w = weights.empty() ? 1 : weights[static_cast<size_t>(i)];
        ++elements;
        weight_sum += w;
        weight_squares += w * w;
        if (pooling == Pooling::max) {
          max = std::isnan(x) || x > max ? x : max;
          bound = std::max(bound, magnitude);
        } else {
          sum += w * x;
          bound += std::fabs(w) * magnitude;
        }
      }
      double divisor = 1, k = static_cast<double>(elements) + 5;
      if (pooling == Pooling::mean) divisor = weight_sum;
      if (pooling == Pooling::sqrtn) divisor = std::sqrt(weight_squares);
      if (pooling == Pooling::max) sum = max, k = 2;
      const bool is_zero = elements == 0 || divisor == 0;
      out.value.push_back(is_zero ? 0 : sum / divisor);
      out.bound.push_back(is_zero ? 0 : k * bound / std::fabs(divisor));
    }
  }
  return out;
}

}  // namespace warprank::reference
