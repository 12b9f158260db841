// SPDX-License-Identifier: Apache-2.0
//
// FP32 arithmetic. Compiled with -frounding-math.

#include "execute/floats.hpp"
#include "execute/handlers.hpp"

namespace t4 {
namespace {

template <class Function>
Floats each(const Function& function) {
  Floats result;
  for (size_t lane = 0; lane < warp_size; ++lane) result[lane] = function(lane);
  return result;
}

void fadd(Context& c) {
  const Floats a = floats(c, c.operand(1)), b = floats(c, c.operand(2));
  const Rounding rounding(c);
  write_floats(c, c.operand(0), each([&](size_t l) { return a[l] + b[l]; }));
}
void fmul(Context& c) {
  const Floats a = floats(c, c.operand(1)), b = floats(c, c.operand(2));
  const Rounding rounding(c);
  write_floats(c, c.operand(0), each([&](size_t l) { return a[l] * b[l]; }));
}

void multiply_add(const float* a, const float* b, const float* d, float* result) {
  for (int l = 0; l < warp_size; ++l) result[l] = std::fma(a[l], b[l], d[l]);
}
#if defined(__x86_64__)
__attribute__((target("fma,avx2"))) void multiply_add_by_fma(const float* a, const float* b, const float* d,
                                                             float* result) {
  for (int l = 0; l < warp_size; ++l) result[l] = __builtin_fmaf(a[l], b[l], d[l]);
}
const auto best_multiply_add = __builtin_cpu_supports("fma") != 0 ? multiply_add_by_fma : multiply_add;
#else
const auto best_multiply_add = multiply_add;
#endif
void ffma(Context& c) {
  const Floats a = floats(c, c.operand(1)), b = floats(c, c.operand(2)), d = floats(c, c.operand(3));
  Floats result;
  const Rounding rounding(c);
  best_multiply_add(a.data(), b.data(), d.data(), result.data());
  write_floats(c, c.operand(0), result);
}

// FMNMX R0, R1, R2, P0: the less one where P0; of a number and NaN the number; -0 is less than 0.
void fmnmx(Context& c) {
  const Floats a = floats(c, c.operand(1)), b = floats(c, c.operand(2));
  const Mask is_least = c.predicate(c.operand(3));
  write_floats(c, c.operand(0), each([&](size_t l) {
                 if (a[l] != a[l]) return b[l];
                 if (b[l] != b[l]) return a[l];
                 const bool less = a[l] < b[l] || (a[l] == b[l] && std::signbit(a[l]));
                 return less == ((is_least >> l & 1) != 0) ? a[l] : b[l];
               }));
}

// FSETP.GE.AND P0, P1, R0, R1, P2
void fsetp(Context& c) {
  const Floats a = floats(c, c.operand(2)), b = floats(c, c.operand(3));
  const Modifier relation = relation_of(c);
  write_comparison(c, mask_of([&](size_t l) { return holds(relation, a[l], b[l]); }), c.operand(4));
}
// FSET.BF.GE.AND R0, R1, R2, P0: 1 or 0; without .BF all bits.
void fset(Context& c) {
  const Floats a = floats(c, c.operand(1)), b = floats(c, c.operand(2));
  const Modifier relation = relation_of(c);
  const Mask values =
      combine(c, mask_of([&](size_t l) { return holds(relation, a[l], b[l]); }), c.predicate(c.operand(3)));
  const uint32_t yes = c.has(Modifier::BF) ? bits_of(1.f) : ~0u;
  c.write(c.operand(0), map([&](size_t l) { return values >> l & 1 ? yes : 0; }));
}

// FCHK P0, R0, R1: whether R0 / R1 may leave the range in which the quick division is right.
void fchk(Context& c) {
  const Floats a = floats(c, c.operand(1)), b = floats(c, c.operand(2));
  const auto exponent = [](float value) { return static_cast<int>(bits_of(value) >> 23 & 255); };
  c.write(c.operand(0), mask_of([&](size_t l) {
            const int of_a = exponent(a[l]), of_b = exponent(b[l]);
            return of_b == 0 || of_b > 252 || of_a == 255 || of_a < 24 || of_a - of_b > 126 || of_a - of_b < -124;
          }));
}

// To the last bit or two as the card has them.
double approximate(const Context& c, double value) {
  if (c.has(Modifier::RCP)) return 1 / value;
  if (c.has(Modifier::RSQ)) return 1 / std::sqrt(value);
  if (c.has(Modifier::SQRT)) return std::sqrt(value);
  if (c.has(Modifier::EX2)) return std::exp2(value);
  if (c.has(Modifier::LG2)) return std::log2(value);
  if (c.has(Modifier::SIN)) return std::sin(value);
  if (c.has(Modifier::COS)) return std::cos(value);
  if (c.has(Modifier::TANH)) return std::tanh(value);
  c.fail("the function is not known");
}
void mufu(Context& c) {
  if (c.has(Modifier::RCP64H) || c.has(Modifier::RSQ64H)) {  // of a double's upper word
    const Lanes upper = c.bits(c.operand(1));
    const bool is_reciprocal = c.has(Modifier::RCP64H);
    return c.write(c.operand(0), map([&](size_t l) {
                     const double value = double_of(uint64_t{upper[l]} << 32);
                     return static_cast<uint32_t>(bits_of(is_reciprocal ? 1 / value : 1 / std::sqrt(value)) >> 32);
                   }));
  }
  if (c.has(Modifier::F16)) c.fail("functions of halves are not known");
  const Floats a = floats(c, c.operand(1));
  write_floats(c, c.operand(0), each([&](size_t l) {
                 return (c.lanes >> l & 1) == 0 ? 0.f : static_cast<float>(approximate(c, static_cast<double>(a[l])));
               }));
}

}  // namespace

Handler single_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::FADD:
      return fadd;
    case Opcode::FMUL:
      return fmul;
    case Opcode::FFMA:
      return ffma;
    case Opcode::FMNMX:
      return fmnmx;
    case Opcode::FSETP:
      return fsetp;
    case Opcode::FSET:
      return fset;
    case Opcode::FCHK:
      return fchk;
    case Opcode::MUFU:
      return mufu;
    default:
      return nullptr;
  }
}

}  // namespace t4
