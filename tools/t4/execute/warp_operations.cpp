// SPDX-License-Identifier: Apache-2.0
//
// Operations in which the lanes of a warp see one another.

#include "execute/context.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

// SHFL.BFLY P0, R0, R1, lane, clamp | segment << 8
void shfl(Context& c) {
  const Lanes values = c.bits(c.operand(2)), by = c.bits(c.operand(3)), bounds = c.bits(c.operand(4));
  Mask is_inside = 0;
  const Lanes result = map([&](size_t lane) {
    const int l = static_cast<int>(lane), b = static_cast<int>(by[lane] & 31);
    const int segment = static_cast<int>(bounds[lane] >> 8 & 31), clamp = static_cast<int>(bounds[lane] & 31);
    const int least = l & segment, most = least | (clamp & ~segment);
    int from = 0;
    bool inside = false;
    if (c.has(Modifier::UP)) {
      from = l - b, inside = from >= most;
    } else {
      from = c.has(Modifier::DOWN) ? l + b : c.has(Modifier::BFLY) ? l ^ b : least | (b & ~segment);
      inside = from <= most;
    }
    if (!inside) from = l;
    is_inside |= static_cast<Mask>(inside) << lane;
    return (c.group >> from & 1) != 0 ? values[static_cast<size_t>(from)] : 0;  // nobody there: undefined
  });
  c.write(c.operand(1), result);
  c.write(c.operand(0), is_inside);
}

// VOTE.ALL R0, P0, P1; VOTEU.ANY UR0, UP0, P1
void vote(Context& c) {
  const size_t last = c.num_operands() - 1;
  const Mask ballot = c.predicate(c.operand(last)) & c.lanes;
  const bool result = c.has(Modifier::ALL)  ? ballot == c.lanes
                      : c.has(Modifier::EQ) ? ballot == c.lanes || ballot == 0
                                            : ballot != 0;
  for (size_t i = 0; i < last; ++i) {
    if (c.operand(i).is_predicate()) {
      c.write(c.operand(i), result ? ~Mask{0} : 0);
    } else {
      c.write(c.operand(i), map([&](size_t) { return ballot; }));
    }
  }
}

// MATCH.ANY R0, R1: who has the same; .ALL P0, R0, R1: everybody, or nobody.
void match(Context& c) {
  const size_t last = c.num_operands() - 1;
  const Operand& from = c.operand(last);
  Lanes64 values{};
  if (c.has(Modifier::U64)) {
    values = c.bits64(from);
  } else {
    const Lanes bits = c.bits(from);
    values = map64([&](size_t l) { return bits[l]; });
  }
  Lanes same{};
  bool all = true;
  for_each_lane(c.lanes, [&](int l) {
    const uint64_t mine = values[static_cast<size_t>(l)];
    const Mask who = mask_of([&](size_t other) { return values[other] == mine; }) & c.lanes;
    same[static_cast<size_t>(l)] = who;
    all = all && who == c.lanes;
  });
  const bool asks_all = c.has(Modifier::ALL);
  for (size_t i = 0; i < last; ++i) {
    if (c.operand(i).is_predicate()) {
      c.write(c.operand(i), !asks_all || all ? ~Mask{0} : 0);
    } else {
      c.write(c.operand(i), map([&](size_t l) { return asks_all ? (all ? c.lanes : 0) : same[l]; }));
    }
  }
}

// REDUX.OR UR0, R1: of the lanes that are here.
void redux(Context& c) {
  const Lanes values = c.bits(c.operand(1));
  const bool is_sum = c.has(Modifier::SUM), takes_all = c.has(Modifier::AND);
  if (!is_sum && !takes_all && !c.has(Modifier::OR) && !c.has(Modifier::XOR)) c.fail("the operation is not known");
  uint32_t result = takes_all ? ~0u : 0;
  for_each_lane(c.lanes, [&](int lane) {
    const uint32_t value = values[static_cast<size_t>(lane)];
    result = is_sum                 ? result + value
             : takes_all            ? result & value
             : c.has(Modifier::XOR) ? result ^ value
                                    : result | value;
  });
  c.write(c.operand(0), map([&](size_t) { return result; }));
}

}  // namespace

Handler warp_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::SHFL:
      return shfl;
    case Opcode::VOTE:
    case Opcode::VOTEU:
      return vote;
    case Opcode::REDUX:
      return redux;
    case Opcode::MATCH:
      return match;
    default:
      return nullptr;
  }
}

}  // namespace t4
