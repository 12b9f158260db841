// SPDX-License-Identifier: Apache-2.0
#include "execute/floats.hpp"

#include <cfenv>

namespace t4 {
namespace {

constexpr uint32_t sign = 0x80000000, nan = 0x7fffffff;

}  // namespace

Floats floats(const Context& c, const Operand& operand) {
  const Lanes bits = c.bits(operand);
  const uint32_t keep = operand.absolute ? ~sign : ~0u, flip = operand.negative ? sign : 0;
  Floats values;
  for (size_t l = 0; l < warp_size; ++l) values[l] = float_of((bits[l] & keep) ^ flip);
  if (c.has(Modifier::FTZ))
    for (float& value : values) value = flush(value);
  return values;
}

void write_floats(Context& c, const Operand& operand, const Floats& values) {
  const bool flushes = c.has(Modifier::FTZ), saturates = c.has(Modifier::SAT);
  c.write(operand, map([&](size_t l) {
            float value = saturates ? saturate(values[l]) : values[l];
            if (flushes) value = flush(value);
            return value != value ? nan : bits_of(value);
          }));
}

Doubles doubles(const Context& c, const Operand& operand) {
  Lanes64 bits = c.bits64(operand);
  if (operand.kind == Operand::Kind::immediate) bits.fill(uint64_t{operand.immediate} << 32);
  constexpr uint64_t sign_of_double = uint64_t{1} << 63;
  Doubles values;
  for (size_t l = 0; l < warp_size; ++l)
    values[l] =
        double_of((operand.absolute ? bits[l] & ~sign_of_double : bits[l]) ^ (operand.negative ? sign_of_double : 0));
  return values;
}

void write_doubles(Context& c, const Operand& operand, const Doubles& values) {
  constexpr uint64_t nan_of_double = 0xfff8000000000000;
  c.write64(operand, map64([&](size_t l) { return values[l] != values[l] ? nan_of_double : bits_of(values[l]); }));
}

Rounding::Rounding(const Context& c) : before_(std::fegetround()) {
  std::fesetround(c.has(Modifier::RZ)   ? FE_TOWARDZERO
                  : c.has(Modifier::RM) ? FE_DOWNWARD
                  : c.has(Modifier::RP) ? FE_UPWARD
                                        : FE_TONEAREST);
}
Rounding::~Rounding() { std::fesetround(before_); }

Modifier relation_of(const Context& c) {
  for (const Modifier modifier : c.instruction.modifiers) switch (modifier) {
      case Modifier::GE:
      case Modifier::GT:
      case Modifier::LE:
      case Modifier::LT:
      case Modifier::EQ:
      case Modifier::NE:
      case Modifier::GEU:
      case Modifier::GTU:
      case Modifier::LEU:
      case Modifier::LTU:
      case Modifier::EQU:
      case Modifier::NEU:
      case Modifier::NUM:
      case Modifier::NAN_:
        return modifier;
      default:
        break;
    }
  c.fail("the relation is not known");
}

}  // namespace t4
