// SPDX-License-Identifier: Apache-2.0
//
// Conversions between numbers. Compiled with -frounding-math.

#include <algorithm>
#include <limits>

#include "execute/floats.hpp"
#include "execute/half_values.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

/// The modifiers that name types of floating-point numbers, in order.
std::vector<Modifier> float_types(const Context& c) {
  std::vector<Modifier> types;
  for (const Modifier modifier : c.instruction.modifiers)
    if (modifier == Modifier::F16 || modifier == Modifier::F32 || modifier == Modifier::F64) types.push_back(modifier);
  return types;
}
Doubles widened(const Context& c, const Operand& operand) {
  const Floats values = floats(c, operand);
  Doubles result;
  std::copy(values.begin(), values.end(), result.begin());
  return result;
}
Doubles from_halves(const Context& c, const Operand& operand) {
  const Lanes bits = c.bits(operand);
  Doubles result;
  for (size_t l = 0; l < warp_size; ++l) {
    const bool is_upper = operand.half == Operand::Half::high || operand.part == 5;
    double value = static_cast<double>(half_to_float(static_cast<uint16_t>(is_upper ? bits[l] >> 16 : bits[l])));
    if (operand.absolute) value = std::fabs(value);
    result[l] = operand.negative ? -value : value;
  }
  return result;
}
Doubles values_of(const Context& c, const Operand& operand, Modifier type) {
  return type == Modifier::F64   ? doubles(c, operand)
         : type == Modifier::F16 ? from_halves(c, operand)
                                 : widened(c, operand);
}

void write_values(Context& c, const Doubles& values, Modifier type) {
  if (type == Modifier::F64) return write_doubles(c, c.operand(0), values);
  const Rounding rounding(c);
  if (type == Modifier::F32) {
    Floats result;
    for (size_t l = 0; l < warp_size; ++l) result[l] = static_cast<float>(values[l]);
    return write_floats(c, c.operand(0), result);
  }
  if (c.has(Modifier::RM) || c.has(Modifier::RP)) c.fail("halves that are rounded up or down are not known");
  const bool toward_zero = c.has(Modifier::RZ);
  c.write(c.operand(0),
          map([&](size_t l) { return (c.lanes >> l & 1) == 0 ? 0 : uint32_t{to_half(values[l], toward_zero)}; }));
}

double to_whole(const Context& c, double value) {
  return c.has(Modifier::FLOOR)   ? std::floor(value)
         : c.has(Modifier::CEIL)  ? std::ceil(value)
         : c.has(Modifier::TRUNC) ? std::trunc(value)
                                  : std::nearbyint(value);
}

// F2F.F16.F32 R0, R1
void f2f(Context& c) {
  const std::vector<Modifier> types = float_types(c);
  if (types.size() != 2) c.fail("the types are not known");
  Doubles values = values_of(c, c.operand(1), types[1]);
  if (types[0] == types[1] && (c.has(Modifier::FLOOR) || c.has(Modifier::CEIL) || c.has(Modifier::TRUNC)))
    for (double& value : values) value = to_whole(c, value);
  write_values(c, values, types[0]);
}
void frnd(Context& c) {
  const std::vector<Modifier> types = float_types(c);
  const Modifier type = types.empty() ? Modifier::F32 : types.back();
  Doubles values = values_of(c, c.operand(1), type);
  for (double& value : values) value = to_whole(c, value);
  write_values(c, values, type);
}

struct Whole {
  int bits;
  bool is_signed;
};
Whole whole_type(const Context& c) {
  const std::pair<Modifier, Whole> types[] = {{Modifier::U8, {8, false}},   {Modifier::S8, {8, true}},
                                              {Modifier::U16, {16, false}}, {Modifier::S16, {16, true}},
                                              {Modifier::U32, {32, false}}, {Modifier::U64, {64, false}},
                                              {Modifier::S64, {64, true}}};
  for (const auto& [modifier, type] : types)
    if (c.has(modifier)) return type;
  return {32, true};
}

/// Clamped to what the type can hold. NaN is 0, but of 64 bits the least of signed numbers and 2^63.
uint64_t clamp(double value, Whole type) {
  if (value != value) return type.bits == 64 ? uint64_t{1} << 63 : 0;
  const double most = std::ldexp(1.0, type.is_signed ? type.bits - 1 : type.bits);
  const double least = type.is_signed ? -most : 0;
  if (value <= least) return static_cast<uint64_t>(static_cast<int64_t>(least));
  if (value >= most) return type.is_signed ? (uint64_t{1} << (type.bits - 1)) - 1 : ~uint64_t{0} >> (64 - type.bits);
  return value < 0 ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}

// F2I.U32.TRUNC R0, R1
void f2i(Context& c) {
  const std::vector<Modifier> types = float_types(c);
  const Whole type = whole_type(c);
  const Doubles values = values_of(c, c.operand(1), types.empty() ? Modifier::F32 : types.back());
  const Lanes64 result =
      map64([&](size_t l) { return (c.lanes >> l & 1) == 0 ? 0 : clamp(to_whole(c, values[l]), type); });
  if (type.bits == 64) return c.write64(c.operand(0), result);
  c.write(c.operand(0), map([&](size_t l) { return static_cast<uint32_t>(result[l]); }));
}

/// A part of a register, extended to 64 bits.
Lanes64 wholes(const Context& c, const Operand& operand, Whole type) {
  Lanes64 values = type.bits == 64 ? c.bits64(operand) : Lanes64{};
  if (type.bits < 64) {
    const Lanes bits = c.bits(operand);
    const int shift = operand.part == 5 ? 16 : operand.part > 0 && operand.part < 4 ? 8 * operand.part : 0;
    for (size_t l = 0; l < warp_size; ++l) {
      const uint64_t upper = uint64_t{bits[l] >> shift} << (64 - type.bits);
      values[l] = type.is_signed ? static_cast<uint64_t>(static_cast<int64_t>(upper) >> (64 - type.bits))
                                 : upper >> (64 - type.bits);
    }
  }
  if (operand.negative)
    for (uint64_t& value : values) value = 0 - value;
  return values;
}

// I2F.U32.RP R0, R1: of 64 bits rounded once, too.
void i2f(Context& c) {
  const std::vector<Modifier> types = float_types(c);
  const Whole type = whole_type(c);
  const Lanes64 values = wholes(c, c.operand(1), type);
  const Rounding rounding(c);
  const auto as = [&](auto to, size_t l) {
    using To = decltype(to);
    return type.is_signed ? static_cast<To>(static_cast<int64_t>(values[l])) : static_cast<To>(values[l]);
  };
  const Modifier to = types.empty() ? Modifier::F32 : types[0];
  if (to == Modifier::F32) {
    Floats result;
    for (size_t l = 0; l < warp_size; ++l) result[l] = as(float{}, l);
    return write_floats(c, c.operand(0), result);
  }
  Doubles result;
  for (size_t l = 0; l < warp_size; ++l) result[l] = as(double{}, l);
  write_values(c, result, to);
}

// F2FP.F16.F32.PACK_AB R0, R1, R2: R1 in the upper half. .SATFINITE: no infinity; .RELU: nothing
// below 0.
void f2fp(Context& c) {
  if (!c.has(Modifier::F16) || !c.has(Modifier::PACK_AB)) c.fail("the types are not known");
  const Floats upper = floats(c, c.operand(1)), lower = floats(c, c.operand(2));
  const bool toward_zero = c.has(Modifier::RZ);
  constexpr float most = 65504;
  const auto half = [&](float value) {
    if (c.has(Modifier::RELU) && value < 0) value = 0;
    if (c.has(Modifier::SATFINITE) && std::fabs(value) > most) value = std::copysign(most, value);
    return uint32_t{to_half(static_cast<double>(value), toward_zero)};
  };
  c.write(c.operand(0),
          map([&](size_t l) { return (c.lanes >> l & 1) == 0 ? 0 : half(upper[l]) << 16 | half(lower[l]); }));
}

// I2I.U16.S32.SAT R0, R1
void i2i(Context& c) {
  std::vector<Whole> types;
  for (const Modifier modifier : c.instruction.modifiers) {
    if (modifier == Modifier::U8) types.push_back({8, false});
    if (modifier == Modifier::S8) types.push_back({8, true});
    if (modifier == Modifier::U16) types.push_back({16, false});
    if (modifier == Modifier::S16) types.push_back({16, true});
    if (modifier == Modifier::U32) types.push_back({32, false});
    if (modifier == Modifier::S32) types.push_back({32, true});
  }
  if (types.size() != 2 || !c.has(Modifier::SAT)) c.fail("the types are not known");
  const Lanes64 values = wholes(c, c.operand(1), types[1]);
  c.write(c.operand(0), map([&](size_t l) {
            return static_cast<uint32_t>(clamp(static_cast<double>(static_cast<int64_t>(values[l])), types[0]));
          }));
}

}  // namespace

Handler convert_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::F2F:
      return f2f;
    case Opcode::FRND:
      return frnd;
    case Opcode::F2I:
      return f2i;
    case Opcode::F2FP:
      return f2fp;
    case Opcode::I2F:
    case Opcode::I2FP:
      return i2f;
    case Opcode::I2I:
      return i2i;
    default:
      return nullptr;
  }
}

}  // namespace t4
