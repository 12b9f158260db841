// SPDX-License-Identifier: Apache-2.0
//
// Integer arithmetic and comparisons.

#include <algorithm>

#include "execute/context.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

int64_t as_signed(uint32_t value) { return static_cast<int32_t>(value); }

/// The operand that follows, if it is a predicate: a carry.
const Operand* take_predicate(const Context& c, size_t& at) {
  if (at >= c.num_operands() || !c.operand(at).is_predicate()) return nullptr;
  return &c.operand(at++);
}

// IMAD R0, R1, R2, R3: the lower word of R1 R2 + R3; .WIDE: both words, of a pair; .HI: the upper one.
void imad(Context& c) {
  size_t at = 1;
  const Operand* carry_out = take_predicate(c, at);
  const Lanes a = c.integers(c.operand(at)), b = c.integers(c.operand(at + 1));
  const Operand& addend = c.operand(at + 2);
  at += 3;
  const Operand* carry_in = c.has(Modifier::X_) ? take_predicate(c, at) : nullptr;
  const Mask carries = carry_in == nullptr ? 0 : c.predicate(*carry_in);
  if (carry_in != nullptr && addend.negative) c.fail("a negative addend with a carry is not known");
  const auto carry = [&](size_t l) { return carries >> l & 1; };
  if (!c.has(Modifier::WIDE) && !c.has(Modifier::HI)) {
    const Lanes d = c.integers(addend);
    return c.write(c.operand(0), map([&](size_t l) { return a[l] * b[l] + d[l] + carry(l); }));
  }
  const bool is_unsigned = c.has(Modifier::U32);
  Lanes64 d = c.integers64(addend);
  if (addend.kind == Operand::Kind::immediate && is_unsigned) d.fill(addend.immediate);
  Mask carried = 0;
  const Lanes64 sums = map64([&](size_t l) {
    const uint64_t product =
        is_unsigned ? uint64_t{a[l]} * b[l] : static_cast<uint64_t>(as_signed(a[l]) * as_signed(b[l]));
    const uint64_t sum = product + d[l], with_carry = sum + carry(l);
    carried |= static_cast<Mask>(sum < product || with_carry < sum) << l;
    return with_carry;
  });
  if (carry_out != nullptr) c.write(*carry_out, carried);
  if (c.has(Modifier::WIDE)) return c.write64(c.operand(0), sums);
  c.write(c.operand(0), map([&](size_t l) { return static_cast<uint32_t>(sums[l] >> 32); }));
}

// IADD3 R0, P0, P1, R1, R2, R3: a carry of 2 sets both. .X adds two carries, and -R is ~R.
void iadd3(Context& c) {
  size_t at = 1;
  const Operand* carry_out = take_predicate(c, at);
  const Operand* second_out = carry_out == nullptr ? nullptr : take_predicate(c, at);
  const bool with_carry = c.has(Modifier::X_);
  Lanes64 sums{};
  for (size_t i = at; i < at + 3; ++i) {
    const Operand& operand = c.operand(i);
    const Lanes values = c.bits(operand);
    const bool inverts = operand.inverted || operand.negative;
    const uint64_t one = operand.negative && !with_carry;
    for (size_t l = 0; l < warp_size; ++l) sums[l] += inverts ? uint64_t{~values[l]} + one : values[l];
  }
  at += 3;
  while (const Operand* carry_in = take_predicate(c, at)) {
    if (!with_carry) continue;
    const Mask carries = c.predicate(*carry_in);
    for (size_t l = 0; l < warp_size; ++l) sums[l] += carries >> l & 1;
  }
  c.write(c.operand(0), map([&](size_t l) { return static_cast<uint32_t>(sums[l]); }));
  if (carry_out != nullptr) c.write(*carry_out, mask_of([&](size_t l) { return sums[l] >> 32 >= 1; }));
  if (second_out != nullptr) c.write(*second_out, mask_of([&](size_t l) { return sums[l] >> 32 >= 2; }));
}

// LEA R0, P0, R1, R2, 4: (R1 << 4) + R2. .HI R0, R1, R2, R3, 4: the upper word of (R3:R1) << 4, and R2; .SX32: R3 is
// R1's sign.
void lea(Context& c) {
  size_t at = 1;
  const Operand* carry_out = take_predicate(c, at);
  const Lanes a = c.integers(c.operand(at));
  const Operand& addend = c.operand(at + 1);
  const Lanes b = c.bits(addend);
  at += 2;
  const bool is_high = c.has(Modifier::HI), extends = c.has(Modifier::SX32);
  const Lanes upper = is_high && !extends ? c.integers(c.operand(at++)) : Lanes{};
  const Lanes shift = c.bits(c.operand(at++));
  const Operand* carry_in = c.has(Modifier::X_) ? take_predicate(c, at) : nullptr;
  const Mask carries = carry_in == nullptr ? 0 : c.predicate(*carry_in);
  const uint64_t one = addend.negative && !c.has(Modifier::X_);
  const Lanes64 sums = map64([&](size_t l) {
    uint64_t value = a[l];
    if (is_high) value |= uint64_t{extends && a[l] >> 31 ? ~0u : upper[l]} << 32;
    value = shift[l] >= 64 ? 0 : value << shift[l];
    const uint64_t shifted = is_high ? value >> 32 : value & 0xffffffff;
    const uint64_t other = addend.inverted || addend.negative ? uint64_t{~b[l]} + one : b[l];
    return shifted + other + (carries >> l & 1);
  });
  c.write(c.operand(0), map([&](size_t l) { return static_cast<uint32_t>(sums[l]); }));
  if (carry_out != nullptr) c.write(*carry_out, mask_of([&](size_t l) { return sums[l] >> 32 != 0; }));
}

template <class T>
Mask compare(const Context& c, const Lanes& a, const Lanes& b) {
  const auto holds = [&](const auto& relation) {
    return mask_of([&](size_t l) { return relation(static_cast<T>(a[l]), static_cast<T>(b[l])); });
  };
  switch (c.instruction.modifiers.empty() ? Modifier::unknown : c.instruction.modifiers[0]) {
    case Modifier::GE:
      return holds(std::greater_equal<T>());
    case Modifier::GT:
      return holds(std::greater<T>());
    case Modifier::LE:
      return holds(std::less_equal<T>());
    case Modifier::LT:
      return holds(std::less<T>());
    case Modifier::EQ:
      return holds(std::equal_to<T>());
    case Modifier::NE:
      return holds(std::not_equal_to<T>());
    default:
      c.fail("the relation is not known");
  }
}

// ISETP.GE.AND P0, P1, R0, R1, P2. .EX goes on where the lower words were compared into the last predicate.
void isetp(Context& c) {
  const Lanes a = c.integers(c.operand(2)), b = c.integers(c.operand(3));
  Mask values = c.has(Modifier::U32) ? compare<uint32_t>(c, a, b) : compare<int32_t>(c, a, b);
  if (c.has(Modifier::EX)) {
    const Mask equal = mask_of([&](size_t l) { return a[l] == b[l]; });
    values = (values & ~equal) | (c.predicate(c.operand(5)) & equal);
  }
  write_comparison(c, values, c.operand(4));
}

/// The less ones where the predicate holds, else the others.
Lanes less_of(const Context& c, const Lanes& a, const Lanes& b, const Operand& predicate) {
  const Mask is_least = c.predicate(predicate);
  const bool is_unsigned = c.has(Modifier::U32);
  return map([&](size_t l) {
    const bool less = is_unsigned ? a[l] < b[l] : static_cast<int32_t>(a[l]) < static_cast<int32_t>(b[l]);
    return less == ((is_least >> l & 1) != 0) ? a[l] : b[l];
  });
}
// IMNMX R0, R1, R2, P0; VIMNMX is the same.
void imnmx(Context& c) {
  c.write(c.operand(0), less_of(c, c.integers(c.operand(1)), c.integers(c.operand(2)), c.operand(3)));
}

// VIADD R0, R1, -0x1
void viadd(Context& c) {
  const Lanes a = c.integers(c.operand(1)), b = c.integers(c.operand(2));
  c.write(c.operand(0), map([&](size_t l) { return a[l] + b[l]; }));
}
// VIADDMNMX R0, R1, R2, R3, P0: of R1 + R2 and R3.
void viaddmnmx(Context& c) {
  const Lanes a = c.integers(c.operand(1)), b = c.integers(c.operand(2));
  const Lanes sums = map([&](size_t l) { return a[l] + b[l]; });
  c.write(c.operand(0), less_of(c, sums, c.integers(c.operand(3)), c.operand(4)));
}
// VIMNMX3.U32 R0, R1, R2, R3, P0: of three.
void vimnmx3(Context& c) {
  const Lanes two = less_of(c, c.integers(c.operand(1)), c.integers(c.operand(2)), c.operand(4));
  c.write(c.operand(0), less_of(c, two, c.integers(c.operand(3)), c.operand(4)));
}

void iabs(Context& c) {
  const Lanes a = c.bits(c.operand(1));
  c.write(c.operand(0), map([&](size_t l) { return a[l] >> 31 ? 0u - a[l] : a[l]; }));
}

// IDP.4A.S8.U8 R0, R1, R2, R3: the sum of the products of four bytes, and R3.
void idp(Context& c) {
  std::vector<Modifier> types;
  for (const Modifier modifier : c.instruction.modifiers)
    if (modifier == Modifier::S8 || modifier == Modifier::U8) types.push_back(modifier);
  if (types.size() != 2 || !c.has(Modifier::M4A)) c.fail("the products are not known");
  const Lanes a = c.bits(c.operand(1)), b = c.bits(c.operand(2)), d = c.integers(c.operand(3));
  const auto byte = [](Modifier type, uint32_t value, int i) {
    return type == Modifier::S8 ? int32_t{static_cast<int8_t>(value >> 8 * i)}
                                : int32_t{static_cast<uint8_t>(value >> 8 * i)};
  };
  c.write(c.operand(0), map([&](size_t l) {
            uint32_t sum = d[l];
            for (int i = 0; i < 4; ++i) sum += static_cast<uint32_t>(byte(types[0], a[l], i) * byte(types[1], b[l], i));
            return sum;
          }));
}

}  // namespace

Handler integer_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::IMAD:
    case Opcode::UIMAD:
      return imad;
    case Opcode::IADD3:
    case Opcode::UIADD3:
      return iadd3;
    case Opcode::LEA:
    case Opcode::ULEA:
      return lea;
    case Opcode::ISETP:
    case Opcode::UISETP:
      return isetp;
    case Opcode::IMNMX:
    case Opcode::VIMNMX:
      return imnmx;
    case Opcode::VIADD:
      return viadd;
    case Opcode::VIADDMNMX:
      return viaddmnmx;
    case Opcode::VIMNMX3:
      return vimnmx3;
    case Opcode::IABS:
      return iabs;
    case Opcode::IDP:
      return idp;
    default:
      return nullptr;
  }
}

}  // namespace t4
