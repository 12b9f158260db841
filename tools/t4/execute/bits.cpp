// SPDX-License-Identifier: Apache-2.0
//
// Logic, shifts, selection of bits and bytes.

#include <algorithm>

#include "execute/context.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

uint32_t look_up(uint32_t table, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (uint32_t row = 0; row < 8; ++row)
    if (table >> row & 1) result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
  return result;
}

// LOP3.LUT P0, R0, R1, R2, R3, table, P1: P0 = any bit of the result, or P1.
void lop3(Context& c) {
  size_t at = 0;
  const Operand* any = c.operand(0).is_predicate() ? &c.operand(at++) : nullptr;
  const Operand& to = c.operand(at++);
  Lanes values[3];
  for (Lanes& value : values) {
    const Operand& operand = c.operand(at++);
    value = c.bits(operand);
    if (operand.inverted) value = map([&](size_t l) { return ~value[l]; });
  }
  const uint32_t table = c.operand(at++).immediate;
  const Lanes result = map([&](size_t l) { return look_up(table, values[0][l], values[1][l], values[2][l]); });
  if (any != nullptr) {
    Mask mask = mask_of([&](size_t l) { return result[l] != 0; });
    if (at < c.num_operands()) {
      const Mask with = c.predicate(c.operand(at));
      mask = c.has(Modifier::PAND) ? mask & with : mask | with;
    }
    c.write(*any, mask);
  }
  c.write(to, result);
}

// PLOP3.LUT P0, P1, P2, P3, P4, table of P0, table of P1
void plop3(Context& c) {
  const Mask a = c.predicate(c.operand(2)), b = c.predicate(c.operand(3)), d = c.predicate(c.operand(4));
  c.write(c.operand(0), look_up(c.operand(5).immediate, a, b, d));
  c.write(c.operand(1), look_up(c.operand(6).immediate, a, b, d));
}

// SHF.R.U32.HI R0, R1, R2, R3: of the pair R3:R1, shifted by R2, the upper word. .W: by R2 modulo its width.
void shf(Context& c) {
  const Lanes low = c.bits(c.operand(1)), by = c.bits(c.operand(2)), high = c.bits(c.operand(3));
  const bool is_left = c.has(Modifier::L), is_signed = c.has(Modifier::S32) || c.has(Modifier::S64);
  const bool is_high = c.has(Modifier::HI), wraps = c.has(Modifier::W);
  const uint32_t width = c.has(Modifier::U64) || c.has(Modifier::S64) ? 64 : 32;
  c.write(c.operand(0), map([&](size_t l) {
            const uint64_t value = uint64_t{high[l]} << 32 | low[l];
            const uint32_t shift = wraps ? by[l] & (width - 1) : std::min(by[l], width);
            const bool is_all = shift >= 64;
            const uint64_t result = is_left ? (is_all ? 0 : value << shift)
                                    : is_signed
                                        ? static_cast<uint64_t>(static_cast<int64_t>(value) >> (is_all ? 63 : shift))
                                        : (is_all ? 0 : value >> shift);
            return static_cast<uint32_t>(is_high ? result >> 32 : result);
          }));
}

// SGXT R0, R1, R2: the lower R2 bits, extended by their sign; .U32: by zeros.
void sgxt(Context& c) {
  const Lanes a = c.bits(c.operand(1)), bits = c.bits(c.operand(2));
  const bool is_unsigned = c.has(Modifier::U32), wraps = c.has(Modifier::W);
  c.write(c.operand(0), map([&](size_t l) -> uint32_t {
            const uint32_t n = wraps ? bits[l] & 31 : bits[l];
            if (n >= 32) return a[l];
            if (n == 0) return 0;
            if (is_unsigned) return a[l] & ((1u << n) - 1);
            return static_cast<uint32_t>(static_cast<int32_t>(a[l] << (32 - n)) >> (32 - n));
          }));
}

// BMSK R0, R1, R2: R2 bits from bit R1.
void bmsk(Context& c) {
  const Lanes begin = c.bits(c.operand(1)), bits = c.bits(c.operand(2));
  const bool wraps = c.has(Modifier::W);
  c.write(c.operand(0), map([&](size_t l) -> uint32_t {
            const uint32_t at = wraps ? begin[l] & 31 : begin[l], n = wraps ? bits[l] & 31 : bits[l];
            const uint32_t mask = n >= 32 ? ~0u : (1u << n) - 1;
            return at >= 32 ? 0 : mask << at;
          }));
}

// PRMT R0, R1, 0x5410, R2: bytes of the pair R2:R1; 8 more: the sign of the byte.
void prmt(Context& c) {
  const Lanes low = c.bits(c.operand(1)), selectors = c.bits(c.operand(2)), high = c.bits(c.operand(3));
  c.write(c.operand(0), map([&](size_t l) {
            const uint64_t bytes = uint64_t{high[l]} << 32 | low[l];
            uint32_t result = 0;
            for (int i = 0; i < 4; ++i) {
              const uint32_t selector = selectors[l] >> 4 * i & 15;
              uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (selector & 7)) & 255;
              if (selector & 8) byte = byte & 128 ? 255 : 0;
              result |= byte << 8 * i;
            }
            return result;
          }));
}

Lanes maybe_inverted(const Context& c, const Operand& operand) {
  const Lanes values = c.bits(operand);
  return operand.inverted ? map([&](size_t l) { return ~values[l]; }) : values;
}
void popc(Context& c) {
  const Lanes a = maybe_inverted(c, c.operand(1));
  c.write(c.operand(0), map([&](size_t l) { return static_cast<uint32_t>(__builtin_popcount(a[l])); }));
}
// FLO R0, R1: the highest bit that is not the sign, ~0 for none; .SH: counted from the top.
void flo(Context& c) {
  const Lanes a = maybe_inverted(c, c.operand(1));
  const bool is_unsigned = c.has(Modifier::U32), from_top = c.has(Modifier::SH);
  c.write(c.operand(0), map([&](size_t l) -> uint32_t {
            const uint32_t value = !is_unsigned && a[l] >> 31 ? ~a[l] : a[l];
            if (value == 0) return ~0u;
            const auto leading = static_cast<uint32_t>(__builtin_clz(value));
            return from_top ? leading : 31 - leading;
          }));
}
void brev(Context& c) {
  const Lanes a = maybe_inverted(c, c.operand(1));
  c.write(c.operand(0), map([&](size_t l) {
            uint32_t result = 0;
            for (int i = 0; i < 32; ++i) result |= (a[l] >> i & 1) << (31 - i);
            return result;
          }));
}

}  // namespace

Handler bits_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::LOP3:
    case Opcode::ULOP3:
      return lop3;
    case Opcode::PLOP3:
    case Opcode::UPLOP3:
      return plop3;
    case Opcode::SHF:
    case Opcode::USHF:
      return shf;
    case Opcode::SGXT:
    case Opcode::USGXT:
      return sgxt;
    case Opcode::BMSK:
    case Opcode::UBMSK:
      return bmsk;
    case Opcode::PRMT:
    case Opcode::UPRMT:
      return prmt;
    case Opcode::POPC:
    case Opcode::UPOPC:
      return popc;
    case Opcode::FLO:
    case Opcode::UFLO:
      return flo;
    case Opcode::BREV:
    case Opcode::UBREV:
      return brev;
    default:
      return nullptr;
  }
}

}  // namespace t4
