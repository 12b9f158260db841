// SPDX-License-Identifier: Apache-2.0
//
// FP64 arithmetic. Compiled with -frounding-math.

#include "execute/floats.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

template <class Function>
void write_each(Context& c, const Function& function) {
  const Rounding rounding(c);
  Doubles result;
  for (size_t lane = 0; lane < warp_size; ++lane) result[lane] = function(lane);
  write_doubles(c, c.operand(0), result);
}

void dadd(Context& c) {
  const Doubles a = doubles(c, c.operand(1)), b = doubles(c, c.operand(2));
  write_each(c, [&](size_t l) { return a[l] + b[l]; });
}
void dmul(Context& c) {
  const Doubles a = doubles(c, c.operand(1)), b = doubles(c, c.operand(2));
  write_each(c, [&](size_t l) { return a[l] * b[l]; });
}
void dfma(Context& c) {
  const Doubles a = doubles(c, c.operand(1)), b = doubles(c, c.operand(2)), d = doubles(c, c.operand(3));
  write_each(c, [&](size_t l) { return std::fma(a[l], b[l], d[l]); });
}
void dsetp(Context& c) {
  const Doubles a = doubles(c, c.operand(2)), b = doubles(c, c.operand(3));
  const Modifier relation = relation_of(c);
  write_comparison(c, mask_of([&](size_t l) { return holds(relation, a[l], b[l]); }), c.operand(4));
}

}  // namespace

Handler double_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::DADD:
      return dadd;
    case Opcode::DMUL:
      return dmul;
    case Opcode::DFMA:
      return dfma;
    case Opcode::DSETP:
      return dsetp;
    default:
      return nullptr;
  }
}

}  // namespace t4
