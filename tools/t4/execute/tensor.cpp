// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices. Sums of halves are made in double and rounded once: a tensor core's have an order and a
// rounding of their own.

#include <algorithm>

#include "execute/context.hpp"
#include "execute/half_values.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

void need_all_lanes(const Context& c) {
  if (c.lanes != ~Mask{0}) c.fail("the warp has diverged");
}
uint16_t half_of(uint32_t pair, size_t i) { return static_cast<uint16_t>(pair >> 16 * i); }

// HMMA.1688.F32 R0, R4, R6, R8: 16 x 8 times 8 x 8; HMMA.16816: 16 x 16 times 16 x 8. Lane l has of each 8 x 8 part the
// row l / 4, the columns l % 4 * 2 and one more; of the second factor the column and the rows. A register for each
// part, those of the upper rows first.
void hmma(Context& c) {
  if (!c.has(Modifier::M1688) && !c.has(Modifier::M16816)) c.fail("the shape is not known");
  need_all_lanes(c);
  constexpr size_t rows = 16, cols = 8, part = 8, most_parts = 2;
  const size_t parts = c.has(Modifier::M16816) ? 2 : 1, inner = part * parts;
  const bool is_single = c.has(Modifier::F32);
  double a[rows][most_parts * part], b[most_parts * part][cols], sums[rows][cols];
  for (size_t p = 0; p < parts; ++p) {
    const int plus = static_cast<int>(p);
    const Lanes of_b = c.bits(c.operand(2), plus);
    const Lanes of_a[2] = {c.bits(c.operand(1), 2 * plus), c.bits(c.operand(1), 2 * plus + 1)};
    for (size_t l = 0; l < warp_size; ++l)
      for (size_t i = 0; i < 2; ++i) {
        const size_t col = part * p + l % 4 * 2 + i;
        for (size_t half = 0; half < 2; ++half)
          a[8 * half + l / 4][col] = static_cast<double>(half_to_float(half_of(of_a[half][l], i)));
        b[col][l / 4] = static_cast<double>(half_to_float(half_of(of_b[l], i)));
      }
  }
  for (size_t half = 0; half < 2; ++half) {
    const int plus = static_cast<int>(half);
    const Lanes addends[2] = {c.bits(c.operand(3), is_single ? 2 * plus : plus),
                              is_single ? c.bits(c.operand(3), 2 * plus + 1) : Lanes{}};
    for (size_t l = 0; l < warp_size; ++l)
      for (size_t i = 0; i < 2; ++i) {
        const size_t row = 8 * half + l / 4, col = l % 4 * 2 + i;
        sums[row][col] =
            static_cast<double>(is_single ? float_of(addends[i][l]) : half_to_float(half_of(addends[0][l], i)));
      }
  }
  for (size_t row = 0; row < rows; ++row)
    for (size_t k = 0; k < inner; ++k)
      for (size_t col = 0; col < cols; ++col) sums[row][col] += a[row][k] * b[k][col];
  for (size_t half = 0; half < 2; ++half) {
    const int plus = static_cast<int>(half);
    const auto sum = [&](size_t l, size_t i) { return sums[8 * half + l / 4][l % 4 * 2 + i]; };
    if (is_single) {
      for (size_t i = 0; i < 2; ++i)
        c.write(c.operand(0), map([&](size_t l) { return bits_of(static_cast<float>(sum(l, i))); }),
                2 * plus + static_cast<int>(i));
    } else {
      c.write(c.operand(0), map([&](size_t l) { return to_half(sum(l, 0)) | uint32_t{to_half(sum(l, 1))} << 16; }),
              plus);
    }
  }
}

// IMMA.8816.S8.S8 R0, R2.ROW, R3.COL, R4: 8 x 16 times 16 x 8. Lane l has the row l / 4, four columns from l % 4 * 4;
// of the second factor the column and the rows; of the sums two columns from l % 4 * 2.
void imma(Context& c) {
  std::vector<Modifier> types;
  for (const Modifier modifier : c.instruction.modifiers)
    if (modifier == Modifier::S8 || modifier == Modifier::U8) types.push_back(modifier);
  if (!c.has(Modifier::M8816) || types.size() != 2) c.fail("the shape is not known");
  need_all_lanes(c);
  constexpr size_t size = 8, inner = 16;
  const auto byte = [](Modifier type, uint32_t word, size_t i) {
    return type == Modifier::S8 ? int32_t{static_cast<int8_t>(word >> 8 * i)}
                                : int32_t{static_cast<uint8_t>(word >> 8 * i)};
  };
  int32_t a[size][inner], b[inner][size];
  int64_t sums[size][size];
  const Lanes of_a = c.bits(c.operand(1)), of_b = c.bits(c.operand(2));
  const Lanes addends[2] = {c.bits(c.operand(3)), c.bits(c.operand(3), 1)};
  for (size_t l = 0; l < warp_size; ++l) {
    for (size_t i = 0; i < 4; ++i) {
      a[l / 4][l % 4 * 4 + i] = byte(types[0], of_a[l], i);
      b[l % 4 * 4 + i][l / 4] = byte(types[1], of_b[l], i);
    }
    for (size_t i = 0; i < 2; ++i) sums[l / 4][l % 4 * 2 + i] = static_cast<int32_t>(addends[i][l]);
  }
  for (size_t row = 0; row < size; ++row)
    for (size_t col = 0; col < size; ++col) {
      for (size_t k = 0; k < inner; ++k) sums[row][col] += a[row][k] * b[k][col];
      if (c.has(Modifier::SAT)) sums[row][col] = std::clamp<int64_t>(sums[row][col], INT32_MIN, INT32_MAX);
    }
  for (size_t i = 0; i < 2; ++i)
    c.write(c.operand(0), map([&](size_t l) { return static_cast<uint32_t>(sums[l / 4][l % 4 * 2 + i]); }),
            static_cast<int>(i));
}

// MOVM.16.MT88 R0, R1: an 8 x 8 matrix of halves, transposed.
void movm(Context& c) {
  need_all_lanes(c);
  const Lanes from = c.bits(c.operand(1));
  c.write(c.operand(0), map([&](size_t l) {
            uint32_t pair = 0;
            for (size_t i = 0; i < 2; ++i) {
              const size_t row = l % 4 * 2 + i, col = l / 4;
              pair |= uint32_t{half_of(from[row * 4 + col / 2], col % 2)} << 16 * i;
            }
            return pair;
          }));
}

}  // namespace

Handler tensor_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::HMMA:
      return hmma;
    case Opcode::IMMA:
      return imma;
    case Opcode::MOVM:
      return movm;
    default:
      return nullptr;
  }
}

}  // namespace t4
