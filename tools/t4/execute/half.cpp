// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of two halves in a register. Sums and products are exact in double, and so are rounded once.

#include "execute/floats.hpp"
#include "execute/half_values.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

struct Pairs {
  std::array<Doubles, 2> of;  ///< lower halves, upper halves
};

Pairs pairs(const Context& c, const Operand& operand) {
  const Lanes bits = c.bits(operand);
  Pairs result;
  for (size_t l = 0; l < warp_size; ++l) {
    double low = 0, high = 0;
    if (operand.half == Operand::Half::single) {
      low = high = static_cast<double>(float_of(bits[l]));
    } else {
      low = static_cast<double>(half_to_float(static_cast<uint16_t>(bits[l])));
      high = static_cast<double>(half_to_float(static_cast<uint16_t>(bits[l] >> 16)));
      if (operand.half == Operand::Half::low) high = low;
      if (operand.half == Operand::Half::high) low = high;
    }
    if (operand.absolute) low = std::fabs(low), high = std::fabs(high);
    result.of[0][l] = operand.negative ? -low : low;
    result.of[1][l] = operand.negative ? -high : high;
  }
  return result;
}

/// .F32: the first as FP32.
template <class Function>
void write_pairs(Context& c, const Function& function) {
  if (c.has(Modifier::F32)) {
    Floats values;
    for (size_t l = 0; l < warp_size; ++l) values[l] = static_cast<float>(function(0, l));
    return write_floats(c, c.operand(0), values);
  }
  const bool saturates = c.has(Modifier::SAT);
  const auto half = [&](double value) {
    if (saturates) value = value > 0 ? std::fmin(value, 1) : 0;
    return uint32_t{to_half(value)};
  };
  c.write(c.operand(0), map([&](size_t l) {
            return (c.lanes >> l & 1) == 0 ? 0 : half(function(0, l)) | half(function(1, l)) << 16;
          }));
}

void hadd2(Context& c) {
  const Pairs a = pairs(c, c.operand(1)), b = pairs(c, c.operand(2));
  write_pairs(c, [&](size_t i, size_t l) { return a.of[i][l] + b.of[i][l]; });
}
void hmul2(Context& c) {
  const Pairs a = pairs(c, c.operand(1)), b = pairs(c, c.operand(2));
  write_pairs(c, [&](size_t i, size_t l) { return a.of[i][l] * b.of[i][l]; });
}
void hfma2(Context& c) {
  const Pairs a = pairs(c, c.operand(1)), b = pairs(c, c.operand(2)), d = pairs(c, c.operand(3));
  write_pairs(c, [&](size_t i, size_t l) { return a.of[i][l] * b.of[i][l] + d.of[i][l]; });
}

// HSETP2.GE.AND P0, P1, R0, R1, P2: of the lower halves, of the upper ones.
void hsetp2(Context& c) {
  const Pairs a = pairs(c, c.operand(2)), b = pairs(c, c.operand(3));
  const Modifier relation = relation_of(c);
  const Mask last = c.predicate(c.operand(4));
  for (size_t i = 0; i < 2; ++i)
    c.write(c.operand(i), combine(c, mask_of([&](size_t l) { return holds(relation, a.of[i][l], b.of[i][l]); }), last));
}
// HSET2.BF.GE.AND R0, R1, R2, P0: 1 or 0 in each half; .BM, or without .BF: all bits.
void hset2(Context& c) {
  const Pairs a = pairs(c, c.operand(1)), b = pairs(c, c.operand(2));
  const Modifier relation = relation_of(c);
  const Mask last = c.predicate(c.operand(3));
  constexpr uint32_t one = 0x3c00, all = 0xffff;
  const uint32_t yes = c.has(Modifier::BF) ? one : all;
  Lanes result{};
  for (size_t i = 0; i < 2; ++i) {
    const Mask values = combine(c, mask_of([&](size_t l) { return holds(relation, a.of[i][l], b.of[i][l]); }), last);
    for_each_lane(values, [&](int l) { result[static_cast<size_t>(l)] |= yes << 16 * i; });
  }
  c.write(c.operand(0), result);
}

}  // namespace

Handler half_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::HADD2:
      return hadd2;
    case Opcode::HMUL2:
      return hmul2;
    case Opcode::HFMA2:
      return hfma2;
    case Opcode::HSETP2:
      return hsetp2;
    case Opcode::HSET2:
      return hset2;
    default:
      return nullptr;
  }
}

}  // namespace t4
