// SPDX-License-Identifier: Apache-2.0
//
// Values from elsewhere, or as they are: registers, constants, predicates, the lane's place.

#include "execute/floats.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

void mov(Context& c) { c.write(c.operand(0), c.bits(c.operand(1))); }
void r2ur(Context& c) { c.write(c.operand(0), c.bits(c.operand(1))); }

Lanes select(const Mask mask, const Lanes& a, const Lanes& b) {
  return map([&](size_t l) { return mask >> l & 1 ? a[l] : b[l]; });
}
void sel(Context& c) {
  c.write(c.operand(0), select(c.predicate(c.operand(3)), c.integers(c.operand(1)), c.integers(c.operand(2))));
}
void fsel(Context& c) {
  const Floats a = floats(c, c.operand(1)), b = floats(c, c.operand(2));
  const Mask mask = c.predicate(c.operand(3));
  c.write(c.operand(0), map([&](size_t l) { return bits_of(mask >> l & 1 ? a[l] : b[l]); }));
}

// LDC.64 R0, c[0x3][R1+0x10]
void ldc(Context& c) {
  if (c.instruction.width > 4) return c.write64(c.operand(0), c.bits64(c.operand(1)));  // read before it is written
  const bool is_signed = c.has(Modifier::S8) || c.has(Modifier::S16);
  const int shift = 32 - 8 * c.instruction.width;
  const Lanes words = c.bits(c.operand(1));
  c.write(c.operand(0), map([&](size_t l) {
            const uint32_t upper = words[l] << shift;
            return is_signed ? static_cast<uint32_t>(static_cast<int32_t>(upper) >> shift) : upper >> shift;
          }));
}

// ---- Special registers

Lanes special(const Context& c, const std::string& name) {
  const Block& block = *c.warp.block;
  const Launch& launch = *block.launch;
  const Dim3 size = launch.block;
  const auto first = static_cast<uint32_t>(c.warp.index * warp_size);
  const auto of_thread = [&](const auto& function) {
    return map([&](size_t l) { return function(first + static_cast<uint32_t>(l)); });
  };
  const auto of_lane = [&](const auto& function) {
    return map([&](size_t l) { return static_cast<uint32_t>(function(uint64_t{1} << l)); });
  };
  const auto everywhere = [](uint64_t value) { return map([&](size_t) { return static_cast<uint32_t>(value); }); };
  if (name == "SR_TID.X") return of_thread([&](uint32_t t) { return t % size.x; });
  if (name == "SR_TID.Y") return of_thread([&](uint32_t t) { return t / size.x % size.y; });
  if (name == "SR_TID.Z") return of_thread([&](uint32_t t) { return t / size.x / size.y; });
  if (name == "SR_CTAID.X") return everywhere(block.index.x);
  if (name == "SR_CTAID.Y") return everywhere(block.index.y);
  if (name == "SR_CTAID.Z") return everywhere(block.index.z);
  if (name == "SR_LANEID") return map([](size_t l) { return static_cast<uint32_t>(l); });
  if (name == "SR_EQMASK") return of_lane([](uint64_t bit) { return bit; });
  if (name == "SR_LTMASK") return of_lane([](uint64_t bit) { return bit - 1; });
  if (name == "SR_LEMASK") return of_lane([](uint64_t bit) { return 2 * bit - 1; });
  if (name == "SR_GTMASK") return of_lane([](uint64_t bit) { return ~(2 * bit - 1); });
  if (name == "SR_GEMASK") return of_lane([](uint64_t bit) { return ~(bit - 1); });
  if (name == "SRZ") return everywhere(0);
  if (name == "SR_CLOCKLO" || name == "SR_GLOBALTIMERLO") return everywhere(launch.clock);
  if (name == "SR_CLOCKHI" || name == "SR_GLOBALTIMERHI") return everywhere(launch.clock >> 32);
  if (name == "SR_CgaCtaId") return everywhere(0);  // a block is a cluster of its own
  if (name == "SR_SWINHI") return everywhere(shared_window >> 32);
  c.fail("the register " + name + " is not known");
}
void s2r(Context& c) { c.write(c.operand(0), special(c, c.operand(1).text)); }
// CS2R R0, SRZ: a pair; .32: one.
void cs2r(Context& c) {
  const std::string& name = c.operand(1).text;
  const bool is_time = name == "SR_CLOCKLO" || name == "SR_GLOBALTIMERLO";
  const Lanes low = special(c, name);
  c.write(c.operand(0), low);
  if (c.has(Modifier::M32)) return;
  c.write(c.operand(0), is_time ? special(c, "SR_CLOCKHI") : Lanes{}, 1);
}

// ---- Predicates as bits

int shift_of(const Context& c) {
  return c.has(Modifier::B1) ? 8 : c.has(Modifier::B2) ? 16 : c.has(Modifier::B3) ? 24 : 0;
}
// P2R R0, PR, R1, 0x7f: these predicates, in the place of those bits of R1.
void p2r(Context& c) {
  const Lanes before = c.bits(c.operand(2)), mask = c.bits(c.operand(3));
  const int shift = shift_of(c);
  c.write(c.operand(0), map([&](size_t l) {
            uint32_t values = 0;
            for (size_t p = 0; p < true_predicate; ++p) values |= (c.warp.predicates[p] >> l & 1) << p;
            return (before[l] & ~(mask[l] << shift)) | (values & mask[l]) << shift;
          }));
}
// R2P PR, R0, 0x7f
void r2p(Context& c) {
  const Operand& from = c.operand(1);
  const Lanes values = c.bits(from), mask = c.bits(c.operand(2));
  const int shift = from.part > 0 && from.part < 4 ? 8 * from.part : shift_of(c);
  for (size_t p = 0; p < true_predicate; ++p) {
    Mask& to = c.warp.predicates[p];
    for_each_lane(c.lanes, [&](int lane) {
      const auto l = static_cast<size_t>(lane);
      if ((mask[l] >> p & 1) == 0) return;
      to = (to & ~(Mask{1} << l)) | (values[l] >> shift >> p & 1) << l;
    });
  }
}

}  // namespace

Handler move_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::MOV:
    case Opcode::UMOV:
      return mov;
    case Opcode::R2UR:
      return r2ur;
    case Opcode::SEL:
    case Opcode::USEL:
      return sel;
    case Opcode::FSEL:
      return fsel;
    case Opcode::LDC:
    case Opcode::ULDC:
      return ldc;
    case Opcode::S2R:
    case Opcode::S2UR:
      return s2r;
    case Opcode::CS2R:
      return cs2r;
    case Opcode::P2R:
      return p2r;
    case Opcode::R2P:
      return r2p;
    default:
      return nullptr;
  }
}

}  // namespace t4
