// SPDX-License-Identifier: Apache-2.0
//
// Atomic operations, one lane after the other.

#include <algorithm>

#include "execute/floats.hpp"
#include "execute/half_values.hpp"
#include "execute/handlers.hpp"
#include "execute/spaces.hpp"

namespace t4 {
namespace {

template <class T>
T read_as(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
T greater(T a, T b) {
  return a > b ? a : b;
}
template <class T>
T lesser(T a, T b) {
  return a < b ? a : b;
}

uint32_t add_halves(uint32_t a, uint32_t b) {
  uint32_t result = 0;
  for (int i = 0; i < 2; ++i) {
    const auto half = [&](uint32_t pair) {
      return static_cast<double>(half_to_float(static_cast<uint16_t>(pair >> 16 * i)));
    };
    result |= uint32_t{to_half(half(a) + half(b))} << 16 * i;
  }
  return result;
}

/// What is written in the place of `old`. Value is unsigned; Signed the same, signed.
template <class Value, class Signed>
Value combined(const Context& c, Value old, Value with) {
  const bool is_signed = c.has(Modifier::S32) || c.has(Modifier::S64);
  const auto a = static_cast<Signed>(old), b = static_cast<Signed>(with);
  if (c.has(Modifier::ADD)) {
    if (c.has(Modifier::F64)) return static_cast<Value>(bits_of(double_of(old) + double_of(with)));
    if (c.has(Modifier::F16x2))
      return static_cast<Value>(add_halves(static_cast<uint32_t>(old), static_cast<uint32_t>(with)));
    if (!c.has(Modifier::F32)) return old + with;
    const float x = float_of(static_cast<uint32_t>(old)), y = float_of(static_cast<uint32_t>(with));
    return bits_of(c.has(Modifier::FTZ) ? flush(flush(x) + flush(y)) : x + y);
  }
  if (c.has(Modifier::EXCH)) return with;
  if (c.has(Modifier::AND)) return old & with;
  if (c.has(Modifier::OR)) return old | with;
  if (c.has(Modifier::XOR)) return old ^ with;
  if (c.has(Modifier::MIN)) return is_signed ? static_cast<Value>(lesser(a, b)) : lesser(old, with);
  if (c.has(Modifier::MAX)) return is_signed ? static_cast<Value>(greater(a, b)) : greater(old, with);
  if (c.has(Modifier::INC)) return old >= with ? 0 : old + 1;
  if (c.has(Modifier::DEC)) return old == 0 || old > with ? with : old - 1;
  c.fail("the operation is not known");
}

struct Shape {
  const Operand* memory = nullptr;
  size_t first_source = 0;
  const Operand* result = nullptr;
  /// ATOM.E.ADD.64 P0, R0, [R2], R4: whether it was done. In shared memory it is not, and the code does it in another
  /// way. Null, too, where nobody asks.
  const Operand* done = nullptr;
};
Shape shape_of(const Context& c) {
  Shape shape;
  for (size_t i = 0; i < c.num_operands() && shape.memory == nullptr; ++i) {
    const Operand& operand = c.operand(i);
    if (operand.kind == Operand::Kind::memory) shape.memory = &operand, shape.first_source = i + 1;
    if (operand.is_register()) shape.result = &operand;
    if (operand.is_predicate() && operand.index != true_predicate) shape.done = &operand;
  }
  if (shape.memory == nullptr) c.fail("the operands are not known");
  return shape;
}

template <class Value, class Signed>
void run(Context& c, Space space) {
  const Shape shape = shape_of(c);
  const auto read = [&](const Operand& operand, int plus) {
    const Lanes low = c.bits(operand, plus);
    const Lanes high = sizeof(Value) == 8 ? c.bits(operand, plus + 1) : Lanes{};
    return map64([&](size_t l) { return uint64_t{high[l]} << 32 | low[l]; });
  };
  constexpr int words = sizeof(Value) / 4;
  const bool counts = c.has(Modifier::POPC) && c.has(Modifier::INC);  // ATOMS.POPC.INC.32 R0, [R1]
  const bool compares = c.has(Modifier::CAS) || c.has(Modifier::CAST);
  Lanes64 first{}, second{};
  if (!counts) first = read(c.operand(shape.first_source), 0);
  if (compares)  // ATOMG.CAS has both in one operand, or in two
    second = shape.first_source + 1 < c.num_operands() ? read(c.operand(shape.first_source + 1), 0)
                                                       : read(c.operand(shape.first_source), words);
  Lanes64 result{};
  Mask swapped = 0, done = 0;
  for_each_lane(c.lanes, [&](int lane) {
    const auto l = static_cast<size_t>(lane);
    const uint64_t address = address_of(c, *shape.memory, space, lane);
    uint64_t within = address;
    if (shape.done != nullptr && resolve(space, within) == Space::shared) return;
    done |= Mask{1} << lane;
    uint8_t* at = access(c, space, address, sizeof(Value), lane);
    const auto old = read_as<Value>(at);
    const auto with = static_cast<Value>(first[l]);
    Value value = old;
    if (counts) {
      value = old + 1;
    } else if (compares) {
      if (old == with) value = static_cast<Value>(second[l]), swapped |= Mask{1} << lane;
    } else {
      value = combined<Value, Signed>(c, old, with);
    }
    std::memcpy(at, &value, sizeof value);
    c.warp.block->launch->changes += value != old;
    result[l] = old;
  });
  if (c.has(Modifier::CAST)) result = map64([&](size_t l) { return swapped >> l & 1; });
  if (shape.done != nullptr) c.write(*shape.done, done);
  if (shape.result == nullptr) return;
  if (sizeof(Value) == 8) return c.write64(*shape.result, result);
  c.write(*shape.result, map([&](size_t l) { return static_cast<uint32_t>(result[l]); }));
}

template <Space space>
void atomic(Context& c) {
  const bool is_wide = c.has(Modifier::M64) || c.has(Modifier::U64) || c.has(Modifier::S64) || c.has(Modifier::F64);
  return is_wide ? run<uint64_t, int64_t>(c, space) : run<uint32_t, int32_t>(c, space);
}

}  // namespace

Handler atomic_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::ATOMG:
      return atomic<Space::global>;
    case Opcode::ATOM:
      return atomic<Space::generic>;
    case Opcode::ATOMS:
      return atomic<Space::shared>;
    case Opcode::RED:
    case Opcode::REDG:
      return atomic<Space::generic>;
    default:
      return nullptr;
  }
}

}  // namespace t4
