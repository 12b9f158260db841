// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Elementwise programs: any chain of arithmetic, comparisons and activations as one small register program, so that
/// the chain is one step that reads its inputs once. Plain data; every engine interprets it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/fields.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// One function of one to three registers. Comparisons give 1 or 0. NaN: every function passes it on, except that
/// comparisons with NaN give 0 (not_equal 1), and that select only passes on the side it takes (NaN counts as != 0).
enum class ElementwiseFunction {
  add,            ///< a + b
  sub,            ///< a - b
  mul,            ///< a b
  div,            ///< a / b
  min,            ///< the smaller of a and b; NaN when one of them is
  max,            ///< the larger of a and b; NaN when one of them is
  atan2,          ///< the angle of the point (b, a) in radians, -pi to pi: 0 on b > 0, of the sign of a, as C's
  less,           ///< a < b
  less_equal,     ///< a <= b
  greater,        ///< a > b
  greater_equal,  ///< a >= b
  equal,          ///< a == b
  not_equal,      ///< a != b
  select,         ///< c != 0 ? a : b
  neg,            ///< -a
  abs,            ///< |a|
  exp,
  log,  ///< natural logarithm; -inf at 0, NaN below
  sqrt,
  square,      ///< a a
  sin,         ///< of radians; NaN of +-inf
  cos,         ///< of radians; NaN of +-inf
  relu,        ///< max(a, 0)
  leaky_relu,  ///< a > 0 ? a : alpha a
  elu,         ///< a > 0 ? a : alpha (exp(a) - 1)
  sigmoid,     ///< 1 / (1 + exp(-a))
  tanh,
  gelu,       ///< a Phi(a), exact (erf)
  gelu_tanh,  ///< its tanh approximation
  silu        ///< a sigmoid(a)
};

constexpr auto names_of(ElementwiseFunction) {
  using Function = ElementwiseFunction;
  return std::array<std::pair<Function, const char*>, 30>{{{Function::add, "add"},
                                                           {Function::sub, "sub"},
                                                           {Function::mul, "mul"},
                                                           {Function::div, "div"},
                                                           {Function::min, "min"},
                                                           {Function::max, "max"},
                                                           {Function::atan2, "atan2"},
                                                           {Function::less, "less"},
                                                           {Function::less_equal, "less_equal"},
                                                           {Function::greater, "greater"},
                                                           {Function::greater_equal, "greater_equal"},
                                                           {Function::equal, "equal"},
                                                           {Function::not_equal, "not_equal"},
                                                           {Function::select, "select"},
                                                           {Function::neg, "neg"},
                                                           {Function::abs, "abs"},
                                                           {Function::exp, "exp"},
                                                           {Function::log, "log"},
                                                           {Function::sqrt, "sqrt"},
                                                           {Function::square, "square"},
                                                           {Function::sin, "sin"},
                                                           {Function::cos, "cos"},
                                                           {Function::relu, "relu"},
                                                           {Function::leaky_relu, "leaky_relu"},
                                                           {Function::elu, "elu"},
                                                           {Function::sigmoid, "sigmoid"},
                                                           {Function::tanh, "tanh"},
                                                           {Function::gelu, "gelu"},
                                                           {Function::gelu_tanh, "gelu_tanh"},
                                                           {Function::silu, "silu"}}};
}

/// The number of operands a, b, c that a function reads; 0 for a value that is no enumerator.
constexpr int arity(ElementwiseFunction function) {
  if (function < ElementwiseFunction::add || function > ElementwiseFunction::silu) return 0;
  if (function < ElementwiseFunction::select) return 2;
  return function == ElementwiseFunction::select ? 3 : 1;
}

/// One result: `function` of the registers a, b, c; an operand that it does not read is -1.
struct Instruction {
  ElementwiseFunction function = ElementwiseFunction::add;
  int a = -1, b = -1, c = -1;
  float alpha = 0;  ///< leaky_relu, elu; else 0
};

constexpr auto fields_of(const Instruction*) {
  return std::make_tuple(field("function", &Instruction::function), field("a", &Instruction::a),
                         field("b", &Instruction::b), field("c", &Instruction::c), field("alpha", &Instruction::alpha));
}

inline bool operator==(const Instruction& x, const Instruction& y) {
  return x.function == y.function && x.a == y.a && x.b == y.b && x.c == y.c &&
         float_bits(x.alpha) == float_bits(y.alpha);
}
inline bool operator!=(const Instruction& x, const Instruction& y) { return !(x == y); }

/// Registers are numbered: inputs, then vectors, then constants, then one per instruction. An instruction reads only
/// lower registers; the result of the last one is the output. An input is a matrix as wide as the output, or of one
/// column that serves all columns; a vector is learned and has one value per column (PReLU, Dice, batch norm).
struct ElementwiseProgram {
  int num_inputs = 0;
  int num_vectors = 0;
  std::vector<float> constants;
  std::vector<Instruction> instructions;

  int first_vector() const { return num_inputs; }
  int first_constant() const { return num_inputs + num_vectors; }
  int first_result() const { return first_constant() + static_cast<int>(constants.size()); }
  int num_registers() const { return first_result() + static_cast<int>(instructions.size()); }
};

constexpr auto fields_of(const ElementwiseProgram*) {
  return std::make_tuple(
      field("num_inputs", &ElementwiseProgram::num_inputs), field("num_vectors", &ElementwiseProgram::num_vectors),
      field("constants", &ElementwiseProgram::constants), field("instructions", &ElementwiseProgram::instructions));
}

/// Equality of all fields; constants are compared by their bits, so that -0 and 0 differ and a NaN equals itself.
inline bool operator==(const ElementwiseProgram& x, const ElementwiseProgram& y) {
  const auto same_bits = [](float a, float b) { return float_bits(a) == float_bits(b); };
  return x.num_inputs == y.num_inputs && x.num_vectors == y.num_vectors && x.instructions == y.instructions &&
         std::equal(x.constants.begin(), x.constants.end(), y.constants.begin(), y.constants.end(), same_bits);
}
inline bool operator!=(const ElementwiseProgram& x, const ElementwiseProgram& y) { return !(x == y); }

/// The most registers of each kind: far more than any model's chain, and small enough that a hostile file cannot make
/// an engine allocate much.
inline constexpr int max_elementwise_registers = 1024;

/// Adds the errors of a program from outside to `problems`; `what` names it. A program that passes can be interpreted
/// without further checks.
inline void validate(const ElementwiseProgram& program, const std::string& what, Problems& problems) {
  const auto check_count = [&](const char* kind, int64_t count, int64_t least) {
    if (count >= least && count <= max_elementwise_registers) return true;
    problems.add(what + ": " + kind, std::to_string(least) + " to " + std::to_string(max_elementwise_registers),
                 std::to_string(count));
    return false;
  };
  bool counts_ok = check_count("inputs", program.num_inputs, 0);
  counts_ok &= check_count("vectors", program.num_vectors, 0);
  counts_ok &= check_count("constants", static_cast<int64_t>(program.constants.size()), 0);
  counts_ok &= check_count("instructions", static_cast<int64_t>(program.instructions.size()), 1);
  if (!counts_ok) return;

  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const std::string where = what + ": instruction " + std::to_string(i);
    const int operand_count = arity(instruction.function);
    if (operand_count == 0) {
      problems.add(where, "a function", std::to_string(static_cast<int64_t>(instruction.function)));
      continue;
    }
    const int limit = program.first_result() + static_cast<int>(i);
    const int operands[] = {instruction.a, instruction.b, instruction.c};
    for (int k = 0; k < 3; ++k) {
      const bool read = k < operand_count;
      if (read ? operands[k] >= 0 && operands[k] < limit : operands[k] == -1) continue;
      problems.add(where + " (" + name_of_enum(instruction.function) + "), operand " + "abc"[k],
                   read ? "an earlier register, 0 to " + std::to_string(limit - 1) : std::string("-1 (not read)"),
                   std::to_string(operands[k]));
    }
  }
}

/// A program with the identities of its inputs, in the order of its input registers.
struct InlinedProgram {
  ElementwiseProgram program;
  std::vector<int> inputs;
};

/// One program that computes the consumer with the producer's output as its input `input`, with the same bits as the
/// two programs one after the other.
/// `consumer_inputs` and `producer_inputs` identify the inputs (tensor ids, say): equal identities become one input,
/// and every consumer input with the identity of `input` is replaced. Inputs of the result: the consumer's other
/// inputs, then those that only the producer has. Vectors: the consumer's, then the producer's. Equal constants are
/// merged.
/// Both must be valid; a producer of one column inside a wider consumer must have no vectors (they are of one column).
inline InlinedProgram inline_program(const ElementwiseProgram& consumer, Span<const int> consumer_inputs, int input,
                                     const ElementwiseProgram& producer, Span<const int> producer_inputs) {
  const int replaced = consumer_inputs[input];
  InlinedProgram result;
  const auto index_of = [](auto& list, const auto& value, auto same) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& other) { return same(other, value); });
    if (found != list.end()) return static_cast<int>(found - list.begin());
    list.push_back(value);
    return static_cast<int>(list.size()) - 1;
  };
  const auto input_of = [&](int identity) { return index_of(result.inputs, identity, std::equal_to<int>()); };
  const auto constant_of = [&](float value) {
    return index_of(result.program.constants, value, [](float a, float b) { return float_bits(a) == float_bits(b); });
  };

  for (const int identity : consumer_inputs)
    if (identity != replaced) input_of(identity);
  for (const int identity : producer_inputs) input_of(identity);
  for (const float value : consumer.constants) constant_of(value);
  for (const float value : producer.constants) constant_of(value);
  result.program.num_inputs = static_cast<int>(result.inputs.size());
  result.program.num_vectors = consumer.num_vectors + producer.num_vectors;

  // `splice` appends a program's instructions, given the places of its inputs and vectors.
  const auto splice = [&](const ElementwiseProgram& source, Span<const int> identities, int vector_offset) {
    const int result_offset = result.program.num_registers() - source.first_result();
    const auto renumber = [&](int r) {
      if (r < 0) return r;
      if (r < source.first_vector()) {
        const int output_of_producer =
            result.program.first_result() + static_cast<int>(producer.instructions.size()) - 1;
        return identities[r] == replaced ? output_of_producer : input_of(identities[r]);
      }
      if (r < source.first_constant()) return result.program.first_vector() + vector_offset + r - source.first_vector();
      if (r < source.first_result())
        return result.program.first_constant() +
               constant_of(source.constants[static_cast<size_t>(r - source.first_constant())]);
      return r + result_offset;
    };
    for (const Instruction& instruction : source.instructions)
      result.program.instructions.push_back({instruction.function, renumber(instruction.a), renumber(instruction.b),
                                             renumber(instruction.c), instruction.alpha});
  };
  splice(producer, producer_inputs, consumer.num_vectors);
  splice(consumer, consumer_inputs, 0);
  return result;
}

}}  // namespace warprank::v0
