// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/bounded.hpp"
#include "reference/segmented_input.hpp"
#include "warprank/model/elementwise.hpp"

namespace warprank::reference {

/// A number and how far FP32 may be from it, in units of 2^-24.
struct Uncertain {
  double value = 0;
  double bound = 0;
};

inline double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
inline double gelu_of(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
/// x (1 + tanh(z)) / 2 without the cancellation: (1 + tanh(z)) / 2 = sigmoid(2 z).
inline double gelu_tanh_of(double x) {
  const double pi = std::acos(-1.0);
  return x * sigmoid_of(2 * std::sqrt(2 / pi) * (x + 0.044715 * x * x * x));
}

/// One function of uncertain operands. The bound is |f'| times the operand's, plus the function's own; a comparison
/// that the operands' errors may turn has no bound.
inline Uncertain evaluate(ElementwiseFunction function, Uncertain a, Uncertain b, Uncertain c, double alpha) {
  using Function = ElementwiseFunction;
  const double x = a.value, y = b.value, infinity = std::numeric_limits<double>::infinity();
  const auto compare = [&](bool holds) {
    const double margin = (a.bound + b.bound) * 0x1p-24;
    return Uncertain{holds ? 1.0 : 0.0, margin > 0 && std::fabs(x - y) <= margin ? infinity : 0.0};
  };
  // A function of one operand with its derivative's largest size around x, and its own error.
  const auto smooth = [&](double value, double slope, double own) { return Uncertain{value, slope * a.bound + own}; };
  const double size_of_nan = std::isnan(x) || std::isnan(y) ? std::nan("") : 0;
  switch (function) {
    case Function::add:
      return {x + y, a.bound + b.bound + std::fabs(x + y)};
    case Function::sub:
      return {x - y, a.bound + b.bound + std::fabs(x - y)};
    case Function::mul:
      return {x * y, std::fabs(y) * a.bound + std::fabs(x) * b.bound + std::fabs(x * y)};
    case Function::div:
      return {x / y, (a.bound + std::fabs(x / y) * b.bound) / std::fabs(y) + std::fabs(x / y)};
    case Function::min:
      return {std::min(x, y) + size_of_nan, std::max(a.bound, b.bound)};
    case Function::max:
      return {std::max(x, y) + size_of_nan, std::max(a.bound, b.bound)};
    case Function::atan2: {
      // Where the sign of a may be the other one, left of the origin, the angle jumps.
      const bool jumps = a.bound > 0 && std::fabs(x) <= a.bound * 0x1p-24 && y <= b.bound * 0x1p-24;
      const double angle = std::atan2(x, y), squares = x * x + y * y;
      const double slopes = a.bound + b.bound == 0 ? 0 : (std::fabs(y) * a.bound + std::fabs(x) * b.bound) / squares;
      return {angle, jumps ? infinity : slopes + 4 * std::fabs(angle)};
    }
    case Function::less:
      return compare(x < y);
    case Function::less_equal:
      return compare(x <= y);
    case Function::greater:
      return compare(x > y);
    case Function::greater_equal:
      return compare(x >= y);
    case Function::equal:
      return compare(x == y);
    case Function::not_equal:
      return compare(x != y);
    case Function::select: {
      const Uncertain chosen = c.value != 0 ? a : b;
      return {chosen.value, std::isinf(c.bound) ? infinity : chosen.bound};
    }
    case Function::neg:
      return {-x, a.bound};
    case Function::abs:
      return {std::fabs(x), a.bound};
    case Function::exp:
      return smooth(std::exp(x), std::exp(x), 4 * std::exp(x));
    case Function::log:
      return smooth(std::log(x), 1 / std::fabs(x), 4 * std::fabs(std::log(x)));
    case Function::sqrt:
      return smooth(std::sqrt(x), a.bound == 0 ? 0 : 0.5 / std::sqrt(x), std::sqrt(x));
    case Function::square:
      return smooth(x * x, 2 * std::fabs(x), x * x);
    case Function::sin:
      return smooth(std::sin(x), 1, 4 * std::fabs(std::sin(x)));
    case Function::cos:
      return smooth(std::cos(x), 1, 4 * std::fabs(std::cos(x)));
    case Function::relu:
      return smooth(x < 0 ? 0 : x, 1, 0);
    case Function::leaky_relu:
      return smooth(x > 0 ? x : alpha * x, std::max(1.0, std::fabs(alpha)), std::fabs(alpha * x));
    case Function::elu:
      return smooth(x > 0 ? x : alpha * std::expm1(x), std::max(1.0, std::fabs(alpha)),
                    8 * std::fabs(alpha * std::expm1(std::min(x, 0.0))));
    case Function::sigmoid:
      return smooth(sigmoid_of(x), sigmoid_of(x) * sigmoid_of(-x), 8 * sigmoid_of(x));
    case Function::tanh:
      return smooth(std::tanh(x), 1 - std::tanh(x) * std::tanh(x), 8 * std::fabs(std::tanh(x)));
    case Function::gelu:
      return smooth(gelu_of(x), 1.2, (x < 0 ? 8 + x * x : 8) * std::fabs(gelu_of(x)));
    case Function::gelu_tanh:
      return smooth(gelu_tanh_of(x), 1.2, (x < 0 ? 8 - 4 * x * x * x : 8) * std::fabs(gelu_tanh_of(x)));
    case Function::silu:
      return smooth(x * sigmoid_of(x), 1.2, 8 * std::fabs(x * sigmoid_of(x)));
  }
  return {};
}

/// y[n, c] = the program's last register, over inputs (one column serves all) and vectors.
inline Bounded elementwise(const ElementwiseProgram& program, Span<const SegmentedInput> inputs,
                           Span<const float* const> vectors, int64_t rows, int64_t cols) {
  Bounded y;
  for (int64_t n = 0; n < rows; ++n) {
    std::vector<const float*> row;
    for (const SegmentedInput& input : inputs) row.push_back(serving_row(input, n));
    for (int64_t col = 0; col < cols; ++col) {
      std::vector<Uncertain> registers;
      for (size_t i = 0; i < row.size(); ++i)
        registers.push_back({row[i][inputs[static_cast<int64_t>(i)].values.cols == 1 ? 0 : col], 0});
      for (const float* vector : vectors) registers.push_back({vector[col], 0});
      for (float constant : program.constants) registers.push_back({constant, 0});
      for (const Instruction& i : program.instructions) {
        const auto operand = [&](int r) { return r < 0 ? Uncertain{} : registers[static_cast<size_t>(r)]; };
        registers.push_back(evaluate(i.function, operand(i.a), operand(i.b), operand(i.c), i.alpha));
      }
      y.value.push_back(registers.back().value);
      y.bound.push_back(registers.back().bound);
    }
  }
  return y;
}

}  // namespace warprank::reference
