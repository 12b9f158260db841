// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Floating-point operands and results as the card has them.

#include <array>
#include <cmath>

#include "execute/context.hpp"

namespace t4 {

using Floats = std::array<float, warp_size>;
using Doubles = std::array<double, warp_size>;

/// A denormal becomes a zero of its sign.
inline float flush(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.f, value) : value; }
/// NaN becomes 0; what arithmetic with .SAT does.
inline float saturate(float value) { return value > 0 ? std::fmin(value, 1.f) : 0.f; }

/// With | | and -, and without denormals where the instruction has .FTZ.
Floats floats(const Context& c, const Operand& operand);
/// An FP32 result: every NaN is the same one; .FTZ, .SAT.
void write_floats(Context& c, const Operand& operand, const Floats& values);
/// An immediate is the upper word.
Doubles doubles(const Context& c, const Operand& operand);
void write_doubles(Context& c, const Operand& operand, const Doubles& values);

/// .RZ, .RM, .RP, for as long as it lives.
class Rounding {
 public:
  explicit Rounding(const Context& c);
  ~Rounding();
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  int before_;
};

/// The first of the modifiers that is a relation, of two numbers.
template <class T>
bool holds(Modifier relation, T a, T b) {
  const bool unordered = a != a || b != b;
  switch (relation) {
    case Modifier::GE:
      return a >= b;
    case Modifier::GT:
      return a > b;
    case Modifier::LE:
      return a <= b;
    case Modifier::LT:
      return a < b;
    case Modifier::EQ:
      return a == b;
    case Modifier::NE:
      return !unordered && a != b;
    case Modifier::GEU:
      return unordered || a >= b;
    case Modifier::GTU:
      return unordered || a > b;
    case Modifier::LEU:
      return unordered || a <= b;
    case Modifier::LTU:
      return unordered || a < b;
    case Modifier::EQU:
      return unordered || a == b;
    case Modifier::NEU:
      return unordered || a != b;
    case Modifier::NUM:
      return !unordered;
    case Modifier::NAN_:
      return unordered;
    default:
      return false;
  }
}
Modifier relation_of(const Context& c);

}  // namespace t4
