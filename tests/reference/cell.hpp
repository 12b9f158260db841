// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Numbers that carry how far an FP32 evaluation may be from them, and the arithmetic on them that models are made of.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "reference/activation.hpp"
#include "reference/attention_weights.hpp"
#include "reference/elementwise.hpp"
#include "reference/reduce.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

constexpr double u = 0x1p-24;

/// `bound`, in units of u, is infinite where rounding may turn a comparison or first-order analysis ends. `size` is
/// the sum of the magnitudes that the value is made of, where a pass may multiply them with weights one by one.
struct Cell {
  double value = 0;
  double bound = 0;
  double size = 0;
};
using Row = std::vector<Cell>;

inline Cell cell(double value, double bound, double size = 0) {
  return {value, std::isnan(bound) ? INFINITY : bound, std::max(std::fabs(value), size)};
}
inline Cell exact(double value) { return cell(value, 0); }

/// What is assumed of the k rounding errors of a sum, and of the errors of its terms.
enum class Rounding {
  worst_case,  ///< they all add up: k u sum |terms|
  independent  ///< they are independent and centred: 2 sqrt(k) u sum |terms|, errors of terms added as squares. Holds
               ///< with a probability near 1 (Higham and Mary 2019), and says something about deep and wide models.
};

/// Where an engine rounds. Sums are FP32 in all.
enum class Precision {
  single,        ///< to FP32
  half,          ///< values between operations, and weights, to FP16
  bf16_products  ///< both values of products, in layers, attention and dots, to BF16; and sigmoids of layers, and what
                 ///< attention weighs with, to 2^-12
};

/// The error of rounding to FP16, in units of u, relatively; and of what becomes a subnormal.
constexpr double half_rounding = 0x1p13, half_underflow = 1;

/// What rounding both values of a product to BF16, by up to 2^-8 of each, does to it, in units of u.
constexpr double bf16_product_rounding = 0x1p24 * 0x1p-8 * (2 + 0x1p-8);

/// A value as it is kept; what may be too large for FP16 says nothing.
inline Cell kept(Cell x, Precision precision) {
  if (precision != Precision::half) return x;
  x.bound += half_rounding * std::fabs(x.value) + half_underflow;
  if (std::fabs(x.value) + u * x.bound >= 65504) x.bound = INFINITY;
  return x;
}

/// A sum of terms in any order, rounded `roundings` times beside once for each term.
class Sum {
 public:
  explicit Sum(Rounding rounding = Rounding::worst_case, Precision weights = Precision::single)
      : rounding_(rounding),
        weight_rounding_(weights == Precision::half            ? half_rounding
                         : weights == Precision::bf16_products ? bf16_product_rounding
                                                               : 0),
        weight_underflow_(weights == Precision::half ? half_underflow : 0),
        product_rounding_(weights == Precision::bf16_products ? bf16_product_rounding : 0) {}

  void add(const Cell& x) { add(1, x); }
  void add(double weight, const Cell& x) {
    value_ += weight * x.value;
    size_ += std::fabs(weight) * x.size;
    if (weight != 0) add_error(std::fabs(weight) * x.bound);
    if (weight_rounding_ != 0) add_error((weight_rounding_ * std::fabs(weight) + weight_underflow_) * x.size);
    ++terms_;
  }
  void add(const Cell& a, const Cell& b) {
    value_ += a.value * b.value;
    size_ += std::fabs(a.value * b.value);
    double error = product_rounding_ * std::fabs(a.value * b.value);
    if (a.bound != 0) error += a.bound * std::fabs(b.value);
    if (b.bound != 0) error += b.bound * (std::fabs(a.value) + u * a.bound);
    add_error(error);
    ++terms_;
  }
  Cell total(double roundings = 2) const {
    const double k = terms_ + roundings;
    if (rounding_ == Rounding::worst_case) return cell(value_, error_ + k * size_);
    return cell(value_, std::sqrt(error_) + 2 * std::sqrt(k) * size_);
  }
  double value() const { return value_; }
  double size() const { return size_; }

 private:
  void add_error(double error) { error_ += rounding_ == Rounding::worst_case ? error : error * error; }

  Rounding rounding_;
  double weight_rounding_, weight_underflow_, product_rounding_;
  double value_ = 0, size_ = 0, error_ = 0, terms_ = 0;
};

inline Cell divide(const Cell& a, const Cell& b) {
  const bool known = u * b.bound < 0.01 * std::fabs(b.value);
  const double y = a.value / b.value;
  return cell(y, known ? 1.01 * (a.bound + std::fabs(y) * b.bound) / std::fabs(b.value) + std::fabs(y) : INFINITY);
}

/// One function of an elementwise program.
inline Cell apply(ElementwiseFunction function, const Cell& a, const Cell& b = {}, const Cell& c = {},
                  double alpha = 0) {
  using Function = ElementwiseFunction;
  if (function == Function::div) return divide(a, b);
  const Uncertain y = evaluate(function, {a.value, a.bound}, {b.value, b.bound}, {c.value, c.bound}, alpha);
  // Slopes are those at a.value: they hold nearby.
  const bool near_zero = a.bound > 0 && u * a.bound > 0.01 * std::fabs(a.value);
  const bool far = u * a.bound > 0.01;
  double bound = y.bound;
  if ((function == Function::log || function == Function::sqrt) && near_zero) bound = INFINITY;
  if (function == Function::select && c.bound > 0 && std::fabs(c.value) <= u * c.bound) bound = INFINITY;
  if (function == Function::exp) bound = far ? INFINITY : 1.01 * bound;
  if (function == Function::sigmoid) bound = far ? a.bound / 4 + 8 : 1.01 * bound;
  if (function == Function::tanh) bound = far ? a.bound + 8 : bound + 0.01 * a.bound;
  if (function == Function::mul) bound += u * a.bound * b.bound;
  if (function == Function::atan2) {
    // 0 and -0, which count as the same, have angles that differ by 2 pi left of the origin.
    const bool jumps = a.value == 0 && b.value <= 0;
    const bool turns = u * (a.bound + b.bound) > 0.01 * std::hypot(a.value, b.value);
    bound = jumps || turns ? INFINITY : 1.05 * bound;
  }
  if (function == Function::square) bound += u * a.bound * a.bound;
  return cell(y.value, bound);
}

/// f(x) of one channel, whose scale and shift (Dice) were rounded to FP32.
inline Cell activate(const Activation& spec, const Cell& x, double alpha, double scale, double shift,
                     Precision precision = Precision::single) {
  Activated f = activation(spec, x.value, alpha, scale, shift);
  if (precision == Precision::bf16_products) f = in_bf16_layer(spec, f);
  return cell(f.value, f.slope * x.bound + (spec.kind == ActivationKind::dice ? 2 : 1) * f.error);
}

/// The weights of a gate or of attention over events.
inline Row normalize(const Row& scores, Normalization normalization) {
  Row row;
  if (normalization == Normalization::sigmoid) {
    for (const Cell& score : scores) row.push_back(apply(ElementwiseFunction::sigmoid, score));
    return row;
  }
  if (normalization == Normalization::none) return scores;
  Bounded bounded;
  double largest = 0;
  for (const Cell& score : scores) {
    bounded.value.push_back(score.value);
    bounded.bound.push_back(score.bound);
    largest = std::max(largest, score.bound);
  }
  const bool far = u * largest > 0.01;  // then weights change by factors: exp(2 e) where every score is off by e
  if (far) bounded.bound.assign(scores.size(), 0);
  const Bounded weights = attention_weights(bounded, normalization);
  for (size_t i = 0; i < scores.size(); ++i) {
    const double bound = weights.bound[i], w = weights.value[i];
    row.push_back(
        cell(w, far ? std::exp(2 * u * largest) * bound + w * std::expm1(2 * u * largest) / u : 1.02 * bound));
  }
  return row;
}

/// Cells pooled to one: their sum, mean, sum over the square root of their number, or maximum; 0 of none.
inline Cell pooled(const Row& cells, Pooling pooling) {
  std::vector<double> values;
  double total = 0, largest = 0;
  for (const Cell& c : cells) {
    values.push_back(c.value);
    total += c.bound;
    largest = std::max(largest, c.bound);
  }
  Bounded y;
  pool(values, pooling, y);
  const double count = std::max<double>(1, static_cast<double>(cells.size()));
  const double divisor = pooling == Pooling::mean ? count : pooling == Pooling::sqrtn ? std::sqrt(count) : 1;
  return cell(y.value[0], y.bound[0] + (pooling == Pooling::max ? largest : total / divisor));
}

}  // namespace warprank::reference
