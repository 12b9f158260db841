// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs of model/elementwise.hpp as kernels interpret them: operands are loaded just before they are first read,
/// and a value's slot is used again when it was read for the last time.

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/ops/detail/activation.cuh"
#include "warprank/ops/detail/elementwise.cuh"

namespace warprank::detail::elementwise {

inline constexpr int max_inputs = 8, max_vectors = 8, max_operations = 96, num_slots = 16;

/// One instruction on slots, or the load of a register that is no instruction's.
struct SlotOperation {
  enum class Kind : uint8_t { function, load_input, load_vector, load_constant };
  Kind kind = Kind::function;
  uint8_t function = 0;  // an ElementwiseFunction, or which input or vector
  uint8_t to = 0, a = 0, b = 0, c = 0;
  float number = 0;  // alpha, or the constant
};

/// What an ElementwiseFunction gives of each of VecSize operands.
template <int VecSize>
WARPRANK_DEVICE void apply_function(ElementwiseFunction function, float alpha, const float (&a)[VecSize],
                                    const float (&b)[VecSize], const float (&c)[VecSize], float (&result)[VecSize]) {
  using Function = ElementwiseFunction;
  const auto each = [&](auto f) {
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) result[j] = f(a[j], b[j], c[j]);
  };
  switch (function) {
    case Function::add:
      return each([](float x, float y, float) { return x + y; });
    case Function::sub:
      return each([](float x, float y, float) { return x - y; });
    case Function::mul:
      return each([](float x, float y, float) { return x * y; });
    case Function::div:
      return each([](float x, float y, float) { return x / y; });
    case Function::min:
      return each([](float x, float y, float) { return x < y || x != x ? x : y; });
    case Function::max:
      return each([](float x, float y, float) { return x > y || x != x ? x : y; });
    case Function::less:
      return each([](float x, float y, float) { return x < y ? 1.0f : 0.0f; });
    case Function::less_equal:
      return each([](float x, float y, float) { return x <= y ? 1.0f : 0.0f; });
    case Function::greater:
      return each([](float x, float y, float) { return x > y ? 1.0f : 0.0f; });
    case Function::greater_equal:
      return each([](float x, float y, float) { return x >= y ? 1.0f : 0.0f; });
    case Function::equal:
      return each([](float x, float y, float) { return x == y ? 1.0f : 0.0f; });
    case Function::not_equal:
      return each([](float x, float y, float) { return x != y ? 1.0f : 0.0f; });
    case Function::select:
      return each([](float x, float y, float condition) { return condition != 0 ? x : y; });
    case Function::neg:
      return each([](float x, float, float) { return -x; });
    case Function::abs:
      return each([](float x, float, float) { return std::fabs(x); });
    case Function::exp:
      return each([](float x, float, float) { return std::exp(x); });
    case Function::log:
      return each([](float x, float, float) { return std::log(x); });
    case Function::sqrt:
      return each([](float x, float, float) { return std::sqrt(x); });
    case Function::square:
      return each([](float x, float, float) { return x * x; });
    case Function::relu:
      return each([](float x, float, float) { return x < 0 ? 0.0f : x; });
    case Function::leaky_relu:
      return each([&](float x, float, float) { return leaky_relu_of(x, alpha); });
    case Function::elu:
      return each([&](float x, float, float) { return elu_of(x, alpha); });
    case Function::sigmoid:
      return each([](float x, float, float) { return sigmoid_of(x); });
    case Function::tanh:
      return each([](float x, float, float) { return std::tanh(x); });
    case Function::gelu:
      return each([](float x, float, float) { return gelu_of(x); });
    case Function::gelu_tanh:
      return each([](float x, float, float) { return gelu_tanh_of(x); });
    case Function::silu:
      return each([](float x, float, float) { return silu_of(x); });
  }
}

/// A chain as CompiledChain is one. Every thread takes the same way through the program.
template <class Value>
struct InterpretedChain {
  AxisInput<Value> inputs[max_inputs];
  const float* vectors[max_vectors];
  SlotOperation operations[max_operations];
  int num_inputs, num_operations;

  struct Row {
    const Value* inputs[max_inputs];
  };
  WARPRANK_DEVICE Row find(int64_t n) const {
    Row row{};
    for (int i = 0; i < num_inputs; ++i) row.inputs[i] = row_of(inputs[i], n);
    return row;
  }
  template <int VecSize>
  WARPRANK_DEVICE void evaluate(const Row& row, int64_t column, int64_t, float (&values)[VecSize]) const {
    float slots[num_slots][VecSize] = {};
    for (int i = 0; i < num_operations; ++i) {
      const SlotOperation& operation = operations[i];
      float(&to)[VecSize] = slots[operation.to];
      switch (operation.kind) {
        case SlotOperation::Kind::load_input:
          load_values(row.inputs[operation.function], inputs[operation.function].values.cols == 1, column, to);
          break;
        case SlotOperation::Kind::load_vector:
          WARPRANK_UNROLL
          for (int j = 0; j < VecSize; ++j) to[j] = device::load_read_only(vectors[operation.function] + column + j);
          break;
        case SlotOperation::Kind::load_constant:
          WARPRANK_UNROLL
          for (int j = 0; j < VecSize; ++j) to[j] = operation.number;
          break;
        case SlotOperation::Kind::function:
          apply_function(static_cast<ElementwiseFunction>(operation.function), operation.number, slots[operation.a],
                         slots[operation.b], slots[operation.c], to);
          break;
      }
    }
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) values[j] = slots[operations[num_operations - 1].to][j];
  }
};

/// The program's instructions on slots; none when there are not enough.
inline std::vector<SlotOperation> slot_operations(const ElementwiseProgram& program) {
  const auto num_registers = static_cast<size_t>(program.num_registers());
  std::vector<int> last_reader(num_registers, -1), slot_of(num_registers, -1);
  const auto operands = [](const Instruction& i) { return std::array<int, 3>{i.a, i.b, i.c}; };
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const int r : operands(program.instructions[i])) {
      if (r >= 0) last_reader[static_cast<size_t>(r)] = static_cast<int>(i);
    }
  }
  std::vector<SlotOperation> result;
  std::array<bool, num_slots> used{};
  const auto take_slot = [&] {
    for (size_t slot = 0; slot < num_slots; ++slot) {
      if (used[slot]) continue;
      used[slot] = true;
      return static_cast<int>(slot);
    }
    return -1;
  };
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    SlotOperation operation;
    operation.function = static_cast<uint8_t>(instruction.function);
    operation.number = instruction.alpha;
    uint8_t* const slots[] = {&operation.a, &operation.b, &operation.c};
    const std::array<int, 3> registers = operands(instruction);
    for (size_t k = 0; k < 3; ++k) {
      if (registers[k] < 0) continue;
      int& slot = slot_of[static_cast<size_t>(registers[k])];
      if (slot < 0) {  // no instruction's result: loaded where it is first read
        SlotOperation load;
        slot = take_slot();
        if (slot < 0) return {};
        load.to = static_cast<uint8_t>(slot);
        const int r = registers[k];
        if (r < program.first_vector()) {
          load.kind = SlotOperation::Kind::load_input;
          load.function = static_cast<uint8_t>(r);
        } else if (r < program.first_constant()) {
          load.kind = SlotOperation::Kind::load_vector;
          load.function = static_cast<uint8_t>(r - program.first_vector());
        } else {
          load.kind = SlotOperation::Kind::load_constant;
          load.number = program.constants[static_cast<size_t>(r - program.first_constant())];
        }
        result.push_back(load);
      }
      *slots[k] = static_cast<uint8_t>(slot);
    }
    for (const int r : registers) {  // the result may take the place of an operand
      if (r >= 0 && last_reader[static_cast<size_t>(r)] == static_cast<int>(i)) {
        used[static_cast<size_t>(slot_of[static_cast<size_t>(r)])] = false;
      }
    }
    const int slot = take_slot();
    if (slot < 0) return {};
    operation.to = static_cast<uint8_t>(slot);
    const size_t own = static_cast<size_t>(program.first_result()) + i;
    slot_of[own] = slot;
    if (last_reader[own] < 0) used[static_cast<size_t>(slot)] = false;  // nobody reads it
    result.push_back(operation);
  }
  return result;
}

/// Throws invalid_argument for a program that is not valid or for which the kernel has no room.
template <class Value>
InterpretedChain<Value> interpreted_chain(const ElementwiseProgram& program, Span<const AxisInput<Value>> inputs,
                                          Span<const float* const> vectors) {
  Problems problems;
  validate(program, "elementwise program", problems);
  problems.throw_if_any();
  const auto expect_count = [&](const char* what, int64_t expected, int64_t got, int64_t most) {
    if (got != expected) problems.add(what, std::to_string(expected), std::to_string(got));
    if (expected > most) problems.add(what, "at most " + std::to_string(most), std::to_string(expected));
  };
  expect_count("elementwise: inputs of the program", program.num_inputs, inputs.size(), max_inputs);
  expect_count("elementwise: vectors of the program", program.num_vectors, vectors.size(), max_vectors);
  for (const float* vector : vectors) {
    if (vector == nullptr) problems.add("elementwise: vector", "an address", "null");
  }
  problems.throw_if_any();
  const std::vector<SlotOperation> operations = slot_operations(program);
  if (operations.empty()) {
    problems.add("elementwise program", "at most " + std::to_string(num_slots) + " values alive at once", "more");
  }
  if (operations.size() > max_operations) {
    problems.add("elementwise program", "at most " + std::to_string(max_operations) + " instructions and loads",
                 std::to_string(operations.size()));
  }
  problems.throw_if_any();

  InterpretedChain<Value> chain{};
  chain.num_inputs = program.num_inputs;
  chain.num_operations = static_cast<int>(operations.size());
  for (int i = 0; i < program.num_inputs; ++i) chain.inputs[i] = inputs[i];
  for (int v = 0; v < program.num_vectors; ++v) chain.vectors[v] = vectors[v];
  for (size_t i = 0; i < operations.size(); ++i) chain.operations[i] = operations[i];
  return chain;
}

}  // namespace warprank::detail::elementwise
